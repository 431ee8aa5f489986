"""Runs one node as a process: signals, health, metrics and news, from the start to a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from pathlib import Path

from veilwalk.core.errors import SpoolError, VeilwalkError
from veilwalk.node.members import Manifest, Roster, signature_path
from veilwalk.node.peer._assemble import assemble, checked_work, key_ring
from veilwalk.node.peer._config import NodeConfig, host_and_port, load_config
from veilwalk.node.peer._membership import MembershipFiles
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._observe import HealthWatch, Log, MetricsServer
from veilwalk.node.peer._status import DRAIN_ORDER
from veilwalk.node.peer._worker import Worker
from veilwalk.node.spool import arm

_NEWS_S = 5.0
_DRAIN_POLL_S = 0.5
# A neighbour whose offer was held just before may still give it: so many times in a row there must be nothing.
_TIMES_EMPTY = 4


def run_node(path: Path) -> None:
    """Run the node described by ``path`` until SIGTERM or SIGINT; with a new manifest it begins anew by itself."""
    config = load_config(path)
    worker = Worker(path)
    try:
        arm()
        asyncio.run(NodeProcess(config, worker=worker, log=Log(level=config.log_level, form=config.log)).run())
    finally:
        worker.close()


class NodeProcess:
    """The node of a process, which is another one whenever it begins anew under a new manifest.

    Attributes:
        config: Its settings.
        files: Its signed files.
        log: Where its events go.
        node: The node at work; None while there is none.
        watch: How that node is.
        refused: Why a roster or manifest that was put in place is not followed; empty where it is.
    """

    def __init__(self, config: NodeConfig, *, worker: Worker, log: Log) -> None:
        self.config = config
        self.files = MembershipFiles(config)
        self.log = log
        self.node: Node | None = None
        self.watch: HealthWatch | None = None
        self._ring = key_ring(config)
        self._worker = worker
        self.refused = ""
        # The newest roster of the root's, though this node may not be able to work under it.
        self._newest: Roster | None = None
        self._metrics = MetricsServer(self)
        self._stop = asyncio.Event()
        self._leaves = self._begins_anew = False

    async def run(self) -> None:
        """Work until told to stop, or until the node is drained."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.leave)
        loop.add_signal_handler(signal.SIGHUP, news.set)
        # Broken connections are the links' business; asyncio would print a traceback for each.
        loop.set_exception_handler(lambda _, context: self.log.event("asyncio", what=str(context.get("message", ""))))
        following = loop.create_task(self.follow_news(news))
        try:
            if self.config.metrics is not None:
                await self._metrics.start(*host_and_port("metrics", self.config.metrics))
            await self.work()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            self._metrics.close()

    async def work(self) -> None:
        """Run the node, and another in its place for as long as it begins anew.

        Raises:
            VeilwalkError: It cannot start.
            Exception: It failed after it had started.
        """
        node = await self._make_node()
        if node is not None:
            self._delete_old_keys(node)
        while node is not None:
            try:
                await self._run_node(node)
                node = await self._make_node() if self._begins_anew else None
            except VeilwalkError as error:
                fault = as_exit_error(error)
                if fault is error:
                    raise
                raise fault from error

    def leave(self) -> None:
        """Stop, and do not start again."""
        self._leaves = True
        self._stop.set()
        if self.node is None:
            # Nobody needs to wait any more until learner and data are loaded.
            self._worker.close()

    def begin_anew(self) -> None:
        """Stop, and start again under the manifest that is there now."""
        self._begins_anew = True
        self._stop.set()

    async def _make_node(self) -> Node | None:
        """Return a node that may start; None if it was told to leave before that."""
        self._begins_anew = False
        self._stop.clear()
        node: Node | None = None
        try:
            keys = await asyncio.to_thread(self._ring.load)
            # In a thread: on a large network it takes a while.
            parts = await asyncio.to_thread(assemble, self.config, log=self.log, keys=keys, worker=self._worker)
            try:
                node = await asyncio.to_thread(Node, parts)
            except BaseException:
                parts.disk.close()
                raise
        except VeilwalkError:
            if not self._leaves:
                raise
        finally:
            if node is None:
                self._worker.close()
        return node

    async def _run_node(self, node: Node) -> None:
        self.watch = HealthWatch(node, self.config.state)
        await self.watch.beat()
        self.node = node
        if self._leaves:
            self._stop.set()
        loop = asyncio.get_running_loop()
        draining = drain_on_order(node, self.config.state, self._stop, self.log)
        beside = [loop.create_task(draining), loop.create_task(self.watch.run())]
        try:
            await node.run(self._stop)
        finally:
            for task in beside:
                task.cancel()
            self.node = self.watch = None

    # News.

    async def follow_news(self, news: asyncio.Event) -> None:
        """Take up a new roster or manifest when there is one, until cancelled.

        What is refused is looked at again and again: its signature, or a key, may be on its way still.
        """
        checked = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NEWS_S):
                    await news.wait()
            files = [
                path for file in (self.config.roster, self.config.manifest) for path in (file, signature_path(file))
            ]
            stamps = [_stamp(path) for path in files]
            if self.node is not None:
                await asyncio.to_thread(self._delete_old_keys, self.node)
            if news.is_set() or stamps != checked:
                news.clear()
                await self._follow_files()
                checked = None if self.refused else stamps

    async def _follow_files(self) -> None:
        reasons = []
        for follow in (self._follow_roster, self._follow_manifest):
            try:
                if self.node is not None:
                    await follow(self.node)
            except VeilwalkError as error:
                reasons.append(str(error))
            except Exception as error:  # noqa: BLE001  whoever put a file there must not be able to stop the node
                reasons.append(f"{type(error).__name__}: {error}")
        # The node goes on with what it has; the same reason is not said again every few seconds.
        if reasons and reasons[0] != self.refused:
            self.log.event("roster_refused", why=reasons[0])
        self.refused = reasons[0] if reasons else ""

    async def _follow_roster(self, node: Node) -> None:
        # A roster that this node cannot work under is history all the same: the root mends it with the next.
        held = max(node.roster, self._newest or node.roster, key=lambda roster: roster.version)
        newest = self._newest = await asyncio.to_thread(self.files.read, Roster, held)
        if node.roster.digest == newest.digest:
            return
        # The roster may bring periods whose keys were made since the start.
        keys = await asyncio.to_thread(self._ring.load)
        await asyncio.to_thread(self.files.keep, newest)
        await node.follow(newest, keys)

    def _delete_old_keys(self, node: Node) -> None:
        """Delete the keys of epochs whose messages are opened no more."""
        self._ring.delete_before(node.roster.open_epochs(time.time())[0] + 1)

    async def _follow_manifest(self, node: Node) -> None:
        if await asyncio.to_thread(self._has_new_manifest, node):
            self.begin_anew()

    def _has_new_manifest(self, node: Node) -> bool:
        # A node that is about to leave does not begin anew.
        if node.scheduler.draining or self.files.read(Manifest, node.manifest).digest == node.manifest.digest:
            return False
        keys = self._ring.load()
        checked_work(self.config, self.files.load().open_row(keys), keys)
        return True


def as_exit_error(error: Exception) -> Exception:
    """Return what a node that was running ends with: never that a setting or a file is wrong.

    A service manager does not restart a program that says so. Settings and files were checked before; what comes later
    is a fault of ours, and nobody outside may turn it into more than a restart.
    """
    if not isinstance(error, VeilwalkError) or error.exit_code != VeilwalkError.exit_code:
        return error
    return RuntimeError(str(error))


# ---- drain ----------------------------------------------------------------------------------------------------------


async def drain_on_order(node: Node, state: Path, stop: asyncio.Event, log: Log) -> None:
    """Wait for the order in the node's own folder; then drain the node, and stop it."""
    order = state / DRAIN_ORDER
    order.unlink(missing_ok=True)
    while not order.exists():
        await asyncio.sleep(_DRAIN_POLL_S)
    node.drain()
    log.event("draining", node=node.id)
    empty = 0
    while empty < _TIMES_EMPTY:
        await asyncio.sleep(_DRAIN_POLL_S)
        try:
            held = (await node.statistics())["gauge"]["in_custody"]
        except SpoolError:
            continue
        empty = 0 if held else empty + 1
    order.unlink(missing_ok=True)
    stop.set()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
