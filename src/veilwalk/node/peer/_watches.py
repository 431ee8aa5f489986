"""What a node notices by its own clock: that walks are lost, what its neighbours do, which bytes come too often.

A walk is lost if nothing has come by for longer than chance explains. Neighbours are weighed by how long they take,
whether walks end with them, and how much they bring.

A walk that goes to a slow neighbour waits, and one that goes to a neighbour that swallows it is lost. A neighbour that
cost this node time is avoided for twenty times as long as it cost: it is never given up, so one that mends is noticed.
Where no message came for long, the walk ended with the last neighbour that was handed one, or behind it. An honest one
soon brings a few messages and is cleared; one that only makes a walk now and then is not. A walk goes there and back
between two honest neighbours equally often, but for chance: one that brings far more than it is handed makes messages
itself, and may bring them only slowly.

Junk is what comes again and again: what nobody can open walks for ever, and must not crowd out what somebody can. A
model is sealed anew at its destination, so an honest ciphertext comes by a node a few times only: after each visit the
walk meets the destination before it is back with a chance of at least 1/(degree x effective resistance), for every
destination. Bytes that come more often than chance explains wait here, longer every time: an honest message that was
very unlucky is late, not lost. Where a neighbour brings more than it may they are thrown away, before others; and so
are bytes that were first seen so long ago that nobody waits for their walk any more. Whether they opened here once
makes no difference: a neighbour that brings old bytes again must not see whose they were.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from veilwalk.node.peer._routing import OsDraws

# Of all nodes the first that is late makes a walk; a quarter of a node more does so before it has seen that one.
_FIRST_BY = 4
# Hops whose time is remembered, and how much slower than expected they may be.
_HOPS = 32
_SLOWEST = 4.0
_UNDER_WAY = 256
# Elsewhere hops may be so many times as quick.
_QUICKER = 2.0
# Nobody is without an opening for longer than this many times the mean, save as often as false alarms are allowed.
_OPENINGS = 15
# A node that slept for this share of its patience has not been waiting, but away.
_AWAY = 0.25


def spread_s(n_nodes: int, until_seen_s: float) -> float:
    """Return by how long, on average, each of so many nodes puts an alarm off, so that as a rule only one gives it.

    A new walk is seen by the others after ``until_seen_s`` on average. When all are late together the first alarm
    comes after a share 1/n of what is returned, and until the others have seen its walk they give
    n x until_seen_s / spread more: a quarter of one.
    """
    return _FIRST_BY * n_nodes * until_seen_s


class Pace:
    """How long hops really take here, beside what the run's rules expect: nodes count hops they do not see by time.

    The middle of the last hops, so that a few neighbours that dawdle, or a member that wants others to wait for ever,
    change nothing; and never more than four times what is expected: a flood makes hops slow, too.
    """

    def __init__(self, step_s: float, *, clock: Callable[[], float] | None = None) -> None:
        self._step_s = step_s
        self._clock = clock or time.monotonic
        self._last: deque[float] = deque(maxlen=_HOPS)
        self._came: dict[int, float] = {}

    def on_arrival(self, number: int) -> None:
        """Note that a message came."""
        if len(self._came) >= _UNDER_WAY:
            # Those that were thrown away.
            self._came.clear()
        self._came[number] = self._clock()

    def on_departure(self, number: int) -> None:
        """Note that the next node has it."""
        came = self._came.pop(number, None)
        if came is not None:
            self._last.append(self._clock() - came)

    @property
    def least_hop_s(self) -> float | None:
        """At least how long a hop takes, by those that were seen here; None before there were any."""
        return statistics.median(self._last) / _QUICKER if self._last else None

    @property
    def factor(self) -> float:
        """How many times longer than expected hops take; 1 where they are quicker, or too few were seen."""
        if len(self._last) < _HOPS // 2:
            return 1.0
        return min(max(1.0, statistics.median(self._last) / self._step_s), _SLOWEST)


class AgeWatch:
    """How long ago something was last seen here, and whether that is too long.

    The moment of an alarm is put off by a random time, so that the first message after a silence does not tell its
    maker by its timing, and so that not all nodes that wait wake up together.
    """

    def __init__(
        self,
        late_s: float,
        *,
        spread: float,
        pace: Pace | None = None,
        draws: OsDraws | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.late_s = late_s
        self._spread = spread
        #: How long hops take, by which lateness is counted.
        self.pace = pace or Pace(1.0)
        self._draws = draws or OsDraws()
        self._clock = clock or time.monotonic
        self.reset()

    def reset(self) -> None:
        """Note that it was seen now, or could not have been seen until now."""
        self._since = self._clock()
        self._put_off = -math.log1p(-self._draws.unit()) * self._spread

    def exclude_downtime(self, seconds: float) -> None:
        """Note that this process stood still for so long: it could see nothing meanwhile."""
        if seconds > _AWAY * self.late_s:
            self.reset()
        else:
            self._since += seconds

    @property
    def is_late(self) -> bool:
        """Whether it is time to make a walk."""
        return self._clock() - self._since >= (self.late_s + self._put_off) * self.pace.factor


class Watches:
    """Notices that walks are lost: no message comes by, or none of a lane opens here.

    Relays do not see lanes, so all messages are one sign of life. A lane that is lost while others walk is noticed by
    those it no longer comes to: each lane's openings are as far apart as those of a run's only walk.
    """

    def __init__(
        self,
        late_s: float,
        starve_s: float,
        *,
        n_nodes: int,
        step_s: float,
        walks: int = 1,
        draws: OsDraws | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        #: How long hops take here.
        self.pace = Pace(step_s, clock=clock)
        #: How long nothing may come by.
        self.late_s = late_s
        #: The numbers of all walks: one has its lanes after one another.
        self.lanes = tuple(range(walks))
        watch = partial(AgeWatch, pace=self.pace, draws=draws, clock=clock)
        # A walk comes by once in as many hops as there are members.
        self._age = watch(late_s, spread=spread_s(n_nodes, n_nodes * step_s))
        self._hunger = [watch(starve_s, spread=spread_s(n_nodes, starve_s / _OPENINGS)) for _ in range(walks)]

    @property
    def is_quiet(self) -> bool:
        """Whether no message has come by for too long."""
        return self._age.is_late

    @property
    def lost(self) -> tuple[int, ...]:
        """The walks that seem lost."""
        return self.lanes if self.is_quiet else tuple(lane for lane in self.lanes if self._hunger[lane].is_late)

    def on_arrival(self) -> None:
        """Note that a message came by, or is here."""
        self._age.reset()

    def on_opening(self, lane: int) -> None:
        """Note that a message of a lane opened here, or that a walk of it was made here."""
        self._hunger[lane % len(self.lanes)].reset()

    def exclude_downtime(self, seconds: float) -> None:
        """Note that this process stood still for so long: it could see nothing meanwhile."""
        for watch in (self._age, *self._hunger):
            watch.exclude_downtime(seconds)


# ---- neighbours -----------------------------------------------------------------------------------------------------

# Hand-overs that are remembered of each neighbour.
_TIMES = 8
# A neighbour may take so many times as long as the others, and so long in any case.
_SLOW, _LEAST_SLOW_S = 8.0, 0.5
# It is avoided for so many times as long as it cost; where a walk ended with it, until it has brought so many messages.
_AVOIDED, _CLEARED_BY = 20.0, 5
# A neighbour may bring so many messages more than it was handed, and so many standard deviations of chance besides.
_CREDIT, _DEVIATIONS = 12, 5.0
# One that brings more may bring one in so many times the mean time between two messages of a link.
_SLOWED = 10.0
# An honest ciphertext is delayed by a node with this probability at most.
_RARE = 1e-4
_REMEMBERED = 4096
_LONGEST_PAUSES = 200


@dataclass
class Neighbour:
    """What one neighbour did lately."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    handed: int = 0
    brought: int = 0
    slow_until: float = -math.inf
    silent_until: float = -math.inf
    owes: int = 0
    may_bring_at: float = -math.inf


