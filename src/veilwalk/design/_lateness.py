"""How long nothing may come to a node by chance: when a walk of a scheme is late, and how often one comes by.

A walk that is lost is noticed by its absence alone: a node that has seen no walk for longer than chance explains makes
one. How long that is follows from the law of the return time on the very graph, and from how often a node opens
something: short enough to notice, long enough that false alarms are as rare as asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core import validate
from veilwalk.core.walk import SIMPLE, Walk

if TYPE_CHECKING:
    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.design._scheme import Scheme
    from veilwalk.graphs import Graph

# Nodes of the largest network whose Laplacian is inverted, which takes seconds; directed edges of the largest whose
# non-backtracking walk is solved for from every node.
_MOST_NODES, _MOST_ARCS = 4000, 400


def late_after_hops(graph: Graph, *, alarm_hops: float, walk: Walk = SIMPLE) -> int:
    """Return the least t such that a healthy walk makes less than one false alarm in ``alarm_hops`` hops.

    The walk is at node j a share pi_j of the time, and each stay begins a return, which lasts longer than t with
    probability S_j(t); then j gives a false alarm. So there are sum of pi_j S_j(t) of them a hop, exactly.
    """
    validate.more_than(1, alarm_hops=alarm_hops)
    from veilwalk.chains import chain_of

    chain = chain_of(graph, walk)
    return _find_least(lambda times: np.asarray(chain.return_survival(times) @ chain.node_shares), alarm_hops)


def starved_after_hops(scheme: Scheme, *, alarm_hops: float) -> int:
    """Return for how many hops a node may open nothing before it makes a walk, with so many hops between false alarms.

    Age alone is fooled by what nobody can open: garbage, or a model sealed for a member that has left, walks on and
    looks like life. But every node opens something now and then: node j makes one update in 1/prior_j. Its waits are
    taken as exponential: alarms per hop are the sum over nodes of r_j e^(-r_j t), r_j = prior_j / mean hops. Where a
    message has several recipients that is within 3 % of what simulations give on regular and scale-free graphs; where
    members differ much it is up to 60 % more, and so waits longer.
    """
    validate.more_than(1, alarm_hops=alarm_hops)
    prior = scheme.source_prior
    rates = prior[prior > 0] / scheme.price.hops

    def count_alarms(times: IntArray) -> FloatArray:
        return np.asarray((rates * np.exp(-np.outer(times, rates))).sum(axis=1))

    return _find_least(count_alarms, alarm_hops)


def visits_per_link(graph: Graph, *, recipients: int = 1, walk: Walk = SIMPLE) -> float:
    """Return how often a walk comes to a member on its way to a recipient, on average, for each link of the member.

    It is the most of all members. With several recipients the walk ends at the first that it meets. Half as many are
    counted on, those that are hardest to reach from the member: some may be away. The simple walk comes by as often as
    a member has links, times the resistance between it and the goals; a non-backtracking one less often, which is
    counted where the network is small, and passed over elsewhere. 0 where the network is too large for either.
    """
    nodes = graph.n_nodes
    if nodes > _MOST_NODES:
        return 0.0
    laplacian = np.zeros((nodes, nodes))
    for a, b in graph.edges():
        laplacian[[a, b], [b, a]] -= 1
        laplacian[[a, b], [a, b]] += 1
    spread: FloatArray = np.asarray(np.linalg.inv(laplacian + 1 / nodes), np.float64)
    is_straight = walk.kind == "non-backtracking" and int(np.trace(laplacian)) <= _MOST_ARCS
    most = 0.0
    for me in range(nodes):
        resistance = spread[me, me] + np.diag(spread) - 2 * spread[me]
        order = np.argsort(resistance, kind="stable")
        goals = order[order != me][-((recipients + 1) // 2) :]
        if is_straight:
            visits = _count_straight_visits(laplacian, me, set(goals.tolist())) / laplacian[me, me]
        else:
            visits = _resistance_to(spread, me, goals)
        most = max(most, visits)
    return float(most)


def _resistance_to(spread: FloatArray, me: int, goals: IntArray) -> float:
    """Return the resistance between a node and some others that are one; ``spread`` inverts the Laplacian."""
    first, *others = goals.tolist()
    near = [me, *others]
    potential = spread[np.ix_(near, near)] - spread[near, first][:, None] - spread[first, near] + spread[first, first]
    if not others:
        return float(potential[0, 0])
    return float(potential[0, 0] - potential[0, 1:] @ np.linalg.solve(potential[1:, 1:], potential[1:, 0]))


def _count_straight_visits(laplacian: FloatArray, me: int, goals: set[int]) -> float:
    """Return how often, on average, a non-backtracking walk that came to ``me`` is there before it meets a goal."""
    near = [[int(b) for b in np.flatnonzero(row < 0)] for row in laplacian]
    arcs = [(a, b) for a, row in enumerate(near) for b in row if not {a, b} & goals]
    place = {arc: number for number, arc in enumerate(arcs)}
    stays = np.eye(len(arcs))
    for (a, b), number in place.items():
        onward = [c for c in near[b] if c != a] or near[b]
        for c in onward:
            if c not in goals:
                stays[number, place[b, c]] -= 1 / len(onward)
    own = np.array([float(b == me) for _, b in arcs])
    return float(np.linalg.solve(stays, own)[own > 0].max(initial=1.0))


def _find_least(alarms: Callable[[IntArray], FloatArray], alarm_hops: float) -> int:
    # Every look costs a pass over all nodes, however many times it asks for: bracket, then cut the bracket finely.
    powers = 2 ** np.arange(1, 50)
    low = 1
    high = int(powers[int(np.argmax(alarms(powers) * alarm_hops < 1))])
    while high - low > 1:
        cuts = np.unique(np.linspace(low, high, 65).astype(np.int64))
        first = int(np.argmax(alarms(cuts) * alarm_hops < 1))
        low, high = int(cuts[max(first - 1, 0)]), int(cuts[first])
    return high
