"""Neighbours that bring too much, come again and again, or keep others waiting: who is honest loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.members import ack, garbage, greet, message_for, offer, size_of, slow
from tests.helpers.wire import feed

from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.node import Limits, RunRules
from veilwalk.node.link import dialing_context, listening_context
from veilwalk.node.link._connection import dial
from veilwalk.node.link._wire import Frame, Go, Hello, Nak, Offer, Ping, Refusal, Wire
from veilwalk.node.spool import Spool

Make = Callable[..., Any]
STRAIGHT = RunRules(walk=Walk("non-backtracking"), updates=400, late_hops=1e9)


@contextlib.asynccontextmanager
async def takes_nothing(net: Any, name: str) -> AsyncIterator[None]:
    """Somebody at the address of ``name`` who refuses every message."""

    async def answer(frame: Frame) -> Frame:
        match frame:
            case Hello():
                hello: Hello = net.parts[name].membership.hello(b"incarnat")
                return hello
            case Ping():
                return Ping()
            case Offer() | Go():
                return Refusal(frame.key, Nak.BUSY)
            case _:
                raise AssertionError(frame)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire("listener", message_bytes=size_of(net))
        with contextlib.suppress(asyncio.CancelledError, OSError):
            while data := await reader.read(1 << 16):
                for frame in feed(wire, data):
                    writer.write(wire.send(await answer(frame)))
        writer.transport.abort()

    context = listening_context(net.keys[name], net.roster.trust_anchors(net.roster.neighbours(name)))
    port = socket.create_server(("127.0.0.1", net.roster.member(name).port))
    server = await asyncio.start_server(serve, sock=port, ssl=context)
    try:
        yield
    finally:
        server.close()
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def beside_one_that_takes_nothing(network: Make, *, pin_s: float = 0.0) -> AsyncIterator[tuple[Any, Any]]:
    """A network and its node n1, between n0, which works, and n2, which does not."""
    limits = Limits(retry_s=0.1, connect_s=2.0, answer_s=2.0, pin_s=pin_s)
    net = network(4, starts=False, rules=STRAIGHT, limits=limits)
    async with takes_nothing(net, "n2"):
        await net.start("n0", "n1")
        await net.until(lambda: net.nodes["n1"].links_up == 2)
        yield net, net.nodes["n1"]
        await net.stop()


def test_what_is_crowded_out_while_it_is_worked_on_takes_nothing_else_along(
    network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is another message's by the time the work is done: that one stays, whoever brought it."""
    # All messages in files, as large ones are.
    monkeypatch.setitem(Spool.__init__.__kwdefaults__, "inline_bytes", 1024)  # type: ignore[arg-type]
    rules = RunRules(walk=SIMPLE, updates=400, late_hops=1e9, dwell_s=4.0)

    async def main() -> None:
        limits = Limits(retry_s=0.2, connect_s=2.0, answer_s=3.0, quota=4)
        net = network(4, starts=False, rules=rules, limits=limits)
        net.change("n1", task=slow(net.parts["n1"].task, 1.5))
        await net.start("n1")
        custody = net.nodes["n1"].scheduler.custody
        # The first of those that may go, as it is now and then.
        custody._draws = SimpleNamespace(below=lambda _: 0)
        bad, honest = await greet(net, "n0", "n1"), await greet(net, "n2", "n1")
        # Two of one id: the second turns out to be a copy, and stands before the one that is worked on next.
        same = os.urandom(16)
        for seq, update in enumerate((same, same, None, None, None, None), start=1):
            options: dict[str, Any] = {"walk_tag": os.urandom(8), "update_id": update}
            assert await offer(bad, seq, message_for(net, "n1", counts=[0.0] * 4, **options)) == ack(seq)
            if seq == 4:
                await net.until(lambda: net.tally("updates") == 1)
        await net.until(lambda: net.tally("crowded_out") == 2)
        assert await offer(honest, 1, garbage(net, "n1")) == ack(1)
        await net.until(lambda: net.tally("updates") == 2)
        for seq in (2, 3):
            assert await offer(honest, seq, garbage(net, "n1")) == ack(seq)
        brought = [row for row in custody.spool.tables.messages() if row.came_from == "n2"]
        assert len([custody.spool.read(row) for row in brought]) == 3
        assert net.nodes["n1"].events["storage_troubles"] == 0
        bad.close()
        honest.close()
        await net.stop()

    asyncio.run(main())


