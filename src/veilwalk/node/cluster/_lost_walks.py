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
    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph

#: A member that is away for less than this, with its disk and a walk on it, costs time and nothing else.
AWAY_S = 60.0
# So many neighbours may be stalled one after the other before a walk is believed lost.
_STALLED = 2
# What nobody can open is waited for longer than what nobody has seen: a new walk must be opened by all before that.
_STARVE_FACTOR = 1.5


def late_on_regular(n_nodes: int, degree: int, *, alarm_hops: float) -> float:
    """Return after how many hops a node of a random regular graph is late: (N/c') ln(X c').

    A node's age passes t on about a share c' e^(-c' t / N) of the hops, c' = (c - 2)/(c - 1) being the chance that a
    walk leaves for good rather than straight back; one such passing in ``alarm_hops`` = X hops is asked for.
    """
    validate.integer(n_nodes=n_nodes, degree=degree)
    validate.at_least(3, n_nodes=n_nodes, degree=degree)
    escape = (degree - 2) / (degree - 1)
    validate.more_than(1 / escape, alarm_hops=alarm_hops)
    return n_nodes / escape * math.log(alarm_hops * escape)


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
    if scheme.recipients > 1:
        from veilwalk.node.cluster._gaps import simulated_waits

        waits = simulated_waits(scheme, seed=1)
        if waits is not None:
            found, margin = waits.late_after(alarm_hops)
            return math.ceil(found + margin)
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
