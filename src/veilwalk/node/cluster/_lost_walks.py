"""Walks that get lost, and how a node notices by itself: nothing has come by for longer than chance explains.

The rule is Create-If-Late by age alone: a node that has seen no walk for a given time makes one from its own last
model. No walk has a name that relays could read, so the rule needs none. How long to wait follows from the law of the
return time on the very graph: short enough to notice, long enough that false alarms are as rare as asked. A second,
slower rule goes by what a node could open, which garbage cannot imitate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core import validate
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.node.link import Limits

if TYPE_CHECKING:
    import numpy.typing as npt

    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph

#: A member that is away for less than this, with its disk and a walk on it, costs time and nothing else.
AWAY_S = 60.0
# So many neighbours may be stalled one after the other before a walk is believed lost.
_STALLED = 2
# What nobody can open is waited for longer than what nobody has seen: a new walk must be opened by all before that.
_STARVE_FACTOR = 1.5
# Nodes of the largest network whose Laplacian is inverted, which takes seconds; directed edges of the largest whose
# non-backtracking walk is solved for from every node.
_MOST_NODES, _MOST_ARCS = 4000, 400
_GROUPS = 16
# Student's t with 15 degrees of freedom: 95 % on both sides.
_STUDENT = 2.131
# The tail is drawn through the times that so many gaps exceed: enough to be steady, rare enough to be the tail.
_FAR_GAPS, _NEAR_GAPS = 200, 4000
# A lane plays so many mean waits, so that few are cut off at its end; waits are counted in so many parts of the mean.
_LANE_WAITS, _PARTS = 200, 100
_MOST_PLAYED = 4_000_000


def late_after_hops(graph: Graph, *, alarm_hops: float, walk: Walk = SIMPLE) -> int:
    """Return the least t such that a healthy walk makes less than one false alarm in ``alarm_hops`` hops.

    The walk is at node j a share pi_j of the time, and each stay begins a return, which lasts longer than t with
    probability S_j(t); then j gives a false alarm. So there are sum of pi_j S_j(t) of them a hop, exactly.
    """
    validate.more_than(1, alarm_hops=alarm_hops)
    from veilwalk.chains import chain_of

    chain = chain_of(graph, walk)
    return _least(lambda times: np.asarray(chain.return_survival(times) @ chain.node_shares), alarm_hops)


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWalkRules:
    """When walks are believed lost.

    Attributes:
        walk_hops: Hops that the walk itself needs (:func:`late_after_hops`).
        late_hops: Hops without a visit, with time for outages and stalled neighbours.
        starve_hops: Hops without an opening, likewise.
        step_s: Seconds a hop takes.
    """

    walk_hops: int
    late_hops: int
    starve_hops: int
    step_s: float

    def __str__(self) -> str:
        """Return them in words."""
        late, starve = (f"{hops} hops = {hops * self.step_s:.0f} s" for hops in (self.late_hops, self.starve_hops))
        return f"{late} without a visit (the walk alone: {self.walk_hops} hops, exact), or {starve} without an opening"


def lost_walk_rules(
    scheme: Scheme, *, alarm_hops: float, step_s: float, model_bytes: int, away_s: float = AWAY_S
) -> LostWalkRules:
    """Return when walks of ``scheme`` are believed lost, where a hop takes ``step_s``.

    Not before chance is ruled out; nor before a member that was away for ``away_s`` with the walk in its keeping is
    back and stalled neighbours were given up: a walk that is made too early costs the updates of one of the two. With
    ``away_s`` = 0 chance alone counts: walks that somebody swallows are made again sooner, and outages cost updates.

    However many walks a run has, each goes its way as a single one does: waits between two openings of one of them are
    counted in hops of that one, and have the same law; and false alarms are as rare a hop, whosever hop it is. Visits
    of all come more often than those of one, but only until the others have ended.
    """
    validate.at_least(0, away_s=away_s)
    patience = Limits()
    walk_hops = late_after_hops(scheme.graph, alarm_hops=alarm_hops, walk=scheme.walk)
    least_s = max(away_s, _STALLED * (patience.pin_s + patience.transfer_s(model_bytes))) if away_s else 0.0
    late_hops = max(walk_hops, math.ceil(least_s / step_s))
    starve_hops = max(starved_after_hops(scheme, alarm_hops=alarm_hops), math.ceil(_STARVE_FACTOR * late_hops))
    return LostWalkRules(walk_hops=walk_hops, late_hops=late_hops, starve_hops=starve_hops, step_s=step_s)


def _least(alarms: Callable[[IntArray], FloatArray], alarm_hops: float) -> int:
    # Every look costs a pass over all nodes, however many times it asks for: bracket, then cut the bracket finely.
    powers = 2 ** np.arange(1, 50)
    low = 1
    high = int(powers[int(np.argmax(alarms(powers) * alarm_hops < 1))])
    while high - low > 1:
        cuts = np.unique(np.linspace(low, high, 65).astype(np.int64))
        first = int(np.argmax(alarms(cuts) * alarm_hops < 1))
        low, high = int(cuts[max(first - 1, 0)]), int(cuts[first])
    return high


def starved_after_hops(scheme: Scheme, *, alarm_hops: float) -> int:
    """Return for how many hops a node may open nothing before it makes a walk, with so many hops between false alarms.

    Age alone is fooled by what nobody can open: garbage, or a model sealed for a member that has left, walks on and
    looks like life. But every node opens something now and then: node j makes one update in 1/prior_j. With one
    recipient its waits are nearly exponential, and estimated as such: alarms per hop are the sum over nodes of
    r_j e^(-r_j t), r_j = prior_j / mean hops. With several the protocol is played, the tail of the waits, which is
    geometric, is drawn out, and a 95 % margin added; where the network is too large for that, as with one.
    """
    validate.more_than(1, alarm_hops=alarm_hops)
    if not scheme.has_exact_law:
        waits = simulated_waits(scheme, seed=1)
        if waits is not None:
            late, margin = waits.late_after(alarm_hops)
            return math.ceil(late + margin)
    prior = scheme.source_prior
    rates = prior[prior > 0] / scheme.price.hops
    low, high = 0.0, 1.0
    while float(np.sum(rates * np.exp(-rates * high))) * alarm_hops >= 1:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) / 2
        late = float(np.sum(rates * np.exp(-rates * middle))) * alarm_hops < 1
        low, high = (low, middle) if late else (middle, high)
    return math.ceil(high)


# ---- visits --------------------------------------------------------------------------------------------------------


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


# ---- simulated waits -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Gaps:
    """Gaps, counted: ``counts[g, t]`` lasted t times ``unit`` hops in group g of ``hops[g]`` hops."""

    counts: IntArray
    hops: FloatArray
    unit: int = 1

    def late_after(self, alarm_hops: float) -> tuple[float, float]:
        """Return after how many hops fewer than one gap in ``alarm_hops`` hops is still open, and the 95 % margin."""
        every = np.ones(len(self.hops), dtype=bool)
        late = self._late_after(every, alarm_hops)
        without = [self._late_after(every & (np.arange(len(every)) != left), alarm_hops) for left in range(len(every))]
        # The jackknife: groups are independent.
        spread = math.sqrt((len(without) - 1) * float(np.var(without)))
        return self.unit * late, self.unit * _STUDENT * spread

    def alarms(self, late: float) -> float:
        """Return how many gaps last longer than ``late``, per hop."""
        return float(self.counts[:, math.floor(late / self.unit) + 1 :].sum() / self.hops.sum())

    def _late_after(self, groups: npt.NDArray[np.bool_], alarm_hops: float) -> float:
        # longer[t]: gaps of more than t hops.
        longer = self.counts[groups].sum(axis=0)[::-1].cumsum()[::-1]
        longer = np.append(longer[1:], 0)
        rare = longer * alarm_hops < self.hops[groups].sum()
        far, near = (int(np.flatnonzero(longer >= count)[-1]) for count in (_FAR_GAPS, _NEAR_GAPS))
        if bool(rare[far]) or near >= far:
            return float(np.argmax(rare))
        slope = math.log(longer[near] / longer[far]) / (far - near)
        return far + math.log(longer[far] * alarm_hops / self.hops[groups].sum()) / slope


def simulated_waits(scheme: Scheme, *, seed: int) -> Gaps | None:
    """Play the protocol and count the hops between two openings by the same node; None where that would take long."""
    updates = max(_GROUPS * _LANE_WAITS * scheme.graph.n_nodes, 50 * _NEAR_GAPS)
    if updates > _MOST_PLAYED:
        return None
    unit = max(1, math.floor(scheme.price.hops * scheme.graph.n_nodes / _PARTS))
    deliveries = np.concatenate(list(scheme.iter_updates(updates=updates, seed=seed, replicas=_GROUPS)))
    histograms = []
    hops = np.zeros(_GROUPS)
    for group in range(_GROUPS):
        lane = deliveries[deliveries["replica"] == group]
        hops[group] = lane["clock"].max() - lane["clock"].min()
        # Openings by one node side by side, in the order of their times.
        lane = lane[np.lexsort((lane["clock"], lane["destination"]))]
        again = lane["destination"][1:] == lane["destination"][:-1]
        histograms.append(np.bincount(np.diff(lane["clock"])[again] // unit))
    longest = max(len(counts) for counts in histograms)
    return Gaps(np.array([np.pad(counts, (0, longest - len(counts))) for counts in histograms]), hops, unit)
