"""How a node notices that walks are lost: nothing has come by for longer than chance explains."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable
from functools import partial

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
        #: The numbers of all lanes.
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
        """The lanes that seem lost."""
        return self.lanes if self.is_quiet else tuple(lane for lane in self.lanes if self._hunger[lane].is_late)

    def on_arrival(self) -> None:
        """Note that a message came by, or is here."""
        self._age.reset()

    def on_opening(self, lane: int) -> None:
        """Note that a message of a lane opened here, or that a walk of it was made here."""
        self._hunger[lane].reset()

    def exclude_downtime(self, seconds: float) -> None:
        """Note that this process stood still for so long: it could see nothing meanwhile."""
        for watch in (self._age, *self._hunger):
            watch.exclude_downtime(seconds)
