"""What ``veilwalk design`` prints: a law, its price, what it leaves hidden; the frontier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veilwalk.cli._output import console, print_table, say
from veilwalk.core.units import nats_and_bits

if TYPE_CHECKING:
    from veilwalk.core.arrays import FloatArray
    from veilwalk.core.records import Record
    from veilwalk.design import Design, Exposure, SampledLegs, WindowDesign
    from veilwalk.graphs import Graph


def print_design(found: Design) -> None:
    """Print what is known about a design."""
    if found.paper is not None:
        print_window_design(found.paper, found.scheme.graph)
        return
    scheme = found.scheme
    even = "balanced" if found.is_balanced else "not balanced"
    title = f"law {scheme.law.name}, {even}, {scheme.walk} walk, {scheme.graph.n_nodes} nodes"
    title += f", distances {scheme.law.support}"
    if found.legs is not None:
        _print_legs(title, found.legs)
    rows = [
        ("price", f"{found.price.hops:.1f} hops per update", f"mean, {found.price.kind}"),
        ("updates of one node", _prior_range(scheme.law.source_prior, scheme.graph), "times the mean, exact"),
    ]
    if found.exposure is None or found.channel is None:
        rows.append(("node entropy", nats_and_bits(found.blind_node_entropy_nats), "told only that it was chosen"))
        print_table(title, ("what", ">value", "kind"), rows)
        if found.legs is not None:
            say("no certificate and no window floor at this size; measure the rest with veilwalk audit")
        return
    seen, where = found.exposure, f"{found.channel.observer} observer, expected"
    rows += [
        ("node entropy", nats_and_bits(seen.node_entropy_nats), where),
        ("", nats_and_bits(seen.blind_node_entropy_nats), "told only that it was chosen"),
        ("hit ratio", f"{seen.hit_ratio:.3%}", where),
        ("", f"{seen.blind_hit_ratio:.3%}", "told only that it was chosen"),
    ]
    if found.window is not None:
        worst = ", ".join(scheme.graph.label(node) for node in found.window.worst_destinations(3))
        least = nats_and_bits(found.window.node_entropy_nats)
        rows.append(("node entropy floor", least, "window notion, least of all nodes"))
        rows.append(("", f"nodes {worst}", f"the worst, at {found.window.return_time:.0f} hops"))
    print_table(title, ("what", ">value", "kind"), rows)
    _print_who(seen, scheme.graph, where)
    for line in _remarks(found):
        say(line)


def _print_who(seen: Exposure, graph: Graph, where: str) -> None:
    print_table(
        f"who knows most ({where})",
        ("destination", ">degree", ">node entropy, nats", ">hit ratio"),
        [
            (
                graph.label(node),
                str(graph.degrees[node]),
                f"{seen.node_entropy_by_destination[node]:.4f}",
                f"{seen.hit_ratio_by_destination[node]:.3%}",
            )
            for node in seen.worst_destinations()
        ],
    )
    print_table(
        "who is known best",
        ("source", ">degree", ">weight it is given"),
        [
            (graph.label(node), str(graph.degrees[node]), f"{seen.weight_by_source[node]:.3%}")
            for node in seen.best_known_sources()
        ],
    )


def _print_legs(title: str, legs: SampledLegs) -> None:
    rows = [("all", legs.hops)]
    rows += [(f"{distance} hops away", mean) for distance, mean in legs.by_distance.items()]
    rows += [(f"degree {low} to {high}", mean) for (low, high), mean in legs.by_degree.items()]
    print_table(
        f"{title}: hops per update, estimated",
        ("destination", ">legs", ">mean hops", ">95% interval"),
        [(what, str(one.count), f"{one.mean:.0f}", f"{one.low:.0f} to {one.high:.0f}") for what, one in rows],
    )


def _prior_range(prior: FloatArray, graph: Graph) -> str:
    """Say how often the rarest and the most frequent source update, times the mean."""
    times: FloatArray = prior * len(prior)
    least, most = int(times.argmin()), int(times.argmax())
    if times[most] - times[least] < 1e-6:
        return "all alike"
    return f"{times[least]:.2f} ({graph.label(least)}) to {times[most]:.2f} ({graph.label(most)})"


def print_window_design(result: WindowDesign, graph: Graph | None = None) -> None:
    """Print the paper's own design."""
    where = f"{result.n_nodes} nodes" + (f" of degree {result.degree}" if result.degree else "")
    print_table(
        f"destination law, {where}, {result.formulas}",
        (">distance", ">probability", ">nodes there", ">each"),
        [
            (str(distance), f"{share:.6f}", f"{size:.2f}", f"{share / size:.3e}" if size else "-")
            for distance, share, size in zip(result.distances, result.distance_pmf, result.shell_sizes, strict=True)
        ],
    )
    floor, kept = result.anonymity_floor_nats, 1 - result.tail_probability
    rows = [
        ("return time designed for", f"{result.return_time_design:.0f} hops", "chosen"),
        ("return times covered", f">= {result.return_time_from:.0f} hops", f"with probability >= {kept:g}"),
    ]
    for name, nats in (("distance", result.distance_entropy_nats), ("node", result.node_entropy_nats)):
        kind = "window notion, at the return time designed for"
        rows.append((f"{name} entropy", nats_and_bits(nats), kind))
    rows.append(("distance entropy floor", nats_and_bits(floor), result.floor_kind))
    rows.append(("price", f"{result.mean_iteration_hops:.1f} hops per update", "mean"))
    if result.worst_destination is not None:
        worst = str(result.worst_destination) if graph is None else graph.label(result.worst_destination)
        rows.append(("worst destination", f"node {worst}", "least node entropy"))
    print_table("what it guarantees and costs", ("what", ">value", "kind"), rows)
    for warning in result.warnings:
        console().print(f"warning: {warning}")


