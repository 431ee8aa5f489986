"""``veilwalk graph``, ``design`` and ``recommend``: a network, and schemes for it with their price."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._options import AsJson, Count, File, Suite, Text, argument, flag, option
from veilwalk.cli._output import (
    announce_compiling,
    draw_or_write,
    live_progress,
    make_group,
    print_facts,
    print_records,
    print_table,
    say,
    show_result,
)
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.records import Record, require_writable
from veilwalk.core.sizes import LARGE_NODES, parse_memory
from veilwalk.core.support import DistanceSupport
from veilwalk.core.units import nats_and_bits, readable_bytes
from veilwalk.core.walk import WALKS

_MODEL_BYTES = 31_400
_SHOWN_LABELS = 4
SPEC_HELP = (
    "rrg:NODES:DEGREE, overlay:NODES:DEGREE, er:NODES:MEAN_DEGREE, ba:NODES:ATTACH, ws:NODES:DEGREE:REWIRE, "
    "geometric:NODES:RADIUS (each with :seed=S), "
    "ring:NODES, torus:SIDE:SIDE, hypercube:DIMENSION, complete:NODES, or file:PATH (edge list, CSV, TSV, GraphML, "
    "GML, node-link JSON, .adjlist, .mtx, .npz; .gz too); er, ws, geometric and file take :component=largest."
)
OBSERVER = "The observer to hide from; last-hop also knows the neighbour."
LAWS = "plain, uniform-distance, uniform-node, far:R, paper, paper-printed, paper-exact, optimal, or a law file."
_USUAL_LAW = "paper-exact; uniform-node from 10,000 nodes on; with --recipients far:R, the farthest up to 4 that fits"

Graph = Annotated[Text, option(f"The network: {SPEC_HELP}", "SPEC")]
Roster = Annotated[File, option("Or the network of a roster, with the names of its members.", "FILE")]
Support = Annotated[Text, option("Distances a destination may have.", "LO:HI", "2 to as far as all nodes reach, or 6")]
AllowNeighbours = Annotated[bool, flag("--allow-neighbours", "Admit distance 1, against the paper's advice.")]
LawFile = Annotated[File, option("Write the law to FILE, .npz.", "FILE")]
ModelBytes = Annotated[int, option("Bytes of the model, for the price in bytes.", "B")]

_COLLUDER_COLUMNS = {
    ">collude": "{share:.1%}",
    ">read": "{read}",
    ">named at first sight": "{named}",
    ">times the floor": "{times:.2f}",
}
_NODE_COLUMNS = {"": "{node}", ">degree": "{degree}", ">node entropy, nats": "{node_entropy_nats:.4f}"}

app = make_group("Look at a network.")


def read_graph_spec(spec: str) -> rooms.graphs.Graph:
    """Return the network that a spec names; the first graph may have to compile kernels, and a line says so."""
    announce_compiling()
    return rooms.graphs.parse_graph_spec(spec)


def read_network(graph: str | None, roster: Path | None) -> rooms.graphs.Graph:
    """Return the network that ``--graph`` or ``--roster`` names."""
    if (graph is None) == (roster is None):
        raise ConfigError("the network: give --graph or --roster, and not both")
    return read_graph_spec(graph or "") if roster is None else rooms.members.Roster.read_draft(roster).graph()


@app.command("info")
def info(spec: Annotated[str, argument("SPEC", SPEC_HELP)], *, as_json: AsJson = False) -> None:
    """Print size, degrees, diameter, gap and shell sizes.

    Example: veilwalk graph info rrg:300:3:seed=1
    """
    graph = read_graph_spec(spec)
    facts = rooms.graphs.summary(graph)

    def show() -> None:
        print_facts(spec, _graph_facts(graph, facts))
        print_table(
            f"nodes at each distance, mean over {'all' if facts.shells_exact else facts.shell_sources} nodes",
            (">distance", ">nodes"),
            [(str(distance), f"{size:.2f}") for distance, size in enumerate(facts.mean_shell_sizes)],
        )

    show_result({"graph": spec, **facts.to_dict()}, show, as_json=as_json)


def _graph_facts(graph: rooms.graphs.Graph, facts: rooms.graphs.GraphSummary) -> dict[str, Any]:
    labels = list(graph.labels or ())
    labels[_SHOWN_LABELS:-1] = ["..."] if len(labels) > _SHOWN_LABELS else []
    mixed = f"{facts.degree_min} to {facts.degree_max}, mean {facts.degree_mean:.6g}"
    bounds = f"between {facts.diameter_lower} and {facts.diameter_upper}"
    gaps = {"spectral gap": facts.spectral_gap, "absolute spectral gap": facts.absolute_spectral_gap}
    unknown = "not computed: the graph is too large or mixes too slowly"
    return {
        "nodes": facts.nodes,
        "labels": ", ".join(labels),
        "edges": facts.edges,
        "degree": f"{facts.degree_min} at every node" if facts.regular else mixed,
        "bipartite": "yes" if facts.bipartite else "no",
        "diameter": facts.diameter_upper if facts.diameter_exact else bounds,
        **{name: unknown if gap is None else f"{gap:.6g}" for name, gap in gaps.items()},
        "digest": facts.digest,
    }


def design(
    *,
    graph: Graph = None,
    roster: Roster = None,
    law: Annotated[Text, option(LAWS, "NAME|FILE", _USUAL_LAW)] = None,
    support: Support = None,
    walk: Annotated[Text, option(f"{', '.join(WALKS)}.", "KIND", "the law file's, or simple")] = None,
    recipients: Annotated[Count, option("Seal for K hidden recipients; the first met opens.", "K")] = None,
    train_probability: Annotated[
        float | None, option("With --recipients: an opener trains so often, else only seals again.", "Q", "1")
    ] = None,
    balanced: Annotated[bool | None, flag("--balanced/--no-balanced", "Every node updates equally often.")] = None,
    budget_hops: Annotated[float | None, option("Most mean hops per update.", "B")] = None,
    observer: Annotated[Text, option(OBSERVER, "return-time|last-hop", "return-time")] = None,
    allow_neighbours: AllowNeighbours = False,
    model_bytes: ModelBytes = _MODEL_BYTES,
    suite: Suite = "auto",
    memory: Annotated[Text, option("Most memory for tables, such as 8G.", "SIZE", "0.7 of all")] = None,
    out: LawFile = None,
    as_json: AsJson = False,
) -> None:
    """Design a law for a network; see privacy and price.

    Prints the price of an update, what observers learn, and how near the law is to the best one.

    The paper's law: veilwalk design --graph rrg:300:3:seed=1 --support 2:6

    The best law: veilwalk design --graph rrg:300:3:seed=1 --law optimal --walk non-backtracking

    For several: veilwalk design --graph rrg:300:3:seed=1 --recipients 16 --law far:4 --walk non-backtracking

    veilwalk recommend chooses law, walk and recipients for a network.
    """
    require_law_file(out)
    distances = None if support is None else DistanceSupport.parse(support, allow_neighbours=allow_neighbours)
    network = read_network(graph, roster)
    values = {"budget_hops": budget_hops, "observer": observer, "balanced": balanced, "memory_bytes": memory}
    options: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if recipients is None and not (law or "").startswith("far"):
        law = law or ("paper-exact" if network.n_nodes < LARGE_NODES else "uniform-node")
        options |= {} if memory is None else {"memory_bytes": parse_memory(memory)}
    else:
        for name, value in options.items():
            raise InvalidParameterError(name, value, "left out: it is for designs of one recipient")
        options["recipients"] = 1 if recipients is None else recipients
    options |= {} if train_probability is None else {"train_probability": train_probability}
    options["sealing"] = rooms.design.Sealing(**dict[str, Any](model_bytes=model_bytes, suite=suite))
    with live_progress() as progress:
        result = rooms.design.design(network, law, support=distances, walk=walk, progress=progress, **options)
    show_design(result, out, as_json=as_json)


def recommend(
    *,
    graph: Graph = None,
    roster: Roster = None,
    members: Annotated[Count, option("Or a network of N members whose links you are free to choose.", "N")] = None,
    keep: Annotated[float, option("Least share of the node entropy to keep.", "SHARE")] = 0.97,
    walk: Annotated[Text, option("Walks to choose from.", "KIND[,KIND...]", "non-backtracking, or simple")] = None,
    model_bytes: ModelBytes = _MODEL_BYTES,
    suite: Suite = "auto",
    out: Annotated[File, option("Write the scheme, .npz; a folder gets the figure too.", "FILE|DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend what to use on this network.

    Compares numbers of recipients, laws and walks, and recommends the one with the fewest bytes that hides the maker
    well enough. train and cluster up use the same by default. Shows meanwhile how many cases remain, and the time left.

    Your network: veilwalk recommend --graph file:network.csv --out scheme.npz

    No network yet: veilwalk recommend --members 50
    """
    is_file = out is not None and rooms.design.is_law_file(out.name)
    if out is not None:
        require_writable(out.parent if is_file else out)
    if members is not None and (graph is not None or roster is not None):
        raise InvalidParameterError("members", members, "left out with --graph or --roster")
    network = None if members is not None else read_network(graph, roster)
    sealing = rooms.design.Sealing(**dict[str, Any](model_bytes=model_bytes, suite=suite))
    with live_progress() as progress:
        search = rooms.design.recommend(
            network,
            members=members,
            keep=keep,
            walks=None if walk is None else walk.split(","),
            sealing=sealing,
            exhaustive=(members or 0 if network is None else network.n_nodes) < LARGE_NODES,
            progress=progress,
        )
        best = rooms.design.evaluate_scheme(search.scheme, sealing=sealing, progress=progress)
        advice = rooms.audit.warn_few_members(search.scheme)
    record = search.record()
    paths: list[Path] = []
    if out is not None:
        paths = [out if is_file else out / "scheme.npz"]
        rooms.design.save_scheme(paths[0], best.scheme)
        paths += [] if is_file else draw_or_write("recipients_files", record, out / "frontier.json")

    def show() -> None:
        _print_recommendation(record)
        print_design(best)
        if advice is not None:
            say(f"warning: {advice}")

    content = record.to_dict() | {"design": best.to_dict(), "advice": advice}
    show_result(content, show, paths, as_json=as_json)


