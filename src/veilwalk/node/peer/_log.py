"""Structured logs: one event a line, on standard error, as JSON or as text.

Only what concerns the process and its links is ever logged. What happens to a message is counted, not logged, and a
line carries no time: a log that says when a node trained would say who made which update.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
from collections import Counter, defaultdict
from functools import partial
from typing import TextIO

from veilwalk.core.errors import InvalidParameterError
from veilwalk.node.link import TokenBucket

#: From what says least to what matters most.
LEVELS = ("info", "warning", "error")
FORMATS = ("json", "text")
# Events that are not as they should be; all others are information.
_LEVEL_OF = {
    "asyncio": "warning",
    "law_lacks_members": "warning",
    "link_down": "warning",
    "link_fault": "error",
    "roster_refused": "warning",
    "set_aside": "error",
    "storage_damaged": "error",
    "storage_trouble": "error",
    "turned_away": "warning",
    "two_nodes": "error",
}

# Anybody who reaches the port can make a node write lines.
_LINES_PER_S, _LINES_AT_ONCE = 0.2, 50
# The first, one that was lost, one that was put back: nobody has so many in the life of a process.
_MANY_DISKS = 6
_MINUTE_S = 60.0
_dice = secrets.SystemRandom()


class Log:
    """Writes events of a level or above; those below are only counted.

    Attributes:
        counts: How often each event was, written or not.
    """

    def __init__(self, stream: TextIO | None = None, *, level: str = "info", form: str = "json") -> None:
        check_log(level, form)
        self._stream = stream
        self._least = LEVELS.index(level)
        self._form = form
        self.counts: Counter[str] = Counter()

    def event(self, name: str, **fields: str | float | bool) -> None:
        """Write one event."""
        self.counts[name] += 1
        level = _LEVEL_OF.get(name, "info")
        if LEVELS.index(level) < self._least:
            return
        if self._form == "json":
            line = json.dumps({"event": name, "level": level, **fields})
        else:
            # Values may come from others: each on its own line would let them write events.
            line = " ".join([f"{level}: {name}", *(f"{key}={json.dumps(value)}" for key, value in fields.items())])
        # A disk that is full, or a pipe that nobody reads any more, takes no line: no reason to end a node.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self._stream or sys.stderr, flush=True)


def check_log(level: str, form: str) -> None:
    """Refuse a level or a format that there is not."""
    if level not in LEVELS:
        raise InvalidParameterError("log_level", level, f"one of {', '.join(LEVELS)}")
    if form not in FORMATS:
        raise InvalidParameterError("log", form, f"one of {', '.join(FORMATS)}")


class Incidents:
    """Counts what goes wrong around one node, and logs it no more often than a stranger may make a node log.

    Attributes:
        events: How often each kind was.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lines = TokenBucket(_LINES_PER_S, _LINES_AT_ONCE)
        # Neighbours, too, can make their links come and go as often as they like: so many lines about each.
        self._links: defaultdict[str, TokenBucket] = defaultdict(lambda: TokenBucket(_LINES_PER_S, _LINES_AT_ONCE))
        # Of each neighbour what was said last: why its link is down, or nothing where it is up; why it was sent away.
        self._why_down: dict[str, str] = {}
        self._why_away: dict[str, str] = {}
        self._disks: Counter[str] = Counter()
        self._has_failed = False
        self._ends: dict[int, bytes] = {}
        self.events = {"turned_away": 0, "storage_troubles": 0, "link_losses": 0, "link_faults": 0}

    def turned_away(self, why: str, /, *, peer: str = "") -> None:
        """Note that somebody was turned away; of a neighbour that tries again and again it is said once."""
        self.events["turned_away"] += 1
        if (peer and self._why_away.get(peer) == why) or not self._lines.take_if_any():
            return
        if peer:
            self._why_away[peer] = why
        whose = {"peer": peer} if peer else {}
        self._log.event("turned_away", **whose, why=why, times=self.events["turned_away"])

    def failed(self, error: Exception) -> None:
        """Note that a connection ended by a fault of this node's own; of what it says only its kind is logged."""
        self.events["link_faults"] += 1
        if self._lines.take_if_any():
            self._log.event("link_fault", kind=type(error).__name__, times=self.events["link_faults"])

    def link_up(self, peer: str, protocol: int) -> None:
        """Note that a link came up, and what is spoken on it."""
        self._why_away.pop(peer, None)
        if self._why_down.get(peer) != "":
            self._log.event("link_up", peer=peer, protocol=protocol)
        self._why_down[peer] = ""

    def link_down(self, peer: str, *, was_up: bool, why: str) -> None:
        """Note that a link went down, or is down still."""
        self.events["link_losses"] += was_up
        # Why it is down still is said when that changes: what another run or manifest refuses never comes up at all.
        if (was_up or self._why_down.get(peer) != why) and self._links[peer].take_if_any():
            self._log.event("link_down", peer=peer, why=why)
            self._why_down[peer] = why

    def new_disk(self, peer: str) -> None:
        """Note that a neighbour came with another disk than before; of one that always does, say it once."""
        self._disks[peer] += 1
        if self._disks[peer] == _MANY_DISKS:
            self._log.event(
                "two_nodes", peer=peer, why="it comes with another disk every time: two nodes have its keys"
            )

    def trouble(self, why: str) -> None:
        """Note that the disk failed."""
        self.events["storage_troubles"] += 1
        if self.events["storage_troubles"] == 1 or self.events["storage_troubles"] % 100 == 0:
            self._log.event("storage_trouble", why=why, times=self.events["storage_troubles"])

    def set_aside(self, why: str) -> None:
        """Say once that something could not be worked on: more often, lines would tell when."""
        if not self._has_failed:
            self._has_failed = True
            self._log.event("set_aside", why=why)

    def end_taken(self, lane: int, digest: bytes) -> None:
        """Say, at a random moment, that a walk has ended, or that this node holds another end of it than before.

        Who makes the last update has the finished model first: the moment must not tell.
        """
        event = "end_changed" if lane in self._ends else "ended"
        self._ends[lane] = digest
        say = partial(self._log.event, event, lane=lane, model=digest.hex()[:8])
        asyncio.get_running_loop().call_later(_dice.random() * _MINUTE_S, say)
