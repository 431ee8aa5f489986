"""Members and neighbours that say ever more: nothing they say grows without bound, and nothing of it ends a node."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.members import greet, message_for, offer

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.peer._observe import Incidents, Log
from veilwalk.node.sealing import seal
from veilwalk.node.spool import FolderDisk, Spool

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)


def test_a_link_that_comes_and_goes_does_not_fill_the_log() -> None:
    """As its neighbour likes, and for ever new reasons; what is said last is how it is, as soon as it may be said."""
    stream = io.StringIO()
    incidents = Incidents(Log(stream))
    for number in range(500):
        incidents.link_up("n0", 2)
        incidents.link_down("n0", was_up=True, why="a peer closed the connection")
        incidents.link_down("n0", was_up=False, why=f"a peer holds roster version {number}: this node 7")
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 110
    assert incidents.events["link_losses"] == 500
    # Others are heard.
    incidents.link_down("n2", was_up=False, why="no answer")
    assert "n2" in stream.getvalue()
    incidents.link_up("n0", 2)
    incidents._links["n0"]._tokens = 1.0
    for _ in range(3):
        incidents.link_down("n0", was_up=False, why="no answer")
    assert '"link_down"' in stream.getvalue().splitlines()[-1]


def test_walks_that_are_forged_do_not_fill_the_memory_of_walks(tmp_path: Path) -> None:
    """Whoever seals for a node can give every message a new walk: those that were not seen for long are forgotten."""
    spool = Spool(FolderDisk(tmp_path))
    with spool.transaction() as register:
        for turn in range(1, 3001):
            register.add_walk(turn.to_bytes(8, "big"), 1, turn)
            if turn % 500 == 0:
                register.add_walk(b"honest!!", turn, turn)
    walks = spool.tables.walks()
    spool.close()
    assert len(walks) <= 1001
    assert walks[b"honest!!"].first_turn == 500


def test_a_neighbour_with_ever_new_disks_makes_a_node_seal_once(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finished seals its model for a new disk: a long one takes the storage's time, and a liar fetches none."""
    sealed: list[bytes] = []

    def counted(*values: Any, **named: Any) -> bytes:
        sealed.append(seal(*values, **named))
        return sealed[-1]

    async def main() -> None:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        await offer(connection, 1, message_for(net, "n1", counts=[0.0] * 4, iteration=399))
        await net.until(lambda: net.look("n1")["final"] is not None)
        connection.close()
        with net.nodes["n1"].scheduler.custody.spool.transaction() as register:
            for row in register.messages(peer="n0"):
                register.drop(row)
        monkeypatch.setattr("veilwalk.node.peer._destination.seal", counted)
        for number in range(5):
            (await greet(net, "n0", "n1", incarnation=bytes(7) + bytes([number]))).close()
        assert [row.end_lane for row in net.look("n1")["messages"] if row.peer == "n0"] == [0]
        await net.stop()

    asyncio.run(main())
    assert len(sealed) == 1