def require_law_file(out: Path | None) -> None:
    """Refuse a path at which no law can be written, before any computation."""
    if out is not None:
        require_writable(rooms.design.require_law_file("out", out).parent)


def show_design(result: rooms.design.Design, out: Path | None, *, as_json: bool) -> None:
    """Write the scheme where asked, and print the design."""
    if out is not None:
        rooms.design.save_scheme(out, result.scheme)
    show_result(result.to_dict(), lambda: print_design(result), [] if out is None else [out], as_json=as_json)
    if not as_json and (warning := result.scheme.relay_warning()):
        say(f"warning: {warning}")


def print_design(result: rooms.design.Design) -> None:
    """Print price, exposure and certificates of a design."""
    scheme, exposure = result.scheme, result.exposure
    if result.paper is not None:
        print_window_design(result.paper, scheme.graph)
        return
    few, many = int(scheme.law.n_choices.min()), int(scheme.law.n_choices.max())
    balance = {None: "", True: ", balanced", False: ", not balanced"}[result.is_balanced]
    blank = f"{1 - scheme.train_probability:.0%} of legs blank, " if scheme.train_probability < 1.0 else ""
    title = (
        f"sealed for {scheme.recipients}, {blank}law {scheme.law.name}{balance}, {scheme.walk} walk, "
        f"{scheme.graph.n_nodes} nodes, distances {scheme.law.support}, "
        f"{few if few == many else f'{few} to {many}'} eligible"
    )
    print_table(title, ("what", ">value", "kind"), [*_price_rows(result), *_exposure_rows(result)])
    print_records(
        "colluders share keys and read what one of them holds if any of them is a recipient; at first sight, their "
        "cheapest attack, the first to get a message names who handed it over; 95% intervals",
        _COLLUDER_COLUMNS,
        [
            {"share": share, "named": _format_interval(named), "times": named.mean / share}
            | {"read": _format_interval(exposure.read_by_colluders[share])}
            for share, named in exposure.named_by_colluders.items()
        ],
    )
    print_records(
        "any coalition in the long run: honest members that it names",
        {">collude": "{share:.1%}", ">name at most (bound)": "{at_most:.1%}"},
        exposure.summary().get("named_in_the_long_run", []),
    )
    if exposure.weight_by_source is not None:
        nodes, content = result.rows(), exposure.to_dict(scheme.graph.degrees)
        worst, known = (
            [nodes[row["node"]] for row in content[key]] for key in ("worst_destinations", "best_known_sources")
        )
        print_records("destinations that know most", _NODE_COLUMNS | {">hit ratio": "{hit_ratio:.3%}"}, worst)
        print_records("sources that are known best", _NODE_COLUMNS | {">weight": "{weight_as_source:.3%}"}, known)
    for line in _remarks(result):
        say(line)


