"""Neighbours that keep a node waiting, come back, or bring the same again: nothing piles up, nothing is mistaken."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.members import garbage, greet, message_for, offer, watched_releases
from tests.unit.node.test_hostile_growth import listener

from veilwalk.core.errors import SpoolError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.node import Limits, RunRules
from veilwalk.node.link._limits import TokenBucket
from veilwalk.node.link._wire import Ack, Go, Nak, Offer, Refusal, encode
from veilwalk.node.members import changed_roster
from veilwalk.node.peer._ends import vouch
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._metrics import MetricsServer
from veilwalk.node.peer._status import unfinish_node
from veilwalk.node.spool import FolderDisk, Spool, undone_ends

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)
STRAIGHT = RunRules(walk=Walk("non-backtracking"), updates=400, late_hops=1e9)
QUICK = Limits(retry_s=0.1, connect_s=2.0, answer_s=3.0)


def test_what_is_crowded_out_beside_a_silent_neighbour_does_not_fill_the_disk(
    network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One neighbour floods, another is there and takes nothing: every message that goes leaves a number to cancel."""
    monkeypatch.setattr("veilwalk.node.spool._register._MOST_CANCELLED", 10)

    async def main() -> None:
        net = network(4, starts=False, rules=STRAIGHT, limits=QUICK)
        async with listener(net, "n2", settled=0) as greeted:
            await net.start("n1")
            await asyncio.wait_for(greeted.wait(), 10)
            connection = await greet(net, "n0", "n1")
            for seq in range(1, 31):
                assert await offer(connection, seq, garbage(net, "n1")) == Ack(seq)
            tables = net.nodes["n1"].desk.custody.spool.tables
            assert net.tally("crowded_out") >= 25
            assert len(tables.cancelled("n2")) == 10
        connection.close()
        # The neighbour is itself again: what waits for it comes, also beyond the numbers that were forgotten.
        await net.start("n2")
        await net.until(lambda: not tables.pinned_to("n2") and not tables.cancelled("n2"))
        assert net.tally("taken", "n2") == net.tally("hops", "n1") >= 4
        await net.stop()

    asyncio.run(main())


def test_what_is_gone_waits_for_no_moment(network: Make) -> None:
    """The same bytes again and again are to rest, ever longer; those that were crowded out do not."""

    async def main() -> None:
        net = network(4, starts=False, rules=replace(LONG, hop_s=5.0))
        await net.start("n1")
        connection, same = await greet(net, "n0", "n1"), garbage(net, "n1")
        desk = net.nodes["n1"].desk
        desk.custody.visits.allowed = 1
        for seq in range(1, 31):
            assert await offer(connection, seq, same) == Ack(seq)
        assert net.tally("rested") == 29
        assert len(desk._timers) <= 4
        assert len(desk._arrived) <= 4
        connection.close()
        await net.stop()

    asyncio.run(main())


def test_release_does_not_tell_how_often_bytes_had_been_here(network: Make) -> None:
    """With spares: what rests, because it came too often, is released when everything is."""

    async def main() -> dict[int, float]:
        rules = RunRules(walk=SIMPLE, updates=1000, late_hops=1e9, dwell_s=0.4, spare_s=0.2)
        net = network(4, starts=False, rules=rules, limits=Limits(connect_s=0.5, retry_s=0.1, answer_s=5.0))
        connection, released = await watched_releases(net)
        visits = net.nodes["n1"].desk.custody.visits
        visits.allowed = 1
        same, delays = garbage(net, "n1"), {}
        for seq in range(1, 4):
            assert await offer(connection, seq, same) == Ack(seq)
            begin = time.monotonic()
            while seq not in released:
                await connection.idle(asyncio.Event(), 0.05)
            delays[seq] = released[seq] - begin
        connection.close()
        await net.stop()
        return delays

    delays = asyncio.run(main())
    assert max(delays.values()) - min(delays.values()) < 0.3


