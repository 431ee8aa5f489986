"""A node as a process: its runs, signals, health and metrics, and news, from start to a clean stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

from veilwalk.node.link import Port
from veilwalk.node.members import KeyRing
from veilwalk.node.peer._assemble import key_ring
from veilwalk.node.peer._config import NodeConfig, host_and_port, load_configs
from veilwalk.node.peer._follower import Follower
from veilwalk.node.peer._incidents import Incidents
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._metrics import MetricsServer
from veilwalk.node.peer._service import RunService
from veilwalk.node.peer._worker import Worker
from veilwalk.node.spool import arm


def run_node(path: Path) -> None:
    """Run the node described by ``path`` until SIGTERM or SIGINT; with a new manifest a run begins anew by itself."""
    configs = load_configs(path)
    log = Log(level=configs[0].log_level, form=configs[0].log)
    workers: list[Worker] = []
    try:
        # First of all: each is a copy of this process, which must not have keys yet, nor threads.
        for config in configs:
            workers.append(Worker(path, config.name, others=workers))
        arm()
        asyncio.run(_main(configs, key_ring(configs[0]), workers, log))
    finally:
        for worker in workers:
            worker.close()


async def _main(configs: Sequence[NodeConfig], ring: KeyRing, workers: Sequence[Worker], log: Log) -> None:
    await _Process(configs, ring, workers, log).run()


class _Process:
    """The runs of a node, and what they share."""

    def __init__(self, configs: Sequence[NodeConfig], ring: KeyRing, workers: Sequence[Worker], log: Log) -> None:
        self._ring, self._log = ring, log
        incidents = Incidents(log)
        # Runs share a port; of a node's only run everything is counted as its own.
        named = bool(configs[0].name)
        self._port = Port(limits=configs[0].limits, turned_away=incidents.turned_away) if named else None
        self._services = [
            RunService(config, ring=ring, worker=worker, log=log, port=self._port)
            for config, worker in zip(configs, workers, strict=True)
        ]
        self._address = configs[0].metrics
        self._follower = Follower(self._services, ring, log)
        self._metrics = MetricsServer(self._services, log, incidents.events, self._follower.refuses)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Work until told to stop, or until every run is drained."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        loop.add_signal_handler(signal.SIGHUP, self._look)
        # Broken connections are the links' business; asyncio would print a traceback for each.
        loop.set_exception_handler(lambda _, context: self._log.event("asyncio", what=str(context.get("message", ""))))
        keys = self._ring.load()
        tasks = [loop.create_task(service.run(keys, was_drained=self._drained)) for service in self._services]
        following = loop.create_task(self._follower.run(self._news))
        try:
            if self._address is not None:
                await self._metrics.start(*host_and_port("metrics", self._address))
            await self._started()
            await asyncio.gather(*tasks)
        finally:
            self._leave()
            following.cancel()
            await asyncio.gather(*tasks, following, return_exceptions=True)
            if self._port is not None:
                await self._port.close()
            self._metrics.close()

    async def _started(self) -> None:
        """Wait until every run has begun, or could not; where none could, say why as of a node with one."""
        refusals = await asyncio.gather(*(service.tried for service in self._services))
        if refusals[0] is not None and all(refusals):
            raise refusals[0]
        rosters = [service.node.roster for service in self._services if service.node is not None]
        if len(rosters) == len(self._services):
            self._ring.delete_before(min(roster.epoch for roster in rosters))

    def _leave(self) -> None:
        for service in self._services:
            service.leave()

    def _look(self) -> None:
        self._news.set()
        for service in self._services:
            service.try_again()

    def _drained(self) -> None:
        if all(service.drained for service in self._services):
            self._leave()
