"""Tells a node's operator its numbers and events: one table that ``/metrics``, ``status`` and pages read, and the log.

Metrics are scraped with the time, and often collected in one place. So a number is public only if it says nothing of
when or whether the node trained: what is counted of it is what relays do alike, and times and sizes are in coarse
steps. All others are read from the node's own folder.

Logs are one event a line, on standard error, as JSON or as text. Only what concerns the process and its links is ever
logged. What happens to a message is counted, not logged, and a line carries no time: a log that says when a node
trained would say who made which update.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import secrets
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from veilwalk.core.errors import InvalidParameterError, RecordError, SpoolError, TransportError
from veilwalk.core.files import name_os_errors
from veilwalk.core.records import write_atomically
from veilwalk.node.link import TokenBucket
from veilwalk.node.members import canonical_json, parse_canonical, read_bounded

if TYPE_CHECKING:
    from veilwalk.node.peer._node import Node
    from veilwalk.node.peer._process import NodeProcess

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
# The maker of the last update has the finished model first: so it is told on the hour only.
_HOUR_S = 3600
_NEIGHBOURS, _NEIGHBOURS_LIMIT = "neighbours.json", 1 << 20
_REQUEST_BYTES = 2048
_REQUEST_S = 5.0
# Served at once; for one more the first has to go. A stranger must not take the file handles that the run needs.
_MOST_REQUESTS = 16


# ---- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a node.

    Attributes:
        name: As it is counted, and in ``/metrics`` with the prefix ``veilwalk_``.
        about: What it counts.
        source: ``tally``, on disk; ``event``, since the start; ``log``, lines of a kind; ``gauge``, at this moment.
        is_public: Whether it is in ``/metrics``.
    """

    name: str
    about: str
    source: str
    is_public: bool = True

    def lines(self, value: int) -> list[str]:
        """Return it as Prometheus reads it."""
        kind = "gauge" if self.source == "gauge" else "counter"
        name = f"veilwalk_{self.name}" + ("_total" if kind == "counter" else "")
        return [f"# HELP {name} {self.about}", f"# TYPE {name} {kind}", f"{name} {value}"]


def _declare(source: str, *, is_public: bool = True, **metrics: str) -> list[Metric]:
    return [Metric(name, about, source, is_public) for name, about in metrics.items()]


#: Every number of a node, in the order in which they are shown.
METRICS = (
    *_declare(
        "tally",
        taken="messages taken from neighbours",
        hops="messages handed on",
        rerouted="messages sent another way because a neighbour was silent",
        expired="messages thrown away because their epoch was over",
        crowded_out="messages thrown away because a neighbour brought more than it may",
        damaged="stored files found damaged",
        rested="messages that came too often, and waited",
        outlived="messages thrown away because they were too old to be waited for",
    ),
    *_declare(
        "tally",
        is_public=False,
        updates="updates made",
        turns="models that came here to be trained",
        started="walks of the run's beginning made",
        created="walks made in the place of lost ones",
        merged="walks that became one with a newer one",
        retired="walks ended here because newer ones are on their way",
        forks="walks ended here because they had been made twice",
        duplicates="messages that had been opened before",
        refused="models refused",
        passed_on="models sealed again untrained: by chance, by doubt, or as this node has made its share",
        disks_lost="disks lost or put back: this node counts as one that has made its share",
        set_aside="messages that could not be worked on",
        discarded="updates, about, that were lost here with walks",
        diverged="updates given up because the model diverged",
        learner_failures="updates given up because the learner failed",
        out_of_time="updates given up because they took too long",
        dwell_overruns="trainings that outlasted the dwell",
        ends="ends of walks taken",
        ends_changed="ends of walks exchanged for others",
        unbelieved="ends of walks not believed",
        farewells="finished models handed to neighbours",
    ),
    *_declare(
        "event",
        turned_away="connections not accepted",
        storage_troubles="times the disk failed",
        link_losses="links that went down",
        link_faults="connections ended by a fault of this node's own",
    ),
    *_declare(
        "log",
        roster_refused="rosters or manifests put in place and not followed",
        storage_damaged="times the database was found damaged, and set aside",
    ),
    *_declare(
        "gauge",
        roster_days_left="whole days until the roster ends",
        manifest_days_left="whole days until the manifest ends, where it does",
        quiet_s="nothing has come from a neighbour for at least so many seconds, in coarse steps",
        stuck="messages that have waited for one neighbour for more than a minute",
        disk_free_bytes="free on the disk of the state, in coarse steps",
        finished="1 if the node had the finished model when the last hour began",
        # What a node counts of its own trainings tells when they were: its operator is told once a day.
        dwell_overruns="trainings that had outlasted the dwell when the last day began",
        discarded="updates, about, that had been lost here with walks when the last day began",
        healthy="1 if /healthz is ok",
        in_custody="messages held or being handed on",
        links_up="neighbours connected",
        roster_version="version of the roster held",
        memory_peak_bytes="most memory used so far",
    ),
)
#: Of these two the operator is told what was counted on the day before.
_DAILY = {
    "dwell_overruns": "{} trainings outlasted the dwell on the day before: the dwell is too short for this machine",
    "discarded": "about {} updates were lost here with walks on the day before",
}


