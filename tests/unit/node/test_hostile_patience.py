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
from types import SimpleNamespace
from typing import Any

from tests.helpers.members import ack, garbage, greet, key, message_for, offer

from veilwalk.core.errors import SpoolError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.node import Limits, RunRules
from veilwalk.node.link._limits import TokenBucket
from veilwalk.node.link._wire import Go, Nak, Offer, Refusal, encode
from veilwalk.node.members import changed_roster
from veilwalk.node.peer._observe import Log, MetricsServer
from veilwalk.node.peer._status import unfinish_node
from veilwalk.node.spool import FolderDisk, Spool

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)
STRAIGHT = RunRules(walk=Walk("non-backtracking"), updates=400, late_hops=1e9)
QUICK = Limits(retry_s=0.1, connect_s=2.0, answer_s=3.0)


def test_what_is_gone_waits_for_no_moment(network: Make) -> None:
    """The same bytes again and again are to rest, ever longer; those that were crowded out do not."""

    async def main() -> None:
        net = network(4, starts=False, rules=replace(LONG, hop_s=5.0))
        await net.start("n1")
        connection, same = await greet(net, "n0", "n1"), garbage(net, "n1")
        desk = net.nodes["n1"].scheduler
        desk.custody.visits.allowed = 1
        most = Limits().quota
        for seq in range(1, 2 * most + 1):
            assert await offer(connection, seq, same) == ack(seq)
        assert net.tally("rested") == 2 * most - 1
        # One besides is for the announcing of an end.
        assert len(desk._timers) <= most + 1
        assert len(desk._arrived) <= most
        connection.close()
        await net.stop()

    asyncio.run(main())


def test_an_offer_of_an_epoch_that_is_over_is_not_taken(network: Make) -> None:
    """Held before a new roster and given after it: nobody would take it from here, and its link would stand still."""

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = garbage(net, "n1")
        await connection.send(Offer(key(1), len(message), hashlib.sha256(message).digest()), message)
        assert await connection.receive(5) == ack(1)
        custody = net.nodes["n1"].scheduler.custody
        opener = custody.opener
        opener._clear = {bytes([2, 1, 9, 0])}
        custody.follow(opener=opener, next_hop=custody.next_hop, allowed_visits=9)
        await connection.send(Go(key(1)))
        assert await connection.receive(5) == Refusal(key(1), Nak.UNKNOWN)
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
        await connection.send(Offer(key(1), len(first), hashlib.sha256(first).digest()), first)
        assert await connection.receive(5) == ack(1)
        await connection.send(Go(key(7)))
        assert await connection.receive(5) == Refusal(key(7), Nak.UNKNOWN)
        assert connection._transport is not None
        connection._transport.write(encode(Offer(key(1), len(second), hashlib.sha256(second).digest())) + second[:-1])
        await asyncio.sleep(0.2)
        again = await greet(net, "n0", "n1")
        await again.send(Go(key(1)))
        # What it trains on and what it takes for its own are the same, or it takes nothing.
        if await again.receive(5) == ack(1):
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
    assert spool.tables.undone_ends() == tuple(digests)
    spool.close()


def test_metrics_are_told_to_a_few_at_once() -> None:
    """Who reaches their port and says nothing takes no files from the run; who asks is answered all the same."""

    async def main() -> int:
        process: Any = SimpleNamespace(log=Log(), watch=None, refused="")
        server = MetricsServer(process)
        await server.start("127.0.0.1", 0)
        assert server._server is not None
        port = server._server.sockets[0].getsockname()[1]
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        await asyncio.sleep(0.2)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert b"503 Service Unavailable" in await reader.read()
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
        await connection.send(Offer(key(1), len(message), hashlib.sha256(message).digest()), message)
        assert await connection.receive(5) == ack(1)
        roster = changed_roster(net.roster, list(net.roster.edges), cards={}, removed=[], now=int(time.time()), days=1)
        await net.nodes["n1"].follow(roster, net.keys["n1"])
        connection = await greet(net, "n0", "n1")
        await connection.send(Go(key(1)))
        assert await connection.receive(5) == ack(1)
        await net.until(lambda: net.tally("updates") == 1)
        connection.close()
        await net.stop()

    asyncio.run(main())


def test_what_a_full_disk_kept_leaves_when_a_trained_one_would(network: Make) -> None:
    """A relay that tried again and again would go at any moment, where who trained goes after whole dwells."""

    async def main() -> float:
        net = network(4, starts=False, rules=replace(LONG, dwell_s=0.7))
        await net.start("n1")
        desk, tried = net.nodes["n1"].scheduler, []
        pin = desk.custody.pin

        def pin_or_fail(number: int) -> Any:
            tried.append(time.monotonic())
            if len(tried) == 1:
                raise SpoolError("storage: No space left on device")
            return pin(number)

        desk.custody.pin = pin_or_fail
        connection = await greet(net, "n0", "n1")
        assert await offer(connection, 1, garbage(net, "n1")) == ack(1)
        (arrived,) = desk._arrived.values()
        await net.until(lambda: len(tried) > 1)
        connection.close()
        await net.stop()
        return float(tried[1] - arrived) / 0.7

    dwells = asyncio.run(main())
    assert abs(dwells - 3) < 0.35
