"""A node as a process: signals, health and metrics, and news of roster and manifest, from start to a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

from veilwalk.core.errors import VeilwalkError
from veilwalk.node.members import KeyRing, signature_path
from veilwalk.node.peer._assemble import assemble, checked_work, key_ring, membership_files
from veilwalk.node.peer._config import NodeConfig, host_and_port, load_config
from veilwalk.node.peer._drain import drain_when_told
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._metrics import MetricsServer
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._worker import Worker
from veilwalk.node.spool import arm

_NEWS_S = 5.0


def run_node(path: Path) -> None:
    """Run the node described by ``path`` until SIGTERM or SIGINT; with a new manifest it begins anew by itself."""
    config = load_config(path)
    log = Log(level=config.log_level, form=config.log)
    # First of all: it is a copy of this process, which must not have keys yet, nor threads.
    worker = Worker(path)
    try:
        arm()
        ring = key_ring(config)
        again = True
        while again:
            node = Node(assemble(config, log=log, ring=ring, worker=worker))
            ring.delete_before(node.roster.epoch)
            again = asyncio.run(_main(node, config, ring, log))
    finally:
        worker.close()


async def _main(node: Node, config: NodeConfig, ring: KeyRing, log: Log) -> bool:
    """Run until told to stop, and return False, or until there is a new manifest, and return True."""
    loop, stop, news = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    told = asyncio.Event()

    def leave() -> None:
        told.set()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    loop.add_signal_handler(signal.SIGHUP, news.set)
    # Broken connections are the links' business; asyncio would print a traceback for each.
    loop.set_exception_handler(lambda _, context: log.event("asyncio", what=str(context.get("message", ""))))
    metrics = MetricsServer(node, config.state, log)
    if config.metrics is not None:
        await metrics.start(*host_and_port("metrics", config.metrics))
    follower = Follower(node, config, ring, log)
    following = loop.create_task(follower.run(news, begin_anew=stop.set))
    leaving = loop.create_task(drain_when_told(node, config.state, stop, log))
    try:
        await node.run(stop)
    finally:
        leaving.cancel()
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        metrics.close()
    # An order to stop that comes while it begins anew is an order to stop.
    return follower.has_new_manifest and not told.is_set()


class Follower:
    """Takes up a new roster or manifest when their files change, or when told to look (SIGHUP).

    What is refused is looked at again and again: its signature, or a key, may be on its way still.
    """

    def __init__(self, node: Node, config: NodeConfig, ring: KeyRing, log: Log) -> None:
        self._node, self._config, self._ring, self._log = node, config, ring, log
        self._files = membership_files(config)
        self._newest = node.roster
        self._refused = ""
        #: Whether the node is to be made anew, under another manifest.
        self.has_new_manifest = False

    async def run(self, news: asyncio.Event, *, begin_anew: Callable[[], None]) -> None:
        """Look until cancelled, or until there is a manifest to begin anew under."""
        seen = None
        while not self.has_new_manifest:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_S):
                    await news.wait()
            stamps = self._stamps()
            if news.is_set() or stamps != seen:
                news.clear()
                seen = stamps if await self.look() else None
        begin_anew()

    async def look(self) -> bool:
        """Take up what is new; return whether there was nothing to refuse."""
        try:
            roster = await asyncio.to_thread(self._files.news, self._newest)
            # One that this node cannot work under is history all the same: the root mends it with the next.
            self._newest = roster or self._newest
            if self._newest.digest != self._node.roster.digest:
                # The roster may announce an epoch whose key was made since the start.
                await self._node.follow(self._newest, await asyncio.to_thread(self._ring.load))
                await asyncio.to_thread(self._ring.delete_before, self._newest.epoch)
            self.has_new_manifest = await asyncio.to_thread(self._new_manifest)
        except VeilwalkError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001  whoever put a file there must not be able to stop the node
            self._refuse(f"{type(error).__name__}: {error}")
        else:
            self._refused = ""
            return True
        return False

    def _new_manifest(self) -> bool:
        # Whoever is about to leave does not begin anew.
        if self._node.desk.draining or not self._files.has_new_manifest(self._node.manifest):
            return False
        checked_work(self._config, self._files.load(), self._ring.load())
        return True

    def _refuse(self, why: str) -> None:
        if why != self._refused:
            # The node goes on with what it has; the same reason is not said again every few seconds.
            self._log.event("roster_refused", why=why)
        self._refused = why

    def _stamps(self) -> list[tuple[int, int] | None]:
        files = (self._config.roster, self._config.manifest)
        return [_stamp(path) for file in files for path in (file, signature_path(file))]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
