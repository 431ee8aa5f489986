"""A node as a process: signals, roster news, health and metrics, from start to a clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from veilwalk.core.errors import VeilwalkError
from veilwalk.node.members import delete_old_keys
from veilwalk.node.peer._assemble import assemble, load_keys, membership_files
from veilwalk.node.peer._config import NodeConfig, host_and_port, load_config
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._metrics import MetricsServer
from veilwalk.node.peer._node import Node
from veilwalk.node.spool import arm

_NEWS_S = 5.0


def run_node(path: Path) -> None:
    """Run the node described by ``path`` until SIGTERM or SIGINT."""
    arm()
    config = load_config(path)
    log = Log()
    node = Node(assemble(config, log=log))
    delete_old_keys(config.keys, epoch=node.roster.epoch)
    asyncio.run(_main(node, config, log))


async def _main(node: Node, config: NodeConfig, log: Log) -> None:
    loop, stop, news = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, news.set)
    # Broken connections are the links' business; asyncio would print a traceback for each.
    loop.set_exception_handler(lambda _, context: log.event("asyncio", what=str(context.get("message", ""))))
    metrics = MetricsServer(node)
    if config.metrics is not None:
        await metrics.start(*host_and_port("metrics", config.metrics))
    following = loop.create_task(_follow(node, config, log, news))
    try:
        await node.run(stop)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        metrics.close()


async def _follow(node: Node, config: NodeConfig, log: Log, news: asyncio.Event) -> None:
    """Take up a new roster when its file changes, or when told to look (SIGHUP)."""
    files = membership_files(config)
    seen, newest = _stamp(config.roster), node.roster
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_S):
                await news.wait()
        if not news.is_set() and _stamp(config.roster) == seen:
            continue
        news.clear()
        seen = _stamp(config.roster)
        try:
            roster = await asyncio.to_thread(files.news, newest)
            if roster is not None:
                # One that this node cannot work under is history all the same: the root mends it with the next.
                newest = roster
                # The roster may announce an epoch whose key was made since the start.
                await node.follow(roster, load_keys(config))
                delete_old_keys(config.keys, epoch=roster.epoch)
        except VeilwalkError as error:
            # The node goes on with the roster it has: whoever put this one here must not be able to stop it.
            log.event("roster_refused", why=str(error))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