def describe_tallies(tallies: Mapping[str, int], *, with_own: bool) -> list[tuple[Metric, int]]:
    """Return what a node has counted on disk; ``with_own``: also what says if it trained, where that was counted."""
    counted = [(metric, tallies.get(metric.name, 0)) for metric in METRICS if metric.source == "tally"]
    return [(metric, count) for metric, count in counted if metric.is_public or (with_own and count)]


# ---- health --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a node is.

    Attributes:
        troubles: What is wrong, in words; empty where all is well.
        notes: What will be wrong, or is for one neighbour only, in words.
        gauges: Numbers of the moment, by the names of :data:`METRICS`.
    """

    troubles: tuple[str, ...]
    notes: tuple[str, ...]
    gauges: Mapping[str, int]


@dataclass
class HealthWatch:
    """Looks at a node on a beat of its own."""

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
    _neighbours: bytes = b""

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            # A node may stop while it is looked at.
            with contextlib.suppress(RuntimeError):
                await self.beat()
                await asyncio.to_thread(self._write_neighbours)
            await asyncio.sleep(BEAT_S)

    async def beat(self) -> None:
        """Look once."""
        now, storage = self.clock(), self.node.scheduler.store
        tables = self.node.scheduler.custody.spool.tables
        failures = self.node.events["storage_troubles"]
        try:
            tallies = (await self.node.statistics())["tally"]
            rows = await storage(tables.messages)
            if self._hour != int(self.now() // _HOUR_S):
                self._hour = int(self.now() // _HOUR_S)
                self._finished = await storage(tables.is_finished)
        except SpoolError:
            self._storage_fails = True
            return
        if self._day != int(self.now() // _DAY_S):
            counted = {name: tallies.get(name, 0) for name in _DAILY}
            self._day, self._counted = int(self.now() // _DAY_S), (counted, self._counted[0] or counted)
        self._storage_fails, self._failures = failures > self._failures, failures
        if tallies.get("taken", 0) != self._taken:
            self._taken, self._since = tallies.get("taken", 0), now
        waiting = {(row.id, row.peer) for row in rows if row.peer is not None}
        self._pinned = {key: self._pinned.get(key, now) for key in waiting}

    def describe(self) -> Health:
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
        grown = {name: count - before[name] for name, count in counted.items()}
        notes += [words.format(grown[name]) for name, words in _DAILY.items() if grown.get(name)]
        gauges = {f"{name}_days_left": int(left // 1) for name, left in days.items()} | {
            "quiet_s": max(step for step in QUIET_S if now - self._since >= step),
            "stuck": stuck,
            "disk_free_bytes": (free or 0) // _DISK_STEP * _DISK_STEP,
            "finished": int(self._finished),
            "healthy": int(not troubles),
            **{name: counted.get(name, 0) for name in _DAILY},
        }
        return Health(troubles=tuple(troubles), notes=tuple(notes), gauges=gauges)

    def _free(self) -> int | None:
        try:
            return shutil.disk_usage(self.state).free
        except OSError:
            return None

    def _write_neighbours(self) -> None:
        """Keep what neighbours did lately where ``node status`` reads it; without a time, as all that lies there."""
        data = canonical_json(self.node.describe_neighbours())
        if data != self._neighbours:
            with contextlib.suppress(OSError, RecordError):
                write_atomically(self.state / _NEIGHBOURS, data)
                os.utime(self.state / _NEIGHBOURS, (0, 0))
                self._neighbours = data


def read_neighbours(state: Path) -> dict[str, dict[str, Any]]:
    """Return what a node's neighbours did lately when it last looked: how long each takes, what it brings."""
    path = state / _NEIGHBOURS
    return parse_canonical(read_bounded(path, _NEIGHBOURS_LIMIT), str(path)) if path.exists() else {}


