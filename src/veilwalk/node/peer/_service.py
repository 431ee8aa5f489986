"""One run of a node, from start to stop: begun anew under a new manifest and, where others go on, after a fault."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from veilwalk.core.errors import TransportError, VeilwalkError
from veilwalk.node.link import Port
from veilwalk.node.members import KeyRing, NodeKeys
from veilwalk.node.peer._assemble import assemble, membership_files
from veilwalk.node.peer._config import NodeConfig
from veilwalk.node.peer._drain import drain_when_told
from veilwalk.node.peer._health import HealthWatch
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._worker import Worker

# A run that does not work is tried again so often.
_AGAIN_S = 60.0


class RunService:
    """A run and its node, which is another one whenever it begins anew.

    Attributes:
        node: The node at work; None while there is none.
        watch: How that node is.
        drained: Whether the run was stopped by its operator.
        tried: Done with the first attempt: with None, or with what was in its way.
    """

    def __init__(self, config: NodeConfig, *, ring: KeyRing, worker: Worker, log: Log, port: Port | None) -> None:
        self.config = config
        self.files = membership_files(config)
        self.log = log.of_run(config.name) if config.name else log
        self.node: Node | None = None
        self.watch: HealthWatch | None = None
        self.drained = False
        self.tried: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._ring, self._worker = ring, worker
        #: None where the run is the node's only one: its faults are the node's.
        self._port = port
        self._why_down = ""
        self._stop, self._again = asyncio.Event(), asyncio.Event()
        self._leaves = self._begins_anew = False

    @property
    def name(self) -> str:
        """What its operator calls it; empty where it is the only one."""
        return self.config.name

    def leave(self) -> None:
        """Stop, and do not start again."""
        self._leaves = True
        self._stop.set()
        self._again.set()
        if self.node is None:
            # Whoever waits for it to load learner and data need not any more.
            self._worker.close()

    def begin_anew(self) -> None:
        """Stop, and start again under the manifest that is there now."""
        self._begins_anew = True
        self._stop.set()

    def try_again(self) -> None:
        """Start now, if the run is drained or down."""
        self._again.set()

    async def run(self, keys: NodeKeys, *, was_drained: Callable[[], None]) -> None:
        """Work until told to leave.

        Raises:
            TransportError: The port cannot be opened, which is no fault of the run.
            Exception: The run is the only one, and failed after it had started.
        """
        await self._once(keys, was_drained)
        while not self._leaves:
            await self._once(None, was_drained)

    async def _once(self, keys: NodeKeys | None, was_drained: Callable[[], None]) -> None:
        """Run one node to its end, and wait until there is to be another."""
        try:
            if keys is None:
                keys = await asyncio.to_thread(self._ring.load)
            await self._work(keys)
        except Exception as error:  # noqa: BLE001  whatever ends one run does not end the others
            self._fail(error)
            await self._wait(_AGAIN_S)
            return
        self.drained = not (self._leaves or self._begins_anew)
        if self.drained:
            was_drained()
            await self._wait(None)

    async def _work(self, keys: NodeKeys) -> None:
        """Run one node until it is stopped."""
        self.drained = self._begins_anew = False
        self._stop.clear()
        try:
            try:
                # Beside the others: on a large network it takes a while.
                node = await asyncio.to_thread(self._made, keys)
            except VeilwalkError:
                if not self._leaves:
                    raise
                # It was told to before it had begun.
                self._begun(None)
                return
            self.watch = HealthWatch(node, self.config.state)
            await self.watch.beat()
            self.node = node
            self._begun(None)
            await self._until_stopped(node)
        finally:
            self.node = self.watch = None
            # Where it failed before it had a node that would.
            self._worker.close()

    def _made(self, keys: NodeKeys) -> Node:
        parts = assemble(self.config, log=self.log, keys=keys, worker=self._worker)
        try:
            return Node(parts, port=self._port)
        except BaseException:
            parts.disk.close()
            raise

    async def _until_stopped(self, node: Node) -> None:
        if self._leaves:
            self._stop.set()
        draining = asyncio.get_running_loop().create_task(
            drain_when_told(node, self.config.state, self._stop, self.log)
        )
        try:
            await node.run(self._stop)
        finally:
            draining.cancel()

    def _begun(self, error: Exception | None) -> None:
        self._why_down = "" if error is None else self._why_down
        if not self.tried.done():
            self.tried.set_result(error)

    def _fail(self, error: Exception) -> None:
        first = not self.tried.done()
        self._begun(error)
        if isinstance(error, TransportError) or (self._port is None and not first):
            raise blamed(error)
        why = str(error) if isinstance(error, VeilwalkError) else f"a fault of this node's own, {type(error).__name__}"
        if self._port is not None and why != self._why_down:
            self.log.event("run_down", why=why)
        self._why_down = why

    async def _wait(self, timeout_s: float | None) -> None:
        if self._leaves:
            return
        # What was said while it worked was not about this.
        self._again.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._again.wait()


def blamed(error: Exception) -> Exception:
    """Return what a node that was running ends with: never that a setting or a file is wrong.

    A service manager leaves whoever says that where it is. Settings and files were looked at before; what comes later
    is a fault of ours, and nobody outside may turn it into more than a restart.
    """
    if not isinstance(error, VeilwalkError) or error.exit_code != VeilwalkError.exit_code:
        return error
    fault = RuntimeError(str(error))
    fault.__cause__ = error
    return fault