def test_an_offer_of_an_epoch_that_is_over_is_not_taken(network: Make) -> None:
    """Held before a new roster and given after it: nobody would take it from here, and its link would stand still."""

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = garbage(net, "n1")
        await connection.send(Offer(1, len(message), hashlib.sha256(message).digest()), message)
        assert await connection.receive(5) == Ack(1)
        custody = net.nodes["n1"].desk.custody
        opener = custody.opener
        opener._clear = {bytes([2, 1, 9, 0])}
        await net.nodes["n1"].desk.follow(opener=opener, next_hop=custody.next_hop, allowed_visits=9)
        await connection.send(Go(1))
        assert await connection.receive(5) == Refusal(1, Nak.UNKNOWN)
        connection.close()
        await net.stop()
        assert net.tally("taken", "n1") == 0

    asyncio.run(main())


def test_what_is_held_is_not_changed_by_what_comes_after_it(network: Make) -> None:
    """A neighbour offers, asks about another number, and offers again, but not all: the bytes were in one place."""

    async def main() -> None:
        net = network(4, starts=False, rules=replace(LONG, dwell_s=0.1))
        await net.start("n1")
        first, second = (message_for(net, goal, counts=[0.0] * 4) for goal in ("n1", "n3"))
        connection = await greet(net, "n0", "n1")
        await connection.send(Offer(1, len(first), hashlib.sha256(first).digest()), first)
        assert await connection.receive(5) == Ack(1)
        await connection.send(Go(7))
        assert await connection.receive(5) == Refusal(7, Nak.UNKNOWN)
        assert connection._transport is not None
        connection._transport.write(encode(Offer(1, len(second), hashlib.sha256(second).digest())) + second[:-1])
        await asyncio.sleep(0.2)
        again = await greet(net, "n0", "n1")
        await again.send(Go(1))
        # What it trains on and what it takes for its own are the same, or it takes nothing.
        if await again.receive(5) == Ack(1):
            await net.until(lambda: net.tally("updates", "n1") == 1, 3)
        connection.close()
        again.close()
        await net.stop()

    asyncio.run(main())


