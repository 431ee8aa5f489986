"""Walks that get lost, and how a node notices by itself: nothing has come by for longer than chance explains.

The rule is Create-If-Late by age alone: a node that has seen no walk for a given time makes one from its own last
model. No walk has a name that relays could read, so the rule needs none. How long to wait follows from the law of the
return time on the very graph: short enough to notice, long enough that false alarms are as rare as asked. A second,
slower rule goes by what a node could open, which garbage cannot imitate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core import validate
from veilwalk.node._draws import Draws, OsDraws

if TYPE_CHECKING:
    from veilwalk.core.arrays import FloatArray, IntArray
    from veilwalk.design import DestinationLaw
    from veilwalk.graphs import Graph
    from veilwalk.node._routing import NodeWalk

_SIMULATED_HOPS = 4_000_000


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


@dataclass(frozen=True, slots=True)
class Lateness:
    """After how many hops without a visit a node believes the walks lost, and how that was found.

    Attributes:
        hops: The hops.
        margin: They include this much for the error of a simulation, a 95 % margin; None where they are exact.
    """

    hops: int
    margin: float | None = None

    def __str__(self) -> str:
        """Return it in words."""
        if self.margin is None:
            return f"{self.hops} hops (exact)"
        return f"{self.hops} hops (simulated; {self.margin:.0f} of them for its error, 95 %)"


def lateness(graph: Graph, *, alarm_hops: float, walk: NodeWalk = "simple", mix: float = 0.0) -> Lateness:
    """Return the least t such that a healthy walk makes less than one false alarm in ``alarm_hops`` hops.

    The walk is at node j a share pi_j of the time, and each stay begins a return, which lasts longer than t with
    probability S_j(t); then j gives a false alarm. So there are sum of pi_j S_j(t) of them a hop. S is exact for the
    simple walk (:func:`veilwalk.chains.return_survival`) and for the non-backtracking one, as a chain on arcs
    (:func:`veilwalk.chains.arc_return_survival`). The least-recent walk remembers too much for a chain: it is played
    for four million hops with a fixed seed, its tail, which is geometric, is drawn out, and a 95 % margin added.
    """
    validate.more_than(1, alarm_hops=alarm_hops)
    if walk == "least-recent":
        from veilwalk.node._memory_gaps import least_recent_gaps

        found, margin = least_recent_gaps(graph, mix=mix, hops=_SIMULATED_HOPS, seed=1).late_after(alarm_hops)
        return Lateness(math.ceil(found + margin), margin)
    return Lateness(_least(_alarms(graph, walk), alarm_hops))


def late_after_hops(graph: Graph, *, alarm_hops: float, walk: NodeWalk = "simple", mix: float = 0.0) -> int:
    """Return the hops of :func:`lateness`."""
    return lateness(graph, alarm_hops=alarm_hops, walk=walk, mix=mix).hops


def _alarms(graph: Graph, walk: NodeWalk) -> Callable[[IntArray], FloatArray]:
    """Return the exact rate of false alarms, per hop, as a function of the waiting time."""
    from veilwalk.chains import ArcChain, WalkChain, arc_return_survival, return_survival

    # The same for both: every arc of the non-backtracking walk is as likely as any other.
    share = graph.degrees / graph.degrees.sum()
    if walk == "simple":
        chain = WalkChain.simple(graph)
        return lambda times: np.asarray(return_survival(chain, times) @ share)
    arcs = ArcChain(graph)
    return lambda times: np.asarray(arc_return_survival(arcs, times) @ share)


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


def starved_after_hops(law: DestinationLaw, *, mean_hops: float, alarm_hops: float) -> int:
    """Return for how many hops a node may open nothing before it makes a walk, with so many hops between false alarms.

    Age alone is fooled by what nobody can open: garbage, or a model sealed for a member that has left, walks on and
    looks like life. But every node is a destination now and then: node j of one update in 1/prior_j, each taking
    ``mean_hops``, so its waits are nearly exponential. Estimated as such: alarms per hop are the sum over nodes of
    r_j e^(-r_j t), r_j = prior_j / mean_hops.
    """
    validate.more_than(1, alarm_hops=alarm_hops)
    validate.more_than(0, mean_hops=mean_hops)
    rates = law.source_prior[law.source_prior > 0] / mean_hops
    low, high = 0.0, 1.0
    while float(np.sum(rates * np.exp(-rates * high))) * alarm_hops >= 1:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) / 2
        late = float(np.sum(rates * np.exp(-rates * middle))) * alarm_hops < 1
        low, high = (low, middle) if late else (middle, high)
    return math.ceil(high)


class AgeWatch:
    """How long ago something was last seen here, and whether that is too long.

    The moment of an alarm is put off by a random time, so that the first message after a silence does not tell its
    maker by its timing, and so that not all nodes that wait wake up together.
    """

    def __init__(
        self, late_s: float, *, draws: Draws | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._late_s = late_s
        self._draws = draws or OsDraws()
        self._clock = clock
        self.seen()

    def seen(self) -> None:
        """Note that it was seen now."""
        # Exponential with a tenth of the waiting time as its mean.
        put_off = -math.log1p(-self._draws.unit()) * self._late_s / 10
        self._due = self._clock() + self._late_s + put_off

    @property
    def is_late(self) -> bool:
        """Whether it is time to make a walk."""
        return self._clock() >= self._due
