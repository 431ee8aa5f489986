"""Neighbours that bring more than they may, come again and again, or keep others waiting: who is honest loses nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.members import greet, message_for, offer
from tests.unit.node.test_hostile_patience import garbage
from tests.unit.node.test_hostile_watches import slow

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.link._wire import Ack
from veilwalk.node.spool import Spool

Make = Callable[..., Any]


def test_what_is_crowded_out_while_it_is_worked_on_takes_nothing_else_along(
    network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is another message's by the time the work is done: that one stays, whoever brought it."""
    # All messages in files, as large ones are.
    monkeypatch.setitem(Spool.__init__.__kwdefaults__, "inline_bytes", 1024)
    rules = RunRules(walk=SIMPLE, updates=400, late_hops=1e9, dwell_s=4.0)

    async def main() -> None:
        net = network(4, starts=False, rules=rules)
        net.change("n1", task=slow(net.parts["n1"].task, 1.5))
        await net.start("n1")
        custody = net.nodes["n1"].desk.custody
        # The first of those that may go, as it is now and then.
        custody._draws = SimpleNamespace(below=lambda _: 0)
        bad, honest = await greet(net, "n0", "n1"), await greet(net, "n2", "n1")
        # Two of one id: the second turns out to be a copy, and stands before the one that is worked on next.
        same = os.urandom(16)
        for seq, update in enumerate((same, same, None, None, None, None), start=1):
            options = {"walk_tag": os.urandom(8), "update_id": update}
            assert await offer(bad, seq, message_for(net, "n1", counts=[0.0] * 4, **options)) == Ack(seq)
            if seq == 4:
                await net.until(lambda: net.tally("updates") == 1)
        await net.until(lambda: net.tally("crowded_out") == 2)
        assert await offer(honest, 1, garbage(net, "n1")) == Ack(1)
        await net.until(lambda: net.tally("updates") == 2)
        for seq in (2, 3):
            assert await offer(honest, seq, garbage(net, "n1")) == Ack(seq)
        brought = [row for row in custody.spool.tables.messages() if row.came_from == "n2"]
        assert len([custody.spool.read(row) for row in brought]) == 3
        assert net.nodes["n1"].events["storage_troubles"] == 0
        bad.close()
        honest.close()
        await net.stop()

    asyncio.run(main())
