"""Messages from one node to the next: offered, given, refused, sent another way, never copied."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.helpers.members import ack, greet, key, message_for, offer, size_of

from veilwalk.core.errors import SpoolError
from veilwalk.core.geometry import CLEAR_BYTES
from veilwalk.core.walk import SIMPLE
from veilwalk.node import Limits, RunRules
from veilwalk.node.link._connection import dial, dialing_context
from veilwalk.node.link._wire import Ack, Go, Nak, Offer, Refusal
from veilwalk.node.members import new_node_keys
from veilwalk.node.peer import Law
from veilwalk.node.spool._disk import FolderDisk

Make = Callable[..., Any]


def test_what_was_offered_and_not_given_is_not_used(network: Make) -> None:
    """A neighbour that falls silent after its offer may have sent it another way: nobody trains on it here."""

    async def main() -> Any:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n1", counts=[0.0] * 4)
        import hashlib

        await connection.send(Offer(key(1), len(message), hashlib.sha256(message).digest()), message)
        assert await connection.receive(5) == ack(1)
        connection.close()
        await asyncio.sleep(0.3)
        assert net.look("n1")["messages"] == []
        connection = await greet(net, "n0", "n1")
        await connection.send(Go(key(1)))
        assert await connection.receive(5) == ack(1)
        await connection.send(Go(key(1)))
        assert await connection.receive(5) == ack(1)
        await connection.send(Go(key(2)))
        assert await connection.receive(5) == Refusal(key(2), Nak.UNKNOWN)
        await net.until(lambda: net.tally("updates") == 1)
        connection.close()
        await net.stop()
        return net

    assert asyncio.run(main()).tally("taken") == 1


def test_what_was_given_waits_for_a_neighbour_that_died(network: Make) -> None:
    """Between GO and its answer nobody knows whether it is used: it goes no other way, and is used once."""

    async def main() -> Any:
        limits = Limits(pin_s=0.2, retry_s=0.1, connect_s=1.0, answer_s=0.5, ping_s=0.5)
        net = network(4, recipients=3, rules=RunRules(walk=SIMPLE, updates=40, late_hops=1e9), limits=limits)
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        desk = net.nodes["n2"].scheduler
        take = desk.take

        async def dies(peer: str, key: bytes) -> Any:
            """Take it, and never answer."""
            desk.take = take
            await take(peer, key)
            net.stops["n2"].set()
            await asyncio.sleep(60)

        desk.take = dies
        await net.until(net.runs["n2"].done)
        await net.stop("n2")
        before = net.tally("rerouted")
        await asyncio.sleep(0.8)
        waiting = [row for name in ("n1", "n3") for row in net.look(name)["messages"] if row.peer == "n2"]
        assert len(waiting) == 1
        assert net.tally("rerouted") == before
        await net.start("n2")
        await net.until(net.finished, 40)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]


def test_a_silent_neighbour_is_passed_by(network: Make) -> None:
    """After pin_s the message goes another way; when the neighbour is back it takes part again."""

    async def main() -> Any:
        # For so long it is not known to be away, and is drawn again.
        limits = Limits(pin_s=0.3, retry_s=0.1, connect_s=30.0, answer_s=1.0, ping_s=0.5)
        net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=1e9), limits=limits)
        everybody_but = dict.fromkeys(("n1", "n3"), 1 / 2)
        net.change("n0", law=Law(shares=everybody_but))
        for name in ("n1", "n3"):
            net.change(name, law=Law(shares={"n0": 1.0}))
        await net.start("n0", "n1", "n3")
        await net.until(lambda: net.tally("rerouted") >= 2)
        await net.start("n2")
        await net.until(net.finished, 40)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]


def test_replayed_messages_are_opened_once(network: Make) -> None:
    """A neighbour that offers the same ciphertext again and again adds nothing to the model."""

    async def main() -> Any:
        net = network(4, starts=False, rules=RunRules(walk=SIMPLE, updates=1000, late_hops=1e9))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n1", counts=[0.0] * 4)
        for seq in (1, 2, 3, 4):
            assert await offer(connection, seq, message) == ack(seq)
            if seq > 2:
                # The first copies come while the very first is still being trained on.
                await net.until(lambda: net.tally("updates") == 1)
        # They go on, with the one that was made of the first: nobody sees from that whose they were.
        await net.until(lambda: len([row for row in net.look("n1")["messages"] if row.peer is not None]) == 4)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("updates") == 1
    assert net.look("n1")["checkpoint"].tolist() == [0, 1, 0, 0]


def test_a_neighbour_is_held_to_its_quota(network: Make) -> None:
    """Garbage that nobody opens takes the place of what the same neighbour sent before, and does not fill the node."""

    async def main() -> Any:
        net = network(4, starts=False, limits=Limits(quota=2))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        answers: list[Any] = []
        for _ in range(4):
            garbage = message_for(net, "n3", counts=[0.0] * 4)
            clear, rest = garbage[:CLEAR_BYTES], os.urandom(len(garbage) - CLEAR_BYTES)
            answers.append(await offer(connection, len([a for a in answers if isinstance(a, Ack)]) + 1, clear + rest))
        connection.close()
        await net.stop()
        return answers, len(net.look("n1")["messages"]), net.tally("crowded_out")

    answers, held, crowded_out = asyncio.run(main())
    assert answers == [ack(seq) for seq in range(1, 5)]
    assert (held, crowded_out) == (2, 2)


def test_damaged_bytes_and_other_epochs_are_refused(network: Make) -> None:
    async def main() -> Any:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n3", counts=[0.0] * 4)
        await connection.send(Offer(key(1), len(message), bytes(32)), message)
        damaged = await connection.receive(5)
        later = message[:2] + bytes([message[2] + 9]) + message[3:]
        other = await offer(connection, 1, later)
        connection.close()
        await net.stop()
        return damaged, other

    assert asyncio.run(main()) == (Refusal(key(1), Nak.DAMAGED), Refusal(key(1), Nak.REFUSED))


def test_only_neighbours_with_their_own_key_are_let_in(network: Make, tmp_path: Any) -> None:
    """Not a member without an edge, not a stranger, and not a stranger under a neighbour's name."""
    from veilwalk.core.errors import TransportError

    async def main() -> Any:
        net = network(4, starts=False)
        await net.start("n1")
        stranger = new_node_keys(tmp_path / "x", node_id="n0", address="127.0.0.1:1", suite=net.roster.suite)
        for keys in (stranger, net.keys["n3"]):
            with pytest.raises(TransportError):
                await greet(net, "n0", "n1", keys)
        connection = await greet(net, "n0", "n1")
        connection.close()
        await net.stop()
        return net

    asyncio.run(main())


