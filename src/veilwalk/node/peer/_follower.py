"""News for a node: a new roster or manifest, followed when their files change, or when told to look (SIGHUP)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import VeilwalkError
from veilwalk.node.members import KeyRing, Roster, signature_path
from veilwalk.node.peer._assemble import checked_work

if TYPE_CHECKING:
    from veilwalk.node.peer._node import Node
    from veilwalk.node.peer._process import NodeProcess

_NEWS_S = 5.0


class Follower:
    """Takes up a new roster or manifest for the node of a process.

    What is refused is looked at again and again: its signature, or a key, may be on its way still.

    Attributes:
        refused: Why what is there now is not followed; empty where it is.
    """

    def __init__(self, process: NodeProcess, ring: KeyRing) -> None:
        self._process, self._ring = process, ring
        self._newest: Roster | None = None
        self.refused = ""

    async def run(self, news: asyncio.Event) -> None:
        """Look until cancelled."""
        checked = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_S):
                    await news.wait()
            stamps = self._stamps()
            if news.is_set() or stamps != checked:
                news.clear()
                checked = stamps if await self.follow_news() else None

    async def follow_news(self) -> bool:
        """Take up what is new; return whether there was nothing to refuse."""
        reasons = []
        for follow in (self._follow_roster, self._follow_manifest):
            try:
                if (node := self._process.node) is not None:
                    await follow(node)
            except VeilwalkError as error:
                reasons.append(str(error))
            except Exception as error:  # noqa: BLE001  whoever put a file there must not be able to stop the node
                reasons.append(f"{type(error).__name__}: {error}")
        # The node goes on with what it has; the same reason is not said again every few seconds.
        if reasons and reasons[0] != self.refused:
            self._process.log.event("roster_refused", why=reasons[0])
        self.refused = reasons[0] if reasons else ""
        return not reasons

    async def _follow_roster(self, node: Node) -> None:
        files = self._process.files
        # One that this node cannot work under is history all the same: the root mends it with the next.
        held = max(node.roster, self._newest or node.roster, key=lambda roster: roster.version)
        newest = self._newest = await asyncio.to_thread(files.news, held) or held
        if node.roster.digest == newest.digest:
            return
        # The roster may announce an epoch whose key was made since the start.
        keys = await asyncio.to_thread(self._ring.load)
        await asyncio.to_thread(files.keep, newest)
        await node.follow(newest, keys)
        await asyncio.to_thread(self._ring.delete_before, newest.epoch)

    async def _follow_manifest(self, node: Node) -> None:
        if await asyncio.to_thread(self._has_new_manifest, node):
            self._process.begin_anew()

    def _has_new_manifest(self, node: Node) -> bool:
        files = self._process.files
        # Whoever is about to leave does not begin anew.
        if node.scheduler.draining or not files.has_new_manifest(node.manifest):
            return False
        checked_work(self._process.config, files.load(), self._ring.load())
        return True

    def _stamps(self) -> list[tuple[int, int] | None]:
        config = self._process.config
        return [_stamp(path) for file in (config.roster, config.manifest) for path in (file, signature_path(file))]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
