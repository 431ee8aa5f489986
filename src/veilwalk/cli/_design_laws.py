"""What ``veilwalk design`` prints about laws for any graph, and about the frontier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from veilwalk.cli._design_large import identity, large_graph, nats_and_bits, prior_range
from veilwalk.cli._output import console, print_table
from veilwalk.core.records import plain

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.core.support import DistanceSupport
    from veilwalk.design import LawDesign
    from veilwalk.graphs import Graph


def any_graph(
    graph: Graph, name: str, support: DistanceSupport, out: Path | None, *, as_json: bool, **options: Any
) -> None:
    """Design the law called ``name``, write it where asked, and print what is known about it."""
    from veilwalk.design import LARGE_NODES, design_law, save_law

    if graph.n_nodes >= LARGE_NODES:
        large_graph(graph, name, support, out, as_json=as_json, **options)
        return
    with console().status(f"designing {name}"):
        found = design_law(graph, name, support=support, **options)
    if out is not None:
        save_law(out, found.law)
    if as_json:
        typer.echo(json.dumps(plain(law_as_dict(found, graph)), indent=2, allow_nan=False))
    else:
        _print(found, graph)


def frontier(
    graph: Graph,
    support: DistanceSupport,
    walks: str | None,
    out: Path | None,
    *,
    name: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Put walks and laws side by side, write the figure where asked, and print the table."""
    from veilwalk.experiments import privacy_price

    if walks is None:
        # On a regular graph a Metropolis walk refuses no move: it is the simple one.
        walks = "simple,non-backtracking" if graph.is_regular else "simple,metropolis,non-backtracking"
    kinds = [kind.strip() for kind in walks.split(",")]
    with console().status("starting") as status:
        record = privacy_price(graph, support=support, walks=kinds, name=name, say=status.update, **options)
    paths: list[Path] = []
    if out is not None:
        from veilwalk.report import frontier_files

        paths = frontier_files(record, out)
    if as_json:
        typer.echo(record.to_json(), nl=False)
        return
    _print_frontier(record)
    for path in paths:
        typer.echo(f"wrote {path}")


def law_as_dict(found: LawDesign, graph: Graph) -> dict[str, Any]:
    """Return the design as plain data under its stable JSON keys."""
    prior = found.law.source_prior * graph.n_nodes
    content = identity(found, graph) | {
        "balanced": found.is_balanced,
        "mean_iteration_hops": found.mean_iteration_hops,
        "prior_range": [prior.min(), prior.max()],
        "prior_range_nodes": [prior.argmin(), prior.argmax()],
        "observer": found.channel.observer,
        "channel": {"kind": found.channel.kind, "horizon": found.channel.horizon},
        "node_entropy_nats": found.exposure.node_entropy_nats,
        "hit_ratio": found.exposure.hit_ratio,
        "blind_node_entropy_nats": found.exposure.blind_node_entropy_nats,
        "blind_hit_ratio": found.exposure.blind_hit_ratio,
        "worst_destinations": [_destination(found, graph, int(node)) for node in found.exposure.worst_destinations()],
        "best_known_sources": [
            {"node": node, "degree": graph.degrees[node], "weight": found.exposure.weight_by_source[node]}
            for node in found.exposure.best_known_sources()
        ],
        "window": {
            "return_time": found.window.return_time,
            "chosen_by": found.window.chosen_by,
            "node_entropy_nats": found.window.node_entropy_nats,
            "worst_destinations": found.window.worst_destinations(),
            "weight_ratio": found.weight_ratio,
        },
        "certificates": [
            vars(one) | {"shortfall": one.shortfall, "in_words": one.in_words()} for one in found.certificates
        ],
    }
    if found.equalised is not None:
        sums = found.equalised.row_sums
        content["equalised"] = {"exact": found.equalised.is_exact, "row_sums_range": [sums.min(), sums.max()]}
    if found.rounds:
        content["rounds"] = [vars(one) for one in found.rounds]
    return content


def _destination(found: LawDesign, graph: Graph, node: int) -> dict[str, Any]:
    return {
        "node": node,
        "degree": graph.degrees[node],
        "node_entropy_nats": found.exposure.node_entropy_by_destination[node],
        "hit_ratio": found.exposure.hit_ratio_by_destination[node],
    }


def _print(found: LawDesign, graph: Graph) -> None:
    seen, floor = found.exposure, found.window
    even = "balanced" if found.is_balanced else "not balanced"
    where = f"{found.channel.observer} observer, expected"
    worst = ", ".join(str(node) for node in floor.worst_destinations(3))
    least = nats_and_bits(floor.node_entropy_nats)
    rows = [
        ("price", f"{found.mean_iteration_hops:.1f} hops per update", "mean"),
        ("updates of one node", prior_range(found.law.source_prior), "source prior, times the mean"),
        ("node entropy", nats_and_bits(seen.node_entropy_nats), where),
        ("", nats_and_bits(seen.blind_node_entropy_nats), "told only that it was chosen"),
        ("hit ratio", f"{seen.hit_ratio:.3%}", where),
        ("", f"{seen.blind_hit_ratio:.3%}", "told only that it was chosen"),
        ("node entropy floor", least, "Definition 1 (window notion), least of all nodes"),
        ("", f"nodes {worst}", f"the worst, at {floor.return_time:.0f} hops ({floor.chosen_by})"),
    ]
    print_table(
        f"law {found.name}, {even}, {found.walk} walk, {graph.n_nodes} nodes, distances {found.law.support}",
        ("what", ">value", "kind"),
        rows,
    )
    print_table(
        f"who knows most, and who is known best ({where})",
        (">destination", ">degree", ">node entropy, nats", ">hit ratio", ">source", ">degree", ">weight it is given"),
        [
            (
                str(node),
                str(graph.degrees[node]),
                f"{seen.node_entropy_by_destination[node]:.4f}",
                f"{seen.hit_ratio_by_destination[node]:.3%}",
                str(source),
                str(graph.degrees[source]),
                f"{seen.weight_by_source[source]:.3%}",
            )
            for node, source in zip(seen.worst_destinations(), seen.best_known_sources(), strict=True)
        ],
    )
    for line in _remarks(found):
        console().print(line, soft_wrap=True)


def _remarks(found: LawDesign) -> list[str]:
    """Say what was held fixed, how far it moved, and how near the law is to the best."""
    channel = found.channel
    lines = [f"observation channel: {channel.kind}; return times beyond {channel.horizon} hops are one class"]
    if found.equalised is not None:
        what = "exact solution" if found.equalised.is_exact else "no exact solution; the nearest"
        lines.append(
            f"equalised: {what}: at the return time designed for one source of a destination outweighs another by up "
            f"to {found.weight_ratio:.3f} times (row sums {found.equalised.row_sums.min():.3f} to "
            f"{found.equalised.row_sums.max():.3f} before they are normalised)"
        )
    for number, one in enumerate(found.rounds, start=1):
        lines.append(
            f"round {number}: best with the channel held fixed {one.value_held_fixed:.6f}, with its own channel "
            f"{one.value_derived_anew:.6f}; the channel moved by {one.channel_moved:.1e} (total variation, mean)"
        )
    return lines + [one.in_words() for one in found.certificates]


def _print_frontier(record: Record) -> None:
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
