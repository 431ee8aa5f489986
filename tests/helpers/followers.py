"""Nodes that follow their files, in one process."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules, load_config
from veilwalk.node.cluster import prepare_or_resume, set_up_cluster
from veilwalk.node.members import KeyRing, Roster, load_root_key
from veilwalk.node.peer._assemble import assemble, key_ring
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._observe import Log
from veilwalk.node.peer._process import NodeProcess
from veilwalk.training import CLUSTER

NOW = int(time.time())
#: A run that does not end while a test looks on.
FOREVER = RunRules(walk=SIMPLE, updates=100_000, late_hops=1e9)


def small_cluster(folder: Path, **options: Any) -> tuple[list[Path], Any, Any]:
    """A cluster's files, its root key and its roster."""
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=2", updates=5, suite="x25519", **options))
    configs = prepare_or_resume(setup, folder)
    root = load_root_key(folder / "root")
    return configs, root, Roster.read_signed(folder / "roster.json", root.public_key())


@asynccontextmanager
async def followed(config_path: Path, *, ring: KeyRing | None = None) -> AsyncIterator[tuple[Node, NodeProcess, Any]]:
    """One node at work that looks for news every few milliseconds, and its log."""
    config, text = load_config(config_path), io.StringIO()
    log, ring = Log(text), ring or key_ring(config)
    node, stop = Node(assemble(config, log=log, keys=ring.load())), asyncio.Event()
    running = asyncio.create_task(node.run(stop))
    process = NodeProcess(config, worker=cast("Any", None), log=log)
    process.node, process._ring = node, ring
    following = asyncio.create_task(process.follow_news(asyncio.Event()))
    try:
        yield node, process, text
    finally:
        following.cancel()
        stop.set()
        await running


async def until(done: Callable[[], Any], timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.02)