class NeighbourWeights:
    """Which neighbours are avoided now, and which may bring messages only slowly.

    Args:
        patience_s: Where no message came for so long, a walk was lost or held up.
        link_s: Mean time between two messages on a link of an honest network.
        walks: How many walks the run has.
        pace: How long hops take here: where they are slow, so is a walk that is not lost.
        clock: Tells the time in seconds.
    """

    def __init__(
        self,
        *,
        patience_s: float = math.inf,
        link_s: float = 1.0,
        walks: int = 1,
        pace: Pace | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._patience_s, self._link_s, self._pace = patience_s, link_s, pace or Pace(1.0)
        self._clock = clock or time.monotonic
        self._of: dict[str, Neighbour] = {}
        self._last_handed: deque[str] = deque(maxlen=walks)
        self._last_came = self._clock()

    def on_handed(self, peer: str, seconds: float, *, is_junk: bool = False) -> None:
        """Note that a neighbour took a message, in that time from the offer to its answer."""
        neighbour = self._neighbour(peer)
        if not is_junk:
            neighbour.handed += 1
            self._last_handed.append(peer)
        others = [statistics.median(other.times) for name, other in self._of.items() if name != peer and other.times]
        neighbour.times.append(seconds)
        if others and seconds > max(_SLOW * statistics.median(others), _LEAST_SLOW_S):
            neighbour.slow_until = self._clock() + _AVOIDED * seconds

    def on_brought(self, peer: str, *, is_junk: bool) -> None:
        """Note that a neighbour brought a message; junk is no sign of life."""
        neighbour = self._neighbour(peer)
        neighbour.may_bring_at = self._clock() + _SLOWED * self._link_s
        if is_junk:
            return
        neighbour.brought += 1
        self.on_silence_over()
        neighbour.owes = max(0, neighbour.owes - 1)

    def on_silence_over(self) -> None:
        """Note that a message is here, or that a walk is made here: where none was for long, see who had the last."""
        now = self._clock()
        silence_s, self._last_came = now - self._last_came, now
        if silence_s > self._patience_s * self._pace.factor:
            for name in self._last_handed:
                suspect = self._neighbour(name)
                suspect.silent_until, suspect.owes = now + _AVOIDED * silence_s, _CLEARED_BY

    def exclude_downtime(self, seconds: float) -> None:
        """Note that this node stood still, or had no neighbour, for so long: nothing could come meanwhile."""
        self._last_came = min(self._last_came + max(0.0, seconds), self._clock())

    def select_avoided(self, peers: Iterable[str]) -> frozenset[str]:
        """Return which of some neighbours get no message now: never all, but all except the one that owes least."""
        now, candidates = self._clock(), {peer: self._neighbour(peer) for peer in peers}
        avoided = {
            peer
            for peer, neighbour in candidates.items()
            if now < neighbour.slow_until or (neighbour.owes > 0 and now < neighbour.silent_until)
        }
        if avoided and len(avoided) == len(candidates):
            avoided.discard(min(avoided, key=lambda peer: (candidates[peer].owes, candidates[peer].slow_until)))
        return frozenset(avoided)

    def describe(self, peer: str) -> dict[str, Any]:
        """Return what a neighbour did since the start, and why it is avoided or slowed now."""
        neighbour, now = self._neighbour(peer), self._clock()
        remarks = {
            "slow": now < neighbour.slow_until,
            "a walk ended with it": neighbour.owes > 0 and now < neighbour.silent_until,
            "brings too much": not self.may_bring(peer),
        }
        return {
            "seconds": statistics.median(neighbour.times) if neighbour.times else None,
            "handed": neighbour.handed,
            "brought": neighbour.brought,
            "remark": ", ".join(remark for remark, holds in remarks.items() if holds),
        }

    def may_bring(self, peer: str) -> bool:
        """Return whether a neighbour may bring a message now."""
        neighbour = self._neighbour(peer)
        allowed = neighbour.handed + _CREDIT + _DEVIATIONS * math.sqrt(2 * neighbour.handed)
        return neighbour.brought < allowed or self._clock() >= neighbour.may_bring_at

    def _neighbour(self, peer: str) -> Neighbour:
        return self._of.setdefault(peer, Neighbour())


class Visits:
    """How often the same bytes came by, how long they wait for it, and whether they are too old to go on."""

    def __init__(
        self,
        allowed: int,
        *,
        pause_s: float,
        life_s: float = math.inf,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.allowed = allowed
        self._pause_s = pause_s
        self._life_s = life_s
        self._clock = clock or time.monotonic
        self._asleep_s = 0.0
        self._visits: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def visit(self, digest: bytes) -> tuple[float, bool]:
        """Count a visit; return how long it lasts, 0 for as long as chance explains it, and whether it is the last."""
        now = self._clock() - self._asleep_s
        count, first = self._visits.pop(digest, (0, now))
        count += 1
        self._visits[digest] = count, first
        if len(self._visits) > _REMEMBERED:
            self._visits.popitem(last=False)
        if now - first > self._life_s:
            return self._pause_s * _LONGEST_PAUSES, True
        # By the square: what a flood left is at rest within a few rounds, and a message whose only recipient is away
        # for a while comes round again in a fraction of that time.
        return self._pause_s * min(max(0, count - self.allowed) ** 2, _LONGEST_PAUSES), False

    def is_frequent(self, digest: bytes) -> bool:
        """Return whether the same bytes came more often than chance explains."""
        return self._visits.get(digest, (0, 0.0))[0] > self.allowed

    def exclude_downtime(self, seconds: float) -> None:
        """Note that this node stood still, or had no neighbour, for so long: nothing grew older meanwhile."""
        self._asleep_s += max(0.0, seconds)


def allowed_visits(links: int, visits_per_link: float) -> int:
    """Return how often a walk may come to a node of so many links, save about once in 10,000 walks.

    ``visits_per_link`` is the manifest's; where it is 0 nothing comes too often.
    """
    visits = links * visits_per_link
    if not visits:
        return 10**9
    return 1 if visits <= 1 + 1e-9 else math.ceil(math.log(_RARE) / math.log1p(-1 / visits))