def test_waits_of_who_comes_back_do_not_add_up() -> None:
    """Nobody takes tokens in advance: each waits for one, whoever has given up meanwhile."""

    async def main() -> float:
        bucket = TokenBucket(20.0, 1)
        await bucket.take()
        waiting = [asyncio.create_task(bucket.take()) for _ in range(100)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        begin = time.monotonic()
        await bucket.take()
        return time.monotonic() - begin

    assert asyncio.run(main()) < 1.0


class Full(io.StringIO):
    """A file on a disk that is full."""

    def write(self, _: str) -> int:
        """Write nothing."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_that_cannot_be_written_ends_nothing(network: Make) -> None:
    """As where it is on the disk that is full, or goes down a pipe that nobody reads any more."""

    async def main() -> None:
        net = network(4, starts=False)
        net.change("n1", log=Log(Full()))
        net._listens = lambda name: bool(net.nodes[name].links_up)
        await net.start("n0", "n1")
        net.nodes["n1"].trouble("storage: No space left on device")
        await net.stop("n0")
        await net.until(lambda: net.nodes["n1"].events["link_losses"])
        await asyncio.sleep(0.1)
        assert not net.runs["n1"].done()
        await net.stop()

    asyncio.run(main())


def test_an_end_that_was_undone_is_believed_no_more_after_the_next(tmp_path: Path) -> None:
    """Members have vouched for each of them, and somebody keeps their words."""
    digests = []
    for number in range(3):
        spool = Spool(FolderDisk(tmp_path))
        with spool.transaction() as register:
            stored = spool.store(bytes([number]), plain=True)
            register.set_model("final", stored, tag=bytes(8), iteration=400)
        spool.close()
        digests.append(stored.digest)
        assert unfinish_node(tmp_path)
    spool = Spool(FolderDisk(tmp_path))
    assert undone_ends(spool.tables) == tuple(digests)
    spool.close()


def test_ever_better_ends_are_not_handed_on_for_ever(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would go to all members by all links: one message of somebody's, and two of the network's for every edge."""
    monkeypatch.setattr("veilwalk.node.peer._destination.MOST_ENDS", 3)
    own = np.array([9.0, 0.0, 0.0, 0.0])
    near = (own + np.array([step * 1e-3, 2, 0, 0]) for step in range(6))
    ends = sorted(near, key=lambda model: hashlib.sha256(model.tobytes()).digest())

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        await offer(connection, 1, message_for(net, "n1", counts=own.tolist(), iteration=398))
        await net.until(lambda: net.tally("updates") == 1)
        run = net.parts["n0"].membership.manifest.run_id
        said: dict[str, Any] = {"iteration": 400, "final": True, "walk_tag": bytes(8)}
        for seq, end in enumerate(ends, start=2):
            word = vouch(net.keys["n0"], run, 400, hashlib.sha256(end.tobytes()).digest())
            message = message_for(net, "n1", counts=end.tolist(), vouch=word, **said)
            assert await offer(connection, seq, message) == Ack(seq)
            await net.until(lambda: all(row.peer for row in net.look("n1")["messages"]))
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert (net.look("n1")["final"] == ends[2]).all()
    assert net.tally("refused") == 3


def test_metrics_are_told_to_a_few_at_once() -> None:
    """Who reaches their port and says nothing takes no files from the run; who asks is answered all the same."""

    async def main() -> int:
        server = MetricsServer([], Log(), {})
        await server.start("127.0.0.1", 0)
        assert server._server is not None
        port = server._server.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        await asyncio.sleep(0.2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b"200 OK" in await reader.read()
        open_still = sum(not one.at_eof() and one.exception() is None for one, _ in silent)
        for _, other in (*silent, (reader, writer)):
            other.transport.abort()
        server.close()
        await asyncio.sleep(0.1)
        return open_still

    assert asyncio.run(main()) <= 16


def test_a_roster_leaves_no_offers_of_before(network: Make) -> None:
    """As above, by a real new roster: only what is of an epoch that is over is forgotten."""

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n1", counts=[0.0] * 4)
        await connection.send(Offer(1, len(message), hashlib.sha256(message).digest()), message)
        assert await connection.receive(5) == Ack(1)
        roster = changed_roster(net.roster, list(net.roster.edges), cards={}, removed=[], now=int(time.time()), days=1)
        await net.nodes["n1"].follow(roster, net.keys["n1"])
        connection = await greet(net, "n0", "n1")
        await connection.send(Go(1))
        assert await connection.receive(5) == Ack(1)
        await net.until(lambda: net.tally("updates") == 1)
        connection.close()
        await net.stop()

    asyncio.run(main())


def test_what_a_full_disk_kept_leaves_when_a_trained_one_would(network: Make) -> None:
    """A relay that tried again and again would go at any moment, where who trained goes after whole dwells."""

    async def main() -> float:
        net = network(4, starts=False, rules=replace(LONG, dwell_s=0.7))
        await net.start("n1")
        desk, tried = net.nodes["n1"].desk, []
        pin = desk.custody.pin

        def pin_or_fail(number: int) -> Any:
            tried.append(time.monotonic())
            if len(tried) == 1:
                raise SpoolError("storage: No space left on device")
            return pin(number)

        desk.custody.pin = pin_or_fail
        connection = await greet(net, "n0", "n1")
        assert await offer(connection, 1, garbage(net, "n1")) == Ack(1)
        (arrived,) = desk._arrived.values()
        await net.until(lambda: len(tried) > 1)
        connection.close()
        await net.stop()
        return float(tried[1] - arrived) / 0.7

    dwells = asyncio.run(main())
    assert abs(dwells - 3) < 0.35