def test_a_peer_with_another_key_than_the_rosters_is_not_spoken_to(network: Make) -> None:
    """The dialer looks too."""
    from veilwalk.core.errors import TransportError

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n1", "n3")
        # n1's address in the place of n3's: the roster's key for n3 is not what answers there.
        member = replace(net.roster.member("n3"), address=net.roster.member("n1").address)
        context = dialing_context(net.keys["n2"], net.roster.trust_anchors(["n1", "n3"]))
        with pytest.raises(TransportError, match="not the roster's"):
            await dial(member, context, message_bytes=size_of(net), timeout_s=5)
        await net.stop()

    asyncio.run(main())


def test_a_node_whose_disk_was_lost_is_not_cut_off(network: Make) -> None:
    """It numbers its messages from the beginning and knows none of its neighbours': both are told by HELLO."""
    import shutil

    async def main() -> Any:
        net = network(3, rules=RunRules(walk=SIMPLE, updates=2000, late_hops=30, hop_s=0.02))
        await net.start()
        await net.until(lambda: net.tally("hops", "n1") >= 10)
        await net.stop("n1")
        shutil.rmtree(net.folder / "state-n1")
        await net.start("n1")
        before = net.tally("updates")
        await net.until(lambda: net.tally("updates") >= before + 20 and net.tally("hops", "n1") >= 10, 40)
        await net.stop()
        return net.tally("updates") - before, net.tally("hops", "n1")

    more_updates, hops_of_the_new_disk = asyncio.run(main())
    assert more_updates >= 20
    assert hops_of_the_new_disk >= 10


def test_a_message_cut_short_on_disk_is_thrown_away_and_the_link_goes_on(network: Make) -> None:
    """The walk is lost and made again; nothing broken is ever offered."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=40, late_hops=100, hop_s=0.02))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        await net.stop()
        for name in net.names:
            database = sqlite3.connect(net.folder / f"state-{name}" / "spool.db")
            database.execute("UPDATE body SET bytes = substr(bytes, 1, 100) WHERE id IN (SELECT body FROM message)")
            database.commit()
            database.close()
        await net.start()
        await net.until(net.finished, 60)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("damaged") >= 1
    assert net.tally("created") >= 1
    assert not any("turned_away" in log.getvalue() for log in net.logs.values())


def test_a_disk_that_fails_for_a_while_loses_nothing(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second transaction of every node fails, at its end; no node falls over, and then training ends."""
    failing = {"now": False, "times": 0}
    original = FolderDisk.transaction

    @contextmanager
    def transaction(self: FolderDisk, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        with original(self, durable=durable) as database:
            yield database
            if failing["now"]:
                failing["times"] += 1
                if failing["times"] % 2:
                    raise SpoolError("storage: No space left on device")

    monkeypatch.setattr(FolderDisk, "transaction", transaction)

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=40, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        failing["now"] = True
        await net.until(lambda: failing["times"] > 60, 40)
        failing["now"] = False
        await net.until(net.finished, 60)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]
    assert any("storage_trouble" in log.getvalue() for log in net.logs.values())
