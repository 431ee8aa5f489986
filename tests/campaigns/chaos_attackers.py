"""Members that mean harm: they flood, swallow, and leave garbage in the place of what they swallowed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

#: While a file of this name is not beside the nodes' folders, flooders flood.
CALM = "calm"
# Garbage that a flooder has ready for each neighbour.
_AHEAD = 4


def flooder() -> None:
    """Hand every neighbour garbage as fast as it takes it, until told to be calm."""
    from veilwalk.node.peer._scheduler import Scheduler

    original = Scheduler.recover

    async def recover(self: Any) -> None:
        await original(self)
        self._flooding = asyncio.get_running_loop().create_task(_flood(self))

    Scheduler.recover = recover  # type: ignore[method-assign]


async def _flood(desk: Any) -> None:
    calm = Path(desk.custody.spool._disk._files).parents[2] / CALM
    while not (size := await desk.store(_size_of_any, desk.custody)):
        await asyncio.sleep(0.02)
    while not calm.exists():
        for peer in await desk.store(_make_garbage, desk.custody, size):
            desk._node.wake([peer])
        await asyncio.sleep(0.003)


def _make_garbage(custody: Any, size: int) -> set[str]:
    made = set()
    with custody.spool.transaction(durable=False) as register:
        for peer in custody.next_hop.neighbours:
            if len(register.messages(peer=peer)) < _AHEAD:
                register.add_message(custody.spool.store(_garbage(custody, size)), came_from=None, peer=peer)
                register.count("garbage")
                made.add(peer)
    return made


def _garbage(custody: Any, size: int) -> bytes:
    clear = next(iter(custody.opener._clear))
    return bytes(clear) + os.urandom(size - len(clear))


def _size_of_any(custody: Any) -> int:
    with custody.spool.transaction(durable=False) as register:
        rows = register.messages()
    return len(custody.spool.read(rows[0])) if rows else 0


def swallower() -> None:
    """Swallow every message, acknowledged and all."""
    from veilwalk.node.peer._custody import Custody
    from veilwalk.node.spool import Taken

    original = Custody.take

    def take(self: Any, peer: str, key: bytes) -> Any:
        taken = original(self, peer, key)
        if taken.row is None:
            return taken
        self.drop(taken.row.id, "swallowed")
        return Taken(taken.verdict)

    Custody.take = take  # type: ignore[method-assign]


def decoy() -> None:
    """Swallow every message and send garbage on in its place: all looks alive, and nothing opens."""
    from veilwalk.node.peer._custody import Custody
    from veilwalk.node.spool import Taken

    original = Custody.take

    def take(self: Any, peer: str, key: bytes) -> Any:
        taken = original(self, peer, key)
        if taken.row is None:
            return taken
        size = len(self.spool.read(taken.row))
        self.drop(taken.row.id, "swallowed")
        return Taken(taken.verdict, self.create(_garbage(self, size), "garbage"))

    Custody.take = take  # type: ignore[method-assign]
