"""Leaving in good order: a node that is told to drain takes nothing new, hands on what it holds, and stops."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import SpoolError
from veilwalk.core.files import lock_file
from veilwalk.node.peer._status import node_status

if TYPE_CHECKING:
    from veilwalk.node.peer._log import Log
    from veilwalk.node.peer._node import Node

_ORDER = "drain"
_LOOK_S = 0.5
# A neighbour whose offer was held just before may still give it: so many looks in a row must find nothing.
_EMPTY_LOOKS = 4


async def drain_when_told(node: Node, state: Path, stop: asyncio.Event, log: Log) -> None:
    """Wait for the order in the node's own folder; then drain the node, and stop it."""
    order = state / _ORDER
    order.unlink(missing_ok=True)
    while not order.exists():
        await asyncio.sleep(_LOOK_S)
    node.drain()
    log.event("draining", node=node.id)
    empty = 0
    while empty < _EMPTY_LOOKS:
        await asyncio.sleep(_LOOK_S)
        try:
            held = (await node.statistics()).in_custody
        except SpoolError:
            continue
        empty = 0 if held else empty + 1
    order.unlink(missing_ok=True)
    stop.set()


def is_running(state: Path) -> bool:
    """Return whether a node runs with this state folder."""
    if not (state / "lock").exists():
        return False
    try:
        os.close(lock_file(state / "lock"))
    except BlockingIOError:
        return True
    except OSError as error:
        raise SpoolError(f"{state}: {error.strerror or error}") from None
    return False


def drain_node(state: Path, *, timeout_s: float, tell: Callable[[int], None]) -> bool:
    """Tell the node of this folder to drain and wait until it has stopped; return whether it has in that time.

    One that has not goes on handing out, and stops when it is done.
    """
    try:
        if is_running(state):
            (state / _ORDER).touch(mode=0o600)
    except OSError as error:
        raise SpoolError(f"{state}: {error.strerror or error}") from None
    end = time.monotonic() + timeout_s
    while is_running(state):
        if time.monotonic() > end:
            return False
        tell(node_status(state).in_custody)
        time.sleep(_LOOK_S)
    return True