def _price_rows(result: rooms.design.Design) -> list[tuple[str, str, str]]:
    scheme, sealing, price = result.scheme, result.sealing, result.price
    hops = "mean, " if price.interval is None else "{:.2f} to {:.2f}, ".format(*price.interval)
    rows = [("price", f"{price.hops:.2f} hops per update", f"{hops}{price.kind}")]
    if not scheme.is_direct:
        length = f"{sealing.message_bytes(scheme.recipients)} bytes a hop: {sealing.suite}, a model of "
        size = f"{readable_bytes(result.bytes_per_update)} per update"
        rows.append(("", size, f"{length}{sealing.model_bytes}"))
    low, high = result.prior_range
    # Without an exact law, and without a sample of single nodes, it is known by classes only.
    known = scheme.has_exact_law or result.exposure.blind_node_entropy is not None
    times = "all equal" if high - low < 1e-6 else f"{low:.2f} to {high:.2f}"
    kind = f"times the mean, {'of all nodes' if known else 'of classes by degree'}"
    return [*rows, ("updates of one node", times, kind)]


def _exposure_rows(result: rooms.design.Design) -> list[tuple[str, str, str]]:
    """Return what each observer learns, and how each number was obtained."""
    scheme, exposure = result.scheme, result.exposure
    who = "opener with last hop" if exposure.observer == "opener" else f"{exposure.observer} observer"
    blind = "opener alone: knows only that it opened"
    rows = []
    if exposure.observer != "blind":
        rows.append(("node entropy", nats_and_bits(exposure.node_entropy.mean), _kind(who, exposure.node_entropy)))
        rows.append(("", f"{result.entropy_share:.2%}", "of the log of all other nodes"))
    if (alone := exposure.blind_node_entropy) is not None:
        rows.append(("" if rows else "node entropy", nats_and_bits(alone.mean), _kind(blind, alone)))
    between = exposure.observer == "opener" and not exposure.how.startswith("exact")
    guessed = "the source guesses " + ("the opener" if scheme.train_probability == 1.0 else "who trains next")
    guess_kind = f"{who}, {'a low and a high estimate' if between else 'mean'}"
    guesses = (
        ("best guess: hit ratio", exposure.hit_ratio, guess_kind),
        ("", exposure.blind_hit_ratio, blind),
        ("", exposure.return_hit_ratio, "and return time, mean"),
        ("", exposure.worst_percent_hit_ratio, "on the 1% of deliveries that leak most"),
        ("", exposure.worst_arc_hit_ratio, "in the case that leaks most"),
        ("predecessor's best guess", exposure.predecessor_guess, f"{guessed} from its set"),
        ("", exposure.predecessor_guess_with_hop, "and from the first hop"),
    )
    rows += [(label, _format_interval(guess), kind) for label, guess, kind in guesses if guess is not None]
    if (certain := scheme.certain_to_a_relay()) is not None and scheme.recipients > 1:
        rows.append(("certain to a relay", f"{certain:.2%}", "of updates"))
    if exposure.observer == "opener" and (eclipse := scheme.eclipse_shares):
        shares = ", ".join(f"{count}: {share:.1%}" for count, share in eclipse.items())
        kind = f"so many of the {max(eclipse)} neighbours of the weakest members know their updates for certain"
        rows.append(("eclipse", shares, kind))
    if result.window is not None:
        worst = ", ".join(scheme.graph.label(node) for node in result.window.worst_destinations(3))
        least = nats_and_bits(result.window.node_entropy_nats)
        rows.append(("node entropy floor", least, "window notion, least of all nodes"))
        rows.append(("", f"nodes {worst}", f"the worst, at {result.window.return_time:.0f} hops"))
    return rows


