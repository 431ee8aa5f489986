"""A neighbour with a watch that keeps a node busy, to see by when its messages are let go which of them were opened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.helpers.members import message_for, offer, slow, watched_releases

from veilwalk.core.walk import SIMPLE
from veilwalk.node import Limits, RunRules
from veilwalk.node.link._wire import Ack
from veilwalk.node.peer._debts import Debts
from veilwalk.node.spool import FolderDisk, Spares, Spool

Make = Callable[..., Any]


def test_release_does_not_tell_what_waited_for_the_training(network: Make) -> None:
    """With spares: a member gives a node work, and then a message of which it would know whether it opens there."""

    async def main() -> dict[str, float]:
        rules = RunRules(walk=SIMPLE, updates=1000, late_hops=1e9, dwell_s=0.4, spare_s=0.2)
        net = network(4, starts=False, rules=rules, limits=Limits(connect_s=0.5, retry_s=0.1, answer_s=5.0))
        net.change("n1", task=slow(net.parts["n1"].task, 0.3))
        connection, released = await watched_releases(net)
        delays, seq = {}, 0
        for goal in ("n3", "n1"):
            for asked in ("n1", "n1", goal):
                seq += 1
                tag = seq.to_bytes(8, "big")
                assert await offer(connection, seq, message_for(net, asked, counts=[0.0] * 4, walk_tag=tag)) == Ack(seq)
            begin = time.monotonic()
            while not {seq, seq - 1, seq - 2} <= released.keys():
                await connection.idle(asyncio.Event(), 0.05)
            delays[goal] = released[seq] - begin
        connection.close()
        await net.stop()
        return delays

    delays = asyncio.run(main())
    assert min(delays.values()) > 0.7
    assert abs(delays["n1"] - delays["n3"]) < 0.25


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("for_us", [False, True])
def test_each_message_is_released_once(tmp_path: Path, for_us: bool, away: bool) -> None:
    """Also one that was released before it had gone on; also where its giver was not there to be told."""
    spool = Spool(FolderDisk(tmp_path))
    spares = Spares(spool, most=8)
    said: list[int] = []

    async def storage(work: Callable[..., Any], *values: Any) -> Any:
        return work(*values)

    def gone() -> None:
        with spool.transaction() as register:
            spares.owe(register, "n0", 1)

    async def main() -> None:
        running: set[asyncio.Task[None]] = set()
        debts = Debts(
            cast("Any", SimpleNamespace(spares=spares)),
            dwell_s=0.05,
            spare_s=0.02,
            storage=storage,
            spawn=lambda work: running.add(asyncio.create_task(work)),
            trouble=pytest.fail,
        )
        there = asyncio.Event()

        async def release(_: str, seq: int) -> bool:
            if there.is_set():
                said.append(seq)
            return there.is_set()

        debts.release = release
        if not away:
            there.set()
        debts.came("n0", 1, waits=for_us)
        if not for_us:
            gone()
            await debts.pay_later()
        await asyncio.sleep(0.2)
        there.set()
        await asyncio.sleep(0.1)
        assert said == [1]
        if for_us:
            # After two more dwells.
            gone()
            await debts.pay_later()
            await asyncio.sleep(0.2)
        await asyncio.gather(*running)

    asyncio.run(main())
    assert said == [1]
    assert spares.debts() == []
    spool.close()
