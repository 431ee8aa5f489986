"""Hitting laws by plain dense recursion, for walks on nodes and on arcs: oracles that share no code with the chains."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from veilwalk.chains import NodeChain
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.graphs import Graph


def hitting_law(steps: FloatArray | sparse.csr_array, on_target: IntArray, horizon: int) -> FloatArray:
    """P(T = t) for t = 0 to ``horizon`` from every state, T the first time on one of the states ``on_target``."""
    law = np.zeros((horizon + 1, steps.shape[0]))
    law[0, on_target] = 1.0
    for time in range(1, horizon + 1):
        law[time] = steps @ law[time - 1]
        law[time, on_target] = 0.0
    return law


def hitting_pmf(chain: NodeChain, target: int, horizon: int) -> FloatArray:
    """P(T = t) for t = 0 to ``horizon`` from every node, by the chain's own transitions."""
    return hitting_law(chain.transition_matrix, np.array([target]), horizon)


def return_law(steps: FloatArray, node: int, horizon: int) -> FloatArray:
    """P(R = t) for t = 0 to ``horizon``: one step away, then a hitting time."""
    hits = hitting_law(steps, np.array([node]), max(horizon - 1, 0))
    return np.concatenate([[0.0], hits[:horizon] @ steps[node]])


def list_arcs(graph: Graph) -> list[tuple[int, int]]:
    """Every (from, into) of the graph, ordered by the node it leads into, then by where it comes from."""
    return [(int(tail), node) for node in range(graph.n_nodes) for tail in sorted(graph.neighbours(node).tolist())]


def arc_steps(graph: Graph) -> FloatArray:
    """Transitions between the arcs of :func:`list_arcs`: anywhere but back, and back from a leaf."""
    arcs = list_arcs(graph)
    number = {arc: place for place, arc in enumerate(arcs)}
    steps = np.zeros((len(arcs), len(arcs)))
    for (tail, node), row in number.items():
        onward = [there for there in graph.neighbours(node).tolist() if there != tail] or [tail]
        for there in onward:
            steps[row, number[node, there]] = 1.0 / len(onward)
    return steps


def arc_hitting_law(graph: Graph, target: int, horizon: int, arrivals: FloatArray) -> FloatArray:
    """P(T = t) from every node (columns), come to by each of its arcs with the chance that ``arrivals`` gives it."""
    heads = np.array([node for _, node in list_arcs(graph)])
    by_arc = hitting_law(arc_steps(graph), np.flatnonzero(heads == target), horizon)
    by_node = np.zeros((horizon + 1, graph.n_nodes))
    np.add.at(by_node.T, heads, (by_arc * arrivals).T)
    return by_node
