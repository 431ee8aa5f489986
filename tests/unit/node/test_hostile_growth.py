"""Members and neighbours that say ever more: nothing they say grows without bound, and nothing of it ends a node."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.members import greet, message_for, offer

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.link import listening_context
from veilwalk.node.link._wire import Ack, Hello, encode
from veilwalk.node.members import changed_roster
from veilwalk.node.peer._ends import is_vouched, vouch
from veilwalk.node.peer._incidents import Incidents
from veilwalk.node.peer._log import Log
from veilwalk.node.sealing import seal
from veilwalk.node.spool import Claim, FolderDisk, Spares, Spool

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)


@contextlib.asynccontextmanager
async def listener(net: Any, name: str, *, settled: int) -> AsyncIterator[asyncio.Event]:
    """Somebody at the address of ``name``, and with its key, who says that it has taken so many messages."""
    greeted = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Also where the test is over.
        with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            await reader.readexactly(1 + Hello.layout.size)
            writer.write(encode(net.parts[name].membership.hello(b"incarnat", settled=settled)))
            await writer.drain()
            greeted.set()
            await reader.read()
        writer.transport.abort()

    neighbours = net.roster.neighbours(name)
    context = listening_context(net.keys[name], net.roster.trust_anchors(neighbours))
    port = socket.create_server(("127.0.0.1", net.roster.member(name).port))
    server = await asyncio.start_server(serve, sock=port, ssl=context)
    try:
        yield greeted
    finally:
        server.close()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("settled", [2**62, 2**63 - 1])
def test_numbers_do_not_run_out_because_a_neighbour_says_so(network: Make, settled: int) -> None:
    """One that has taken 2^63 - 1 messages, by its own account, would leave no number for the next."""

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        async with listener(net, "n0", settled=settled) as greeted:
            await net.start("n1")
            await asyncio.wait_for(greeted.wait(), 10)
            await asyncio.sleep(0.3)
            # Of so many one is for that neighbour, but for one time in a million.
            for _ in range(20):
                await net.nodes["n1"].desk.create(first=False)
            await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("created", "n1") == 20
    assert {row.peer for row in net.look("n1")["messages"]} == {"n0", "n2"}
    assert "link_fault" not in net.logs["n1"].getvalue()
    # It may be a lie: no reason to call this node's own disk bad.
    assert net.nodes["n1"].events["storage_troubles"] == 0
    assert net.logs["n1"].getvalue().count('"put_back"') == (settled == 2**62)


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
            register.saw_walk(turn.to_bytes(8, "big"), 1, turn)
            if turn % 500 == 0:
                register.saw_walk(b"honest!!", turn, turn)
    walks = spool.tables.walks()
    spool.close()
    assert len(walks) <= 1001
    assert walks[b"honest!!"].first_turn == 500


def test_ever_better_ends_do_not_fill_the_disk(network: Make) -> None:
    """Of two ends the one of the higher digest counts, so anybody can have a next: a neighbour waits for the last."""
    own = np.array([9.0, 0.0, 0.0, 0.0])
    # Near what the node knows, and so believed by one word.
    ends = sorted((own + np.array([step * 1e-3, 2, 0, 0]) for step in range(12)), key=_digest)

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        await offer(connection, 1, message_for(net, "n1", counts=own.tolist(), iteration=398))
        await net.until(lambda: net.tally("updates") == 1)
        run = net.parts["n0"].membership.manifest.run_id
        said: dict[str, Any] = {"iteration": 400, "final": True, "walk_tag": bytes(8)}
        for seq, end in enumerate(ends, start=2):
            word = vouch(net.keys["n0"], run, 400, _digest(end))
            message = message_for(net, "n1", counts=end.tolist(), vouch=word, **said)
            assert await offer(connection, seq, message) == Ack(seq)
            await net.until(
                lambda end=end: net.look("n1")["final"] is not None and (net.look("n1")["final"] == end).all()
            )
        connection.close()
        await net.stop()
        return net

    ended = [row.peer for row in asyncio.run(main()).look("n1")["messages"] if row.fixed]
    assert sorted(ended) == ["n0", "n2"]


def _digest(model: Any) -> bytes:
    return hashlib.sha256(model.tobytes()).digest()


def test_no_more_is_owed_to_a_neighbour_than_it_keeps(tmp_path: Path) -> None:
    """One that is never there when it is to be told that its spare copies may go."""
    spool = Spool(FolderDisk(tmp_path))
    spares = Spares(spool, most=8)
    with spool.transaction() as register:
        for seq in range(1, 1001):
            spares.owe(register, "n0", seq)
        spares.owe(register, "n2", 1)
    owed = spares.debts()
    spool.close()
    assert [seq for peer, seq in owed if peer == "n0"] == list(range(993, 1001))
    assert ("n2", 1) in owed


def test_the_word_of_a_member_that_has_left_counts_no_more(network: Make) -> None:
    """Left out for a reason, as a rule: with one more liar its word would end the run."""
    net = network(5, chords=((1, 3),))
    first, second = (Claim(by=by, digest=bytes(32), iteration=400, brought_by=by) for by in ("n0", "n2"))
    assert is_vouched(net.roster, "n1", [first], second)
    edges = [edge for edge in net.roster.edges if "n0" not in edge]
    after = changed_roster(net.roster, edges, cards={}, removed=["n0"], now=int(time.time()), days=1)
    assert not is_vouched(after, "n1", [first], second)
    assert is_vouched(after, "n1", [replace(first, by="n3", brought_by="n3")], second)


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
        with net.nodes["n1"].desk.custody.spool.transaction() as register:
            for row in register.pinned_to("n0"):
                register.drop(row, undelivered=True)
        monkeypatch.setattr("veilwalk.node.peer._destination.seal", counted)
        for number in range(5):
            (await greet(net, "n0", "n1", incarnation=bytes(7) + bytes([number]))).close()
        assert [row.fixed for row in net.look("n1")["messages"] if row.peer == "n0"] == [1]
        await net.stop()

    asyncio.run(main())
    assert len(sealed) == 1