def _kind(who: str, entropy: Any) -> str:
    """Return who is left with an entropy, its interval where it was sampled, and how it was obtained."""
    interval = "" if entropy.low == entropy.high else f"{entropy.low:.4f} to {entropy.high:.4f}, "
    return f"{who}, {interval}{entropy.how}"


def _format_interval(share: Any) -> str:
    """Return a share that is exact, or its interval, cut off at 0 and 1."""
    if share.low == share.high:
        return f"{share.mean:.3%}"
    return f"{max(share.low, 0.0):.2%} to {min(share.high, 1.0):.2%}"


def _remarks(result: rooms.design.Design) -> list[str]:
    """Return sentences on the channel, the window, the limits of estimates, and the distance from the best law."""
    lines, exposure, window = [], result.exposure, result.window
    if exposure.horizon is not None:
        lines.append(f"observation channel: {exposure.how}; return times beyond {exposure.horizon} hops are one class")
    if window is not None:
        lines.append(f"return time of the window: {window.return_time:.0f} hops ({window.chosen_by})")
    if exposure.observer == "opener":
        lines.append("no routing keeps colluders below their share: veilwalk audit has stronger attacks")
    return lines + [certificate.in_words() for certificate in result.certificates]


def _print_recommendation(record: Record) -> None:
    """Print every candidate of a search, and the recommended one."""
    params, best = record.params, record.result["best"]

    def mark(row: dict[str, Any]) -> str:
        is_best = all(row[name] == best[name] for name in ("graph", "walk", "law", "recipients"))
        return "best" if is_best else "keeps" if row["meets_floor"] else ""

    several = len({row["graph"] for row in record.result["rows"]}) > 1
    print_records(
        f"candidates: {params['graph']}, floor {params['keep']:g} of log(N - 1), {params['suite']}, a model of "
        f"{params['model_bytes']} bytes",
        ({"network": "{graph}"} if several else {})
        | {
            "walk": "{walk}",
            "law": "{law}",
            ">recipients": "{recipients}",
            ">hops": "{mean_iteration_hops:.1f}",
            ">bytes": "{bytes_per_update:bytes}",
            ">entropy": "{node_entropy_nats:.3f}",
            ">share": "{node_entropy_share:.2%}",
            ">read by a tenth": "{read:.1%}",
            "": "{mark}",
        },
        [row | {"mark": mark(row), "read": row["read_by_colluders"][0]["mean"]} for row in record.result["rows"]],
    )
    choice = f"sealed for {best['recipients']}, {best['law']}, {best['walk']}" + f" on {best['graph']}" * several
    if record.result["meets_floor"]:
        say(f"best: {choice}: the fewest bytes that keep the floor, up to a tenth")
    else:
        say(
            f"nothing keeps {params['keep']:g} of log(N - 1): the network is too small or too badly connected; the "
            f"nearest, {choice}, keeps {best['node_entropy_share']:.1%}"
        )
    if not record.result["meets_read_limit"]:
        read = best["read_by_colluders"][0]["mean"]
        say(
            f"warning: a tenth of the members that shares its keys reads {read:.0%} of the updates, more than "
            f"{record.result['most_read']:.0%}: no number of recipients keeps it lower at this size"
        )


def print_window_design(result: rooms.design.WindowDesign, graph: rooms.graphs.Graph | None = None) -> None:
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
    covered, kind = 1 - result.tail_probability, "window notion, at the return time designed for"
    rows = [
        ("return time designed for", f"{result.return_time_design:.0f} hops", "chosen"),
        ("return times covered", f">= {result.return_time_from:.0f} hops", f"with probability >= {covered:g}"),
        ("distance entropy", nats_and_bits(result.distance_entropy_nats), kind),
        ("node entropy", nats_and_bits(result.node_entropy_nats), kind),
        ("distance entropy floor", nats_and_bits(result.anonymity_floor_nats), result.floor_kind),
        ("price", f"{result.mean_iteration_hops:.1f} hops per update", "mean"),
    ]
    if result.worst_destination is not None:
        worst = str(result.worst_destination) if graph is None else graph.label(result.worst_destination)
        rows.append(("worst destination", f"node {worst}", "least node entropy"))
    print_table("guarantee and price", ("what", ">value", "kind"), rows)
    for warning in result.warnings:
        say(f"warning: {warning}")