def _remarks(found: Design) -> list[str]:
    """Say what was held fixed, how far it moved, and how near the law is to the best."""
    lines = []
    if found.channel is not None:
        kind, horizon = found.channel.kind, found.channel.horizon
        lines.append(f"observation channel: {kind}; return times beyond {horizon} hops are one class")
        if any(one.objective == "hit-ratio" for one in found.certificates):
            lines.append("hit ratios here are 1 to 2% low, because return times are merged into classes: audit the law")
    if found.window is not None:
        lines.append(f"return time of the window: {found.window.return_time:.0f} hops ({found.window.chosen_by})")
    if found.weight_ratio is not None:
        lines.append(f"one source of a destination outweighs another there by up to {found.weight_ratio:.3f} times")
    for number, one in enumerate(found.rounds, start=1):
        lines.append(
            f"round {number}: best with the channel held fixed {one.value_held_fixed:.6f}, with its own channel "
            f"{one.value_derived_anew:.6f}; the channel moved by {one.channel_moved:.1e} (total variation, mean)"
        )
    return lines + [one.in_words() for one in found.certificates]


def print_frontier(record: Record) -> None:
    """Print walks and laws side by side."""
    rows = list(record.result["rows"])
    observer = record.params["observer"]
    print_table(
        f"privacy and price: {record.params['graph']}, distances {record.params['support']}, {observer} observer",
        ("walk", "law", ">hops", ">entropy", ">at most", ">hit ratio", ">worst", ">updates"),
        [
            (
                row["walk"],
                _law_name(row),
                f"{row['mean_iteration_hops']:.1f}",
                f"{row['node_entropy_nats']:.4f}",
                "-" if row["node_entropy_bound_nats"] is None else f"{row['node_entropy_bound_nats']:.4f}",
                f"{row['hit_ratio']:.3%}",
                f"{row['worst_node_entropy_nats']:.3f}",
                "{:.2f}-{:.2f}".format(*row["prior_range"]),
            )
            for row in rows
        ],
    )
    console().print(
        "hops: mean per update. entropy: expected node entropy, in nats; at most: bound on any balanced law with so "
        "many hops; worst: at the destination that knows most. updates: how often a node updates, times the mean, "
        "least to most. optimal laws are balanced."
    )
    for walk, channel in record.params["channels"].items():
        mine = [row for row in rows if row["walk"] == walk]
        console().print(_flatness(walk, mine) + f" Channel: {channel['kind']}, to {channel['horizon']} hops.")


def _law_name(row: dict[str, Any]) -> str:
    return str(row["law"]) + (", balanced" if row["balanced"] and row["law"] != "optimal" else "")


def _flatness(walk: str, rows: list[dict[str, Any]]) -> str:
    """Say in numbers how little a law can gain, and what hops cost."""
    simple = next(row for row in rows if row["law"] == "uniform-node" and row["balanced"])
    optimal = [row for row in rows if row["law"] == "optimal"]
    bound = optimal[0]["node_entropy_bound_nats"]
    words = (
        f"{walk}: uniform-node, balanced, is within {1 - simple['node_entropy_nats'] / bound:.3%} of the best any "
        "balanced law could do"
    )
    if len(optimal) > 1:
        lost = optimal[0]["node_entropy_nats"] - optimal[-1]["node_entropy_nats"]
        saved = 1 - optimal[-1]["mean_iteration_hops"] / optimal[0]["mean_iteration_hops"]
        words += f"; to save {saved:.0%} of the hops by the law alone costs {lost:.2f} nats"
    return words + "."