# ---- the server ----------------------------------------------------------------------------------------------------


class MetricsServer:
    """Answers ``/healthz`` and ``/metrics`` over HTTP.

    On loopback requests under another name are refused: a page of somebody else, whose name points at this machine,
    reads nothing.
    """

    def __init__(self, process: NodeProcess) -> None:
        self._process = process
        self._server: asyncio.Server | None = None
        self._asking: dict[asyncio.StreamWriter, None] = {}
        self._is_local = True

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            TransportError: The address cannot be used.
        """
        self._is_local = host in {"127.0.0.1", "::1", "localhost"}
        with name_os_errors(TransportError, f"cannot serve metrics on {host}:{port}"):
            self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES)

    def close(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._asking) >= _MOST_REQUESTS:
            first = next(iter(self._asking))
            del self._asking[first]
            first.transport.abort()
        self._asking[writer] = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
            if self._is_local and not _names_loopback(request):
                status, body = "403 Forbidden", "this is not served under that name\n"
            else:
                status, body = await self._answer(request.split(b" ", 2)[:2])
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
            # The reason of a refusal may name a file.
            content = body.encode("ascii", "backslashreplace")
            writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode("ascii") + content)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._asking.pop(writer, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: list[bytes]) -> tuple[str, str]:
        match request:
            case [b"GET", b"/healthz"]:
                return self._health()
            case [b"GET", b"/metrics"]:
                try:
                    return "200 OK", await self._metrics()
                except SpoolError:
                    return "503 Service Unavailable", "storage failed\n"
            case _:
                return "404 Not Found", "try /healthz or /metrics\n"

    def _health(self) -> tuple[str, str]:
        """Return 503 and what is wrong, or 200; what will be wrong comes after either."""
        watch = self._process.watch
        health = Health(troubles=("starts",), notes=(), gauges={}) if watch is None else watch.describe()
        notes = list(health.notes)
        if self._process.refused:
            notes.append(f"a roster or manifest that was put in place is refused: {self._process.refused}")
        status = "503 Service Unavailable" if health.troubles else "200 OK"
        return status, "\n".join([*(health.troubles or ["ok"]), *(f"note: {why}" for why in notes)]) + "\n"

    async def _metrics(self) -> str:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        values: dict[str, dict[str, int]] = {"gauge": {"healthy": 0}}
        if (watch := self._process.watch) is not None:
            values = await watch.node.statistics()
            values["gauge"] |= watch.describe().gauges
        values["gauge"]["memory_peak_bytes"], values["log"] = peak, self._process.log.counts
        lines: list[str] = []
        for metric in METRICS:
            if not metric.is_public or metric.source not in values:
                continue
            # Counters are 0 before the first; a gauge may not be there.
            value = values[metric.source].get(metric.name, None if metric.source == "gauge" else 0)
            lines += [] if value is None else metric.lines(value)
        return "\n".join(lines) + "\n"


def _names_loopback(request: bytes) -> bool:
    """Return whether the Host of a request is this machine's own; browsers always send one."""
    hosts = re.findall(rb"(?im)^host:[ \t]*(.*?)[ \t]*\r$", request)
    return all(re.fullmatch(rb"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", host.lower()) for host in hosts)


# ---- logs ----------------------------------------------------------------------------------------------------------

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
        """Note that a connection ended by the disk, or a fault of this node's own: of that only its kind is logged."""
        if isinstance(error, SpoolError):
            self.trouble(str(error))
            return
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
