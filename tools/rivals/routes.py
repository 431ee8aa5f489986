"""Ways to bring an update to the next who updates, side by side: hops, node entropy, and what colluders learn.

Who opens knows who handed it the message, and guesses the source. Colluders are a tenth of the nodes placed at random.
Every way can be asked what they name at first sight. Only sealed walks can be asked what they read with shared keys,
and what the strongest coalition of the auditor names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse, special

from veilwalk.audit import audit
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.core.records import Record
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import Scheme, choose_scheme, evaluate_scheme, recommend
from veilwalk.design._openings import bound_node_entropy
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths

#: The share of the nodes that collude.
COLLUDE = 0.1
#: Chance that a member of a crowd passes a message on once more.
PASSED_ON = 0.8
ONIONS = (8, 10, 12)
_STRAIGHT = Walk("non-backtracking")
# Tables of arcs by sources are made up to so many entries.
_TABLE_ENTRIES = 4_000_000
_PLACEMENTS, _LANES, _PATHS = 8, 64, 1_024
# What the strongest coalition is asked: updates played, and stretches between two openings by a member.
_PLAYED, _STRETCHES = 60_000, 200


def compare_routes(
    graph: Graph,
    *,
    fars: Sequence[int] = (),
    counts: Sequence[int] = (),
    walks: Sequence[Walk] = (SIMPLE, _STRAIGHT),
    attacked: Sequence[int] | None = None,
    progress: Progress = silent,
) -> Record:
    """Put the paper's scheme, the recommended one and other ways side by side on ``graph``.

    Args:
        graph: the network.
        fars: distances of further schemes sealed for several.
        counts: their numbers of recipients.
        walks: their walks.
        attacked: numbers of recipients for which the strongest coalition attacks schemes of the farthest distance; it
            then attacks the paper's scheme and the recommended one, too. None: none is attacked.
        progress: told before each.
    """
    rows = [_plain(), _gossip()]
    progress("the paper's scheme")
    rows.append(_scheme_row("paper", choose_scheme(graph), is_attacked=attacked is not None))
    progress("the recommended scheme")
    rows.append(_scheme_row("recommended", recommend(graph).scheme, is_attacked=attacked is not None))
    for length in ONIONS:
        progress(f"onion of {length} hops")
        rows.append(_onion(graph, length))
    rows.append(_crowd(graph.n_nodes))
    for walk in walks:
        for far in fars:
            law = choose_scheme(graph, f"far:{far}").law
            for count in counts:
                progress(f"{walk}, far:{far}, sealed for {count}")
                is_attacked = count in (attacked or ()) and far == max(fars)
                rows.append(_scheme_row("several", Scheme(graph, law, walk, recipients=count), is_attacked=is_attacked))
    params = {"graph": graph.name, "nodes": graph.n_nodes, "graph_digest": graph.digest, "colluders": COLLUDE}
    return Record(kind="routes", params=params, seed=1, result={"rows": rows})


def _scheme_row(route: str, scheme: Scheme, *, is_attacked: bool) -> dict[str, Any]:
    design = evaluate_scheme(scheme, colluders=[COLLUDE])
    exposure = design.exposure
    ((share, named),) = exposure.named_by_colluders.items()
    coalition: dict[str, Any] = {}
    if is_attacked:
        count = round(COLLUDE * scheme.graph.n_nodes)
        options: dict[str, Any] = {"colluders": count, "updates": _PLAYED, "scored_by_filter": _STRETCHES}
        found = audit(scheme, observers="coalition", **options)["coalition"]
        coalition = {"coalition": found.hit_ratio, "coalition_interval": found.interval}
        coalition["coalition_top"] = found.overall["top_posterior"]
    return coalition | {
        "route": route,
        "law": scheme.law.name,
        "walk": str(scheme.walk),
        "recipients": scheme.recipients,
        # Of one recipient the price is exact; deliveries estimate it to a percent or two.
        "hops": (scheme if scheme.has_exact_law else design).price.hops,
        "node_entropy_nats": exposure.node_entropy.mean,
        "node_entropy_kind": "upper bound" if exposure.blind_node_entropy is None else "estimated",
        "top_posterior": None if exposure.hit_ratio is None else exposure.hit_ratio.high,
        "times_floor": named.mean / share,
        "times_floor_interval": [named.low / share, named.high / share],
        "read": exposure.read_by_colluders[share].mean,
        "predecessor": None if exposure.predecessor_guess is None else exposure.predecessor_guess.mean,
    }


def _row(
    route: str, *, hops: float, nats: float, kind: str, top: float | None, times_floor: float, predecessor: float | None
) -> dict[str, Any]:
    return {
        "route": route,
        "hops": hops,
        "node_entropy_nats": nats,
        "node_entropy_kind": kind,
        "top_posterior": top,
        "times_floor": times_floor,
        "predecessor": predecessor,
    }


def _plain() -> dict[str, Any]:
    """Return the walk without sealing: every hop is an update, and its receiver knows whose."""
    return _row("plain walk", hops=1.0, nats=0.0, kind="exact", top=1.0, times_floor=1.0, predecessor=1.0)


def _gossip() -> dict[str, Any]:
    """Return pairwise gossip: a model goes to a neighbour, who sees whose it is."""
    return _row("gossip", hops=1.0, nats=0.0, kind="exact", top=1.0, times_floor=1.0, predecessor=None)


def _crowd(size: int) -> dict[str, Any]:
    """Return Crowds in closed form; everybody must reach everybody, whatever the graph.

    A source passes to anybody, itself included, who passes on with a fixed chance, else opens. The last hop is the
    source if there was no other, and anybody if there was.
    """
    last, other = 1.0 - PASSED_ON + PASSED_ON / size, PASSED_ON / size
    nats = float(special.entr(last) + (size - 1) * special.entr(other))
    # Passed on among the honest, and then to a colluder by the source itself, by chance.
    goes_on = (1.0 - COLLUDE) * PASSED_ON
    later = goes_on / (1.0 - goes_on) / (size * (1.0 - COLLUDE))
    return _row(
        "crowd",
        hops=1.0 / (1.0 - PASSED_ON),
        nats=nats,
        kind="closed form",
        top=last,
        times_floor=1.0 + later,
        predecessor=1 / size,
    )


def _conditional_entropy(table: FloatArray) -> float:
    """Return the mean entropy of the column given the row, in nats, of shares that sum to one."""
    return float(special.entr(table).sum() - special.entr(table.sum(axis=1)).sum())


def _onion(graph: Graph, length: int) -> dict[str, Any]:
    """Return a path of fixed length that the source lays along edges and that does not turn round; layers hide it."""
    source, opener, last, named = _onion_paths(graph, length)
    if len(graph.indices) * graph.n_nodes <= _TABLE_ENTRIES:
        table = _onion_table(graph, length)
        nats, kind, top = _conditional_entropy(table), "exact", float(table.max(axis=1).sum())
    else:
        nats, kind, top = bound_node_entropy(graph, source, opener, last).mean, "upper bound", None
    return _row(
        f"onion {length}",
        hops=float(length),
        nats=nats,
        kind=kind,
        top=top,
        times_floor=named / COLLUDE,
        predecessor=1.0,
    )


def _onion_table(graph: Graph, length: int) -> FloatArray:
    """Return P(last arc, source) of paths of ``length`` hops from sources as frequent as their degree, exact."""
    n_arcs, heads = len(graph.indices), np.repeat(np.arange(graph.n_nodes), graph.degrees)
    back = np.empty(n_arcs, dtype=np.int64)
    back[np.argsort(graph.indices, kind="stable")] = np.arange(n_arcs)
    # Arc a is an entry of its head's neighbours: where it came from. It goes on by the head's other entries.
    fan = graph.degrees[heads]
    arcs = np.repeat(np.arange(n_arcs), fan)
    starts = np.repeat(graph.indptr[heads], fan)
    entries = starts + np.arange(len(arcs)) - np.repeat(np.cumsum(fan) - fan, fan)
    allowed = (entries != arcs) | (np.repeat(fan, fan) == 1)
    weight = 1.0 / np.maximum(np.repeat(fan, fan) - 1, 1)
    moves = sparse.csr_array(
        (weight[allowed], (back[entries[allowed]], arcs[allowed])), shape=(n_arcs, n_arcs), dtype=np.float64
    )
    table = np.zeros((n_arcs, graph.n_nodes))
    table[np.arange(n_arcs), graph.indices] = 1.0 / n_arcs
    for _ in range(length - 1):
        table = moves @ table
    return table


def _onion_paths(graph: Graph, length: int) -> tuple[IntArray, IntArray, IntArray, float]:
    """Return sources, openers and last hops of drawn paths, and how often colluders name an honest source."""
    hops = length * _PATHS
    paths = token_paths(graph, hops=hops, lanes=_LANES, seed=1, walk=_STRAIGHT).astype(np.int64)
    whole = np.stack([paths[:, first : first + length + 1] for first in range(0, hops, length)], axis=1)
    routes = whole.reshape(-1, length + 1)
    named = []
    for placement in range(_PLACEMENTS):
        colludes = np.zeros(graph.n_nodes, dtype=np.bool_)
        count = max(round(COLLUDE * graph.n_nodes), 1)
        colludes[task_generator(1, placement).choice(graph.n_nodes, size=count, replace=False)] = True
        mine = routes[~colludes[routes[:, 0]]]
        seen = colludes[mine[:, 1:]]
        first = seen.argmax(axis=1)
        handed = mine[np.arange(len(mine)), first] == mine[:, 0]
        named.append(float((seen.any(axis=1) & handed).mean()))
    drawn = routes[:: max(len(routes) // 8_192, 1)]
    return drawn[:, 0], drawn[:, -1], drawn[:, -2], float(np.mean(named))
