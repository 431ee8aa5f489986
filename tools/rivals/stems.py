"""Stems as in Dandelion++: a message goes from hand to hand along directed edges until somebody spies it.

Of every edge of an even-degree graph one direction is kept, so that each node has as many edges in as out: degree 4
gives the two in and two out of Dandelion++. How a node chooses among its edges out is the rule:

``per-message``  afresh for every message
``per-edge``     by the edge a message came in, drawn once; its own messages have a choice of their own
``one-to-one``   the same, no two edges in sharing an edge out
``all-to-one``   one edge out for all

A stem that comes back to a node would go round for ever under the last three: there it leaves by an edge drawn afresh.
"""

from __future__ import annotations

import numpy as np

from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.graphs import Graph

RULES = ("per-message", "per-edge", "one-to-one", "all-to-one")
_STEMS = 0x7374656D


def out_edges(graph: Graph, *, seed: int) -> IntArray:
    """Return for each node the heads of its edges out, half of its neighbours: a random way round all edges."""
    degrees = graph.degrees
    if len(np.unique(degrees)) > 1 or degrees[0] % 2:
        raise InvalidParameterError("graph", graph.name, "regular of even degree: stems have as many edges in as out")
    rng = task_generator(seed, _STEMS, 0)
    left = [list(rng.permutation(graph.neighbours(node))) for node in range(graph.n_nodes)]
    taken: set[tuple[int, int]] = set()
    out: list[list[int]] = [[] for _ in range(graph.n_nodes)]
    # Hierholzer: walk unused edges until stuck, back up, walk on; every edge is kept in the direction it was walked.
    trail = [0]
    while trail:
        node = trail[-1]
        while left[node] and (min(node, left[node][-1]), max(node, left[node][-1])) in taken:
            left[node].pop()
        if not left[node]:
            trail.pop()
            continue
        head = int(left[node].pop())
        taken.add((min(node, head), max(node, head)))
        out[node].append(head)
        trail.append(head)
    return np.array(out)


def stem_blame(out: IntArray, spies: BoolArray, *, rule: str, batches: int, seed: int) -> tuple[IntArray, float]:
    """Send one message of every honest node, ``batches`` times; edges are drawn anew for each batch, an epoch.

    Returns:
        Who handed each message to the first spy, a row a batch, in the order of the honest nodes; and the mean hops to
        there. A stem that has met no spy after as many hops as there are nodes ends, and its last holder is blamed.
    """
    if rule not in RULES:
        raise InvalidParameterError("route", f"stem:{rule}", f"stem: and one of {', '.join(RULES)}")
    honest, n_nodes = np.flatnonzero(~spies), len(spies)
    blamed, hops = np.empty((batches, len(honest)), dtype=np.int64), 0
    for batch in range(batches):
        rng = task_generator(seed, _STEMS, 1, batch)
        table = _table(out, rule, rng)
        holder, before = honest.copy(), honest.copy()
        visited = np.zeros((len(honest), n_nodes), dtype=np.bool_)
        alive = np.arange(len(honest))
        for _ in range(n_nodes):
            here = holder[alive]
            drawn = out[here, rng.integers(out.shape[1], size=len(alive))]
            to = drawn if table is None else np.where(visited[alive, here], drawn, table[here, before[alive]])
            visited[alive, here] = True
            before[alive], holder[alive] = here, to
            hops += len(alive)
            alive = alive[~spies[to]]
            if not len(alive):
                break
        blamed[batch] = np.where(spies[holder], before, holder)
    return blamed, hops / blamed.size


def _table(out: IntArray, rule: str, rng: np.random.Generator) -> IntArray | None:
    """Return where each node (row) sends what came from each other (column), itself for its own; None: afresh."""
    if rule == "per-message":
        return None
    n_nodes, width = out.shape
    rows = np.arange(n_nodes)
    if rule == "all-to-one":
        return np.repeat(out[rows, rng.integers(width, size=n_nodes)][:, np.newaxis], n_nodes, axis=1)
    choice = rng.integers(width, size=(n_nodes, n_nodes))
    if rule == "one-to-one":
        tails, heads = np.repeat(rows, width), out.ravel()
        order = np.argsort(heads, kind="stable")
        choice[heads[order], tails[order]] = rng.permuted(np.tile(np.arange(width), (n_nodes, 1)), axis=1).ravel()
    return out[rows[:, np.newaxis], choice]


def per_message_blame(out: IntArray, spies: BoolArray) -> FloatArray:
    """Return the chance that an honest node's message (row) is handed to the first spy by another (column), exact.

    Of the rule ``per-message`` with stems that have no end: a chain of honest holders, absorbed by spies.
    """
    n_nodes, width = out.shape
    steps = np.zeros((n_nodes, n_nodes))
    np.add.at(steps, (np.repeat(np.arange(n_nodes), width), out.ravel()), 1.0 / width)
    honest = ~spies
    visits = np.linalg.inv(np.eye(int(honest.sum())) - steps[np.ix_(honest, honest)])
    return np.asarray(visits * steps[np.ix_(honest, spies)].sum(axis=1))