def test_a_neighbour_that_takes_nothing_holds_few_walks_up(network: Make) -> None:
    """It is there, so no walk is missed, and each would wait for it: after the first it is passed by for a while."""

    async def main() -> None:
        async with beside_one_that_takes_nothing(network, pin_s=0.3) as (net, node):
            assert not node.avoided()
            # Not for the first time.
            node._out_links["n2"]._shunned_times = 16
            node._out_links["n2"]._shunned_until = time.monotonic()
            waiting = node.scheduler.custody.waits_for
            while not waiting("n2"):
                await node.scheduler.create(first=False)
            await net.until(lambda: net.tally("rerouted", "n1"))
            await net.until(lambda: node.avoided() == {"n2"}, timeout_s=5)
            for _ in range(10):
                await node.scheduler.create(first=False)
            assert not waiting("n2")
            assert node.links_up == 2
            node._out_links["n2"]._shunned_until = 0.0
            assert not node.avoided()

    asyncio.run(main())


def test_a_member_that_was_busy_for_a_moment_gets_messages_again_soon(network: Make) -> None:
    """All its neighbours pass it by meanwhile, and with one recipient nobody else opens what is sealed for it."""

    async def main() -> tuple[float, float]:
        limits = Limits(retry_s=0.1, connect_s=2.0, answer_s=2.0, pin_s=0.4)
        net = network(4, rules=replace(STRAIGHT, updates=100_000), limits=limits)
        await net.start()
        links = [net.nodes[name]._out_links["n1"] for name in ("n0", "n2")]
        net.nodes["n1"].scheduler.draining = True
        await net.until(lambda: all(link._shunned_until for link in links), 20)
        net.nodes["n1"].scheduler.draining = False
        back_at, before = time.monotonic(), net.tally("taken", "n1")
        shunned_s = max(link._shunned_until for link in links) - back_at
        await net.until(lambda: net.tally("taken", "n1") > before)
        waited_s = time.monotonic() - back_at
        await net.stop()
        return shunned_s, waited_s

    shunned_s, waited_s = asyncio.run(main())
    # Twice as long as it kept a message, not twenty times: a second or so, and eight or more.
    assert shunned_s < 4
    assert waited_s < 10


def test_a_neighbour_that_starts_later_is_not_passed_by(network: Make) -> None:
    """What waited for it goes another way, but it kept nothing waiting: it was not there."""

    async def main() -> None:
        limits = Limits(retry_s=0.1, connect_s=20.0, answer_s=2.0, pin_s=0.3)
        net = network(4, starts=False, rules=STRAIGHT, limits=limits)
        await net.start("n0", "n1")
        node = net.nodes["n1"]
        await net.until(lambda: node.links_up == 1)
        while not net.tally("rerouted", "n1"):
            await node.scheduler.create(first=False)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.2)
        assert not node.avoided()
        await net.start("n2")
        await net.until(lambda: net.tally("taken", "n2"), timeout_s=5)
        await net.stop()

    asyncio.run(main())


def test_a_neighbour_that_was_busy_is_better_than_none(network: Make) -> None:
    """The other one is not there: what goes on, or waits for that one, goes to the one that took nothing lately."""

    async def main() -> None:
        limits = Limits(retry_s=0.1, connect_s=0.5, answer_s=2.0)
        net = network(4, starts=False, rules=STRAIGHT, limits=limits)
        await net.start("n1", "n2")
        node = net.nodes["n1"]
        await net.until(lambda: node.avoided() == {"n0"})
        node._out_links["n2"]._shunned_until = time.monotonic() + 60
        custody, message = node.scheduler.custody, garbage(net, "n1")

        def bring() -> Any:
            """A message that would not go straight back, if there were another."""
            with custody.spool.transaction() as register:
                return register.add_message(custody.spool.store(message), came_from="n2")

        node.scheduler._settle(await node.scheduler.store(bring), for_us=False)
        await net.until(lambda: net.tally("hops", "n1"), timeout_s=5)
        assert net.tally("rerouted", "n1") == 0
        await net.stop()

    asyncio.run(main())


def test_a_neighbour_that_comes_again_and_again_leaves_the_disk_to_others(network: Make) -> None:
    """Each time with another disk, which is written down: of greetings that come while one is, only the last is."""

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n1")
        storage, may_go_on = net.nodes["n1"].scheduler, threading.Event()
        # A disk that is slower than handshakes are.
        writing = asyncio.create_task(storage.store(may_go_on.wait, 20))
        await asyncio.sleep(0.1)
        context = dialing_context(net.keys["n0"], net.roster.trust_anchors(["n1"]))
        for _ in range(30):
            connection = await dial(net.roster.member("n1"), context, message_bytes=size_of(net), timeout_s=5)
            await connection.send(net.parts["n0"].membership.hello(os.urandom(8)))
        await asyncio.sleep(0.2)
        # Beside it the links to neighbours that are away look after what waits for them.
        assert storage._storage._work_queue.qsize() <= 8
        assert len(net.nodes["n1"]._in_links._open) <= 10
        may_go_on.set()
        await writing
        assert isinstance(await connection.receive(5), Hello)
        assert net.nodes["n1"]._disks["n0"] == 2
        connection.close()
        await net.stop()

    asyncio.run(main())
