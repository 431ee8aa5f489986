"""News for a node: a new roster, which all its runs follow, and new manifests, each of one run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Protocol

from veilwalk.core.errors import VeilwalkError
from veilwalk.node.members import KeyRing, NodeKeys, Roster, signature_path
from veilwalk.node.peer._assemble import checked_work
from veilwalk.node.peer._config import NodeConfig
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._membership import MembershipFiles
from veilwalk.node.peer._node import Node

_NEWS_S = 5.0


class FollowedRun(Protocol):
    """One run of a node, as whoever looks for news sees it."""

    config: NodeConfig
    files: MembershipFiles
    log: Log
    node: Node | None

    def begin_anew(self) -> None:
        """Stop, and start again under the manifest that is there now."""
        ...


class Follower:
    """Takes up a new roster or manifest when their files change, or when told to look (SIGHUP).

    What is refused is looked at again and again: its signature, or a key, may be on its way still. What one run cannot
    follow, the others do.
    """

    def __init__(self, runs: Sequence[FollowedRun], ring: KeyRing, log: Log) -> None:
        self._runs, self._ring, self._log = runs, ring, log
        self._newest: Roster | None = None
        self._refused: dict[Log, str] = {}

    def refuses(self, log: Log) -> bool:
        """Return whether something that is there now is refused, and that log has said why."""
        return log in self._refused

    async def run(self, news: asyncio.Event) -> None:
        """Look until cancelled."""
        seen = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_S):
                    await news.wait()
            stamps = self._stamps()
            if news.is_set() or stamps != seen:
                news.clear()
                seen = stamps if await self.look() else None

    async def look(self) -> bool:
        """Take up what is new; return whether there was nothing to refuse."""
        running = [(run, run.node) for run in self._runs if run.node is not None]
        reasons: dict[Log, str] = {}
        if running:
            await _noting(reasons, self._log, self._look_at_roster([node for _, node in running]))
            await _noting(reasons, self._log, self._follow(running, reasons))
        for run, node in running:
            await _noting(reasons, run.log, self._look_at_manifest(run, node))
        for log, why in reasons.items():
            # The node goes on with what it has; the same reason is not said again every few seconds.
            if why != self._refused.get(log):
                log.event("roster_refused", why=why)
        self._refused = reasons
        return not reasons

    async def _look_at_roster(self, nodes: Sequence[Node]) -> None:
        held = [node.roster for node in nodes] + ([] if self._newest is None else [self._newest])
        newest = max(held, key=lambda roster: roster.version)
        # One that no run can work under is history all the same: the root mends it with the next.
        self._newest = await asyncio.to_thread(self._runs[0].files.news, newest) or newest

    async def _follow(self, running: Sequence[tuple[FollowedRun, Node]], reasons: dict[Log, str]) -> None:
        roster = self._newest
        if roster is None or all(node.roster.digest == roster.digest for _, node in running):
            return
        for run in self._runs:
            if run.node is None:
                with contextlib.suppress(VeilwalkError):
                    await asyncio.to_thread(run.files.keep_up, roster)
        # The roster may announce an epoch whose key was made since the start.
        keys = await asyncio.to_thread(self._ring.load)
        for run, node in running:
            if node.roster.digest != roster.digest:
                await _noting(reasons, run.log, _take_up(run, node, roster, keys))
        if all(node.roster.digest == roster.digest for _, node in running):
            await asyncio.to_thread(self._ring.delete_before, roster.epoch)

    async def _look_at_manifest(self, run: FollowedRun, node: Node) -> None:
        if await asyncio.to_thread(self._has_new_manifest, run, node):
            run.begin_anew()

    def _has_new_manifest(self, run: FollowedRun, node: Node) -> bool:
        # Whoever is about to leave does not begin anew.
        if node.scheduler.draining or not run.files.has_new_manifest(node.manifest):
            return False
        checked_work(run.config, run.files.load(), self._ring.load())
        return True

    def _stamps(self) -> list[tuple[int, int] | None]:
        files = [self._runs[0].config.roster, *(run.config.manifest for run in self._runs)]
        return [_stamp(path) for file in files for path in (file, signature_path(file))]


async def _take_up(run: FollowedRun, node: Node, roster: Roster, keys: NodeKeys) -> None:
    await asyncio.to_thread(run.files.keep, roster)
    await node.follow(roster, keys)


async def _noting(reasons: dict[Log, str], log: Log, work: Awaitable[None]) -> None:
    """Do ``work``; where it cannot be done, note why, as what that log is to say."""
    try:
        await work
    except VeilwalkError as error:
        reasons.setdefault(log, str(error))
    except Exception as error:  # noqa: BLE001  whoever put a file there must not be able to stop the node
        reasons.setdefault(log, f"{type(error).__name__}: {error}")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
