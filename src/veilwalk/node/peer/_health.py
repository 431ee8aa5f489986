"""How a node is, looked at on a beat of its own: what an operator must know, and nothing of when it trained."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import SpoolError

if TYPE_CHECKING:
    from veilwalk.node.peer._node import Node, NodeStatistics

BEAT_S = 15.0
_DAY_S = 86400
#: For how long nothing has come: only these are told apart.
QUIET_S = (0, 60, 600, 3600, 6 * 3600, 24 * 3600)
_STUCK_S = 60.0
# Free space is told in such steps, so that it does not tell single messages.
_DISK_STEP = 64 << 20
# So long before its end, and so near to a full disk, somebody must do something; a collector's alarms are the same.
_SOON_DAYS = 14
_LITTLE_BYTES = 2_000_000_000
# Who makes the last update has the finished model first: it is told on the hour only.
_HOUR_S = 3600
# What a node counts of its own trainings tells when they were: its operator is told once a day.
DAILY = {
    "dwell_overruns": "trainings that had outlasted the dwell when the last day began",
    "discarded": "updates, about, that had been lost here with walks when the last day began",
}
_IN_A_DAY = {
    "dwell_overruns": "{} trainings outlasted the dwell on the day before: the dwell is too short for this machine",
    "discarded": "about {} updates were lost here with walks on the day before",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One look at a node.

    Attributes:
        troubles: What is wrong, in words; empty where all is well.
        notes: What will be wrong, or is for one neighbour only, in words.
        roster_days_left: Whole days until the roster ends; negative when it has.
        manifest_days_left: Whole days until the manifest ends; None where it does not.
        quiet_s: Nothing has come from any neighbour for at least so long; in coarse steps.
        stuck: Messages that have waited for one neighbour for more than a minute.
        disk_free_bytes: Free on the disk of the node's state, in coarse steps.
        finished: Whether it had the finished model when the last hour began.
        dwell_overruns: Trainings that had outlasted the dwell when the last day, by UTC, or this process began.
        discarded: Updates, about, that had been lost here with walks by then.
    """

    troubles: tuple[str, ...]
    notes: tuple[str, ...]
    roster_days_left: int
    manifest_days_left: int | None
    quiet_s: int
    stuck: int
    disk_free_bytes: int
    finished: bool
    dwell_overruns: int
    discarded: int


@dataclass
class HealthWatch:
    """Looks at a node again and again."""

    node: Node
    state: Path
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    _taken: int = -1
    _since: float = 0.0
    _pinned: dict[tuple[int, str], float] = field(default_factory=dict)
    _failures: int = 0
    _storage_fails: bool = False
    _hour: int = -1
    _finished: bool = False
    _day: int = -1
    # By the beginning of this day and of the one before.
    _counted: tuple[dict[str, int], dict[str, int]] = ({}, {})

    async def beat(self) -> None:
        """Look: to be called every :data:`BEAT_S`."""
        now, storage = self.clock(), self.node.scheduler.store
        tables = self.node.scheduler.custody.spool.tables
        failures = self.node.events["storage_troubles"]
        try:
            found: NodeStatistics = await self.node.statistics()
            rows = await storage(tables.messages)
            if self._hour != int(self.now() // _HOUR_S):
                self._hour = int(self.now() // _HOUR_S)
                self._finished = await storage(tables.is_finished)
        except SpoolError:
            self._storage_fails = True
            return
        if self._day != int(self.now() // _DAY_S):
            self._day, counted = int(self.now() // _DAY_S), {name: found.tallies.get(name, 0) for name in DAILY}
            self._counted = counted, self._counted[0] or counted
        self._storage_fails, self._failures = failures > self._failures, failures
        if found.tallies.get("taken", 0) != self._taken:
            self._taken, self._since = found.tallies.get("taken", 0), now
        waiting = {(row.id, row.peer) for row in rows if row.peer is not None}
        self._pinned = {key: self._pinned.get(key, now) for key in waiting}

    def look(self) -> Health:
        """Return how the node is, by the last beat."""
        now = self.clock()
        ends = {"roster": self.node.roster.expires, "manifest": self.node.manifest.expires}
        days = {name: (end - self.now()) / _DAY_S for name, end in ends.items() if end is not None}
        stuck = sum(now - since >= _STUCK_S for since in self._pinned.values())
        free, troubles = self._free(), [f"the {name} has ended" for name, left in days.items() if left <= 0]
        notes = [f"the {name} ends in {left:.1f} days" for name, left in days.items() if 0 < left < _SOON_DAYS]
        if not self.node.links_up:
            troubles.append("no neighbour can be reached")
        if self._storage_fails:
            troubles.append("storage fails")
        if free is None or free < _DISK_STEP:
            troubles.append("the disk is full")
        elif free < _LITTLE_BYTES:
            notes.append("the disk is nearly full")
        if stuck:
            notes.append(f"{stuck} messages have waited for one neighbour for more than a minute")
        counted, before = self._counted
        more = {name: count - before[name] for name, count in counted.items()}
        notes += [words.format(more[name]) for name, words in _IN_A_DAY.items() if more.get(name)]
        return Health(
            troubles=tuple(troubles),
            notes=tuple(notes),
            roster_days_left=int(days["roster"] // 1),
            manifest_days_left=int(days["manifest"] // 1) if "manifest" in days else None,
            quiet_s=max(step for step in QUIET_S if now - self._since >= step),
            stuck=stuck,
            disk_free_bytes=(free or 0) // _DISK_STEP * _DISK_STEP,
            finished=self._finished,
            **{name: counted.get(name, 0) for name in DAILY},
        )

    def _free(self) -> int | None:
        try:
            return shutil.disk_usage(self.state).free
        except OSError:
            return None
