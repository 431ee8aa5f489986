"""Nodes at work: real sockets and disks, one process."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.members import greet, message_for, offer, size_of

from veilwalk.core.errors import ConfigError, SpoolError, VeilwalkError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.node import Limits, RunRules
from veilwalk.node.link._connection import dial, dialing_context
from veilwalk.node.link._wire import Ack, Go, Nak, Offer, Refusal
from veilwalk.node.members import changed_roster, new_node_keys, rotate_node_keys, rotated_roster
from veilwalk.node.peer import DestinationRow
from veilwalk.node.spool._disk import FolderDisk

Make = Callable[..., Any]


def test_a_model_is_trained_and_handed_to_every_member(network: Make) -> None:
    """Every update is in the finished model once, and everybody ends with the same model."""

    async def main() -> Any:
        net = network(5, rules=RunRules(walk=SIMPLE, updates=30, late_hops=1e9))
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    finals = [net.look(name)["final"] for name in net.names]
    made = [net.tally("updates", name) for name in net.names]
    assert sum(made) == 30
    for final in finals:
        assert final.tolist() == made
    assert net.tally("taken") == net.tally("hops") + net.tally("farewells")


@pytest.mark.parametrize("recipients", [3, 5, 9])
def test_sealed_for_several_the_first_met_trains(network: Make, recipients: int) -> None:
    """Every update is in the finished model once, also where there are more slots than members to seal for."""

    async def main() -> Any:
        net = network(6, recipients=recipients, rules=RunRules(walk=SIMPLE, updates=30, late_hops=1e9))
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    made = [net.tally("updates", name) for name in net.names]
    assert sum(made) == 30
    assert all(net.look(name)["final"].tolist() == made for name in net.names)
    # With everybody a recipient, the next member always opens.
    assert recipients < 5 or net.tally("hops") == 30
    assert net.tally("forks") == 0


def test_what_was_offered_and_not_given_is_not_used(network: Make) -> None:
    """A neighbour that falls silent after its offer may have sent it another way: nobody trains on it here."""

    async def main() -> Any:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n1", counts=[0.0] * 4)
        import hashlib

        await connection.send(Offer(1, len(message), hashlib.sha256(message).digest()), message)
        assert await connection.receive(5) == Ack(1)
        connection.close()
        await asyncio.sleep(0.3)
        assert net.look("n1")["messages"] == []
        connection = await greet(net, "n0", "n1")
        await connection.send(Go(2))
        assert await connection.receive(5) == Refusal(2, Nak.UNKNOWN)
        await connection.send(Go(1))
        assert await connection.receive(5) == Ack(1)
        await connection.send(Go(1))
        assert await connection.receive(5) == Ack(1)
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
        desk = net.nodes["n2"].desk
        take = desk.take

        async def dies(peer: str, seq: int) -> Any:
            """Take it, and never answer."""
            desk.take = take
            await take(peer, seq)
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


def test_a_branch_that_is_behind_is_given_up(network: Make) -> None:
    """Somebody copied a message for several, and two opened it: the one behind ends where both come, and is counted."""

    async def main() -> Any:
        net = network(4, starts=False, recipients=2, rules=RunRules(walk=SIMPLE, updates=1000, late_hops=1e9))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq, iteration in enumerate((7, 5, 7, 8, 9), start=1):
            message = message_for(net, "n1", counts=[0.0] * 4, iteration=iteration)
            assert await offer(connection, seq, message) == Ack(seq)
            await net.until(lambda seq=seq: net.tally("updates") + net.tally("forks") == seq)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert (net.tally("updates"), net.tally("forks")) == (3, 2)


@pytest.mark.parametrize(("walk", "mix"), [("non-backtracking", 0.0), ("least-recent", 0.0), ("least-recent", 0.5)])
def test_other_walks_arrive_too(network: Make, walk: Any, mix: float) -> None:
    async def main() -> Any:
        net = network(6, chords=((0, 3), (1, 4)), rules=RunRules(walk=Walk(walk, mix), updates=15, late_hops=1e9))
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    assert asyncio.run(main()).tally("updates") == 15


def test_a_node_goes_on_where_it_stopped(network: Make) -> None:
    """All stop in the middle, start again, and nothing is lost or doubled."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=40, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 5)
        await net.stop()
        assert sum(len(net.look(name)["messages"]) for name in net.names) >= 1
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]
    assert net.tally("started") == 1


def test_every_message_stays_the_dwell_time_trained_or_not(network: Make) -> None:
    """Training takes most of it, and is not seen: a trained message leaves when a relayed one would."""
    gaps: dict[bool, list[float]] = {True: [], False: []}

    class Slow:
        def __init__(self, learner: Any) -> None:
            self.init_params, self.evaluate, self._learner = learner.init_params, learner.evaluate, learner

        def update(self, *values: Any) -> Any:
            """Take a while."""
            time.sleep(0.2)
            return self._learner.update(*values)

    async def main() -> None:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=6, late_hops=1e9, dwell_s=0.3))
        for name in net.names:
            net.change(name, task=replace(net.parts[name].task, learner=Slow(net.parts[name].task.learner)))
        await net.start()
        for node in net.nodes.values():
            watch(node.desk)
        await net.until(net.finished, 60)
        await net.stop()

    def watch(desk: Any) -> None:
        take, pin = desk.custody.take, desk.custody.pin
        last: dict[str, Any] = {}

        def taking(*values: Any) -> Any:
            found = take(*values)
            last.update(time=time.monotonic(), for_us=found.for_us)
            return found

        def pinning(number: int) -> Any:
            if last:
                gaps[last["for_us"]].append(time.monotonic() - last["time"])
            return pin(number)

        desk.custody.take, desk.custody.pin = taking, pinning

    asyncio.run(main())
    assert len(gaps[True]) >= 4
    assert min(gaps[True] + gaps[False]) > 0.28
    # Without the constant dwell a trained message would leave after 0.5 s.
    assert np.median(gaps[True]) < 0.44
    assert np.median(gaps[False]) < 0.44


def test_a_silent_neighbour_is_passed_by_and_its_number_cancelled(network: Make) -> None:
    """After pin_s the message goes another way; when the neighbour is back the numbers go on without a gap."""

    async def main() -> Any:
        limits = Limits(pin_s=0.3, retry_s=0.1, connect_s=1.0, answer_s=1.0, ping_s=0.5)
        net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=1e9), limits=limits)
        everybody_but = dict.fromkeys(("n1", "n3"), 1 / 2)
        net.change("n0", law=DestinationRow.of(everybody_but))
        for name in ("n1", "n3"):
            net.change(name, law=DestinationRow.of({"n0": 1.0}))
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
            assert await offer(connection, seq, message) == Ack(seq)
            if seq > 2:
                # The first copies come while the very first is still being trained on.
                await net.until(lambda: net.tally("updates") == 1)
        await net.until(lambda: net.tally("duplicates") == 3)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("updates") == 1
    assert net.look("n1")["checkpoint"].tolist() == [0, 1, 0, 0]


def test_an_offer_repeated_is_acknowledged_again_and_one_far_ahead_is_not(network: Make) -> None:
    async def main() -> Any:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n3", counts=[0.0] * 4)
        assert await offer(connection, 1, message) == Ack(1)
        assert await offer(connection, 1, message) == Ack(1)
        from veilwalk.core.errors import TransportError

        with pytest.raises(TransportError):
            await offer(connection, 3, message)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("taken") == 1
    assert "far ahead" in net.logs["n1"].getvalue()


def test_a_neighbour_is_held_to_its_quota(network: Make) -> None:
    """Garbage that nobody opens takes the place of what the same neighbour sent before, and does not fill the node."""

    async def main() -> Any:
        net = network(4, starts=False, limits=Limits(quota=2))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        answers: list[Any] = []
        for _ in range(4):
            garbage = message_for(net, "n3", counts=[0.0] * 4)
            clear, rest = garbage[:4], os.urandom(len(garbage) - 4)
            answers.append(await offer(connection, len([a for a in answers if isinstance(a, Ack)]) + 1, clear + rest))
        connection.close()
        await net.stop()
        return answers, len(net.look("n1")["messages"]), net.tally("crowded_out")

    answers, held, crowded_out = asyncio.run(main())
    assert answers == [Ack(seq) for seq in range(1, 5)]
    assert (held, crowded_out) == (2, 2)


def test_damaged_bytes_and_other_epochs_are_refused(network: Make) -> None:
    async def main() -> Any:
        net = network(4, starts=False)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        message = message_for(net, "n3", counts=[0.0] * 4)
        await connection.send(Offer(1, len(message), bytes(32)), message)
        damaged = await connection.receive(5)
        later = message[:2] + bytes([message[2] + 9]) + message[3:]
        other = await offer(connection, 1, later)
        connection.close()
        await net.stop()
        return damaged, other

    assert asyncio.run(main()) == (Refusal(1, Nak.DAMAGED), Refusal(1, Nak.REFUSED))


def test_poisoned_models_are_refused_and_the_walk_goes_on_from_the_nodes_own(network: Make) -> None:
    """Not finite, too large, or much worse on local data: the node trains its own last model instead."""

    async def main() -> Any:
        net = network(4, starts=False, rules=RunRules(walk=SIMPLE, updates=1000, late_hops=1e9))
        net.change("n1", task=replace(net.parts["n1"].task, max_loss_ratio=3.0))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq, counts in enumerate(([1.0, 0, 0, 0], [np.nan] * 4, [1e9] * 4, [50.0] * 4), start=1):
            await offer(connection, seq, message_for(net, "n1", counts=list(counts), iteration=seq))
            await net.until(lambda seq=seq: net.tally("updates") == seq)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("refused") == 3
    assert net.look("n1")["checkpoint"].tolist() == [1, 4, 0, 0]


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


def test_lost_walks_are_made_again_and_surplus_ones_give_way(network: Make) -> None:
    """Nobody starts a walk: after the waiting time somebody does, and training ends with one model all the same."""

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=120, late_hops=20, hop_s=0.02)
        net = network(4, starts=False, rules=rules)
        await net.start()
        await net.until(net.finished, 180)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("created") >= 1
    finals = {net.look(name)["final"].tobytes() for name in net.names}
    assert len(finals) == 1
    assert net.look("n0")["final"].sum() == 120


def test_logs_hold_no_time_and_no_message(network: Make) -> None:
    """Events of processes and links only; nothing is written when a message comes, is trained on, or goes."""

    async def main() -> Any:
        net = network(4)
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    for log in net.logs.values():
        events = [json.loads(line) for line in log.getvalue().splitlines()]
        assert {event["event"] for event in events} <= {"started", "stopped", "link_up", "link_down"}
        for event in events:
            assert event.keys() <= {"event", "level", "node", "neighbours", "roster", "manifest", "peer", "why"}


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


def test_a_new_epoch_is_followed_while_running(network: Make) -> None:
    """Keys change one node after the other, under way: nothing is lost, and the old epoch's messages still open."""

    async def main() -> Any:
        net = network(5, chords=((0, 2),), rules=RunRules(walk=SIMPLE, updates=120, late_hops=1e9))
        await net.start()
        for _ in range(2):
            before = net.tally("updates")
            await net.until(lambda before=before: net.tally("updates") > before + 5)
            keys = {name: rotate_node_keys(net.folder / name) for name in net.names}
            cards = {name: found.member for name, found in keys.items()}
            net.roster = rotated_roster(net.roster, cards=cards, now=int(time.time()), days=1)
            for name in net.names:
                await net.nodes[name].follow(net.roster, keys[name])
                await asyncio.sleep(0.05)
        await net.until(net.finished, 60)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]
    assert net.tally("updates") == 120
    assert all('"version": 3, "epoch": 2' in log.getvalue() for log in net.logs.values())


def test_a_new_roster_reaches_custody_in_the_storage_thread(network: Make) -> None:
    """Custody belongs to one thread: the loop asks that one, and never writes itself."""
    writers: dict[str, str] = {}

    def watch(thing: Any) -> None:
        def note(self: Any, name: str, value: object) -> None:
            writers[name] = threading.current_thread().name
            object.__setattr__(self, name, value)

        thing.__class__ = type("Watched", (type(thing),), {"__setattr__": note})

    async def main() -> None:
        net = network(4, starts=False)
        await net.start()
        custody = net.nodes["n1"].desk.custody
        watch(custody)
        watch(custody.visits)
        following = replace(net.roster, version=2, prev_digest=net.roster.digest)
        await net.nodes["n1"].follow(following, net.keys["n1"])
        await net.until(lambda: net.nodes["n1"].links_up == 2)
        await net.stop()

    asyncio.run(main())
    assert {"opener", "next_hop", "allowed"} <= writers.keys()
    assert all(name.startswith("storage") for name in writers.values())


def test_a_part_that_ends_by_itself_is_our_own_fault(network: Make) -> None:
    """Not a peer's: so no error of the protocol, and exit code 70 in the end."""

    async def nothing() -> None:
        pass

    async def main() -> None:
        net = network(4, starts=False)
        await net.start("n0")
        node = net.nodes["n0"]
        node._start("one part", nothing())
        with pytest.raises(RuntimeError, match="one part ended by itself") as caught:
            await net.runs["n0"]
        assert not isinstance(caught.value, VeilwalkError)

    asyncio.run(main())


def test_what_nobody_foresaw_ends_with_code_70() -> None:
    """With its traceback, as on the command line; Python itself would end with 1, the code of a failed check."""
    code = """
import runpy, sys
import veilwalk.node.peer

def broken(path):
    raise RuntimeError("training ended by itself")

veilwalk.node.peer.run_node = broken
sys.argv = ["node", "node.toml"]
runpy.run_module("veilwalk.node", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 70
    assert "training ended by itself" in ended.stderr


def test_a_roster_with_a_wrong_key_for_this_very_node_is_refused(network: Make, tmp_path: Any) -> None:
    """What others seal to a key it does not hold would be lost: it says so, and works under the one before."""
    from veilwalk.node.members import new_node_keys

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") > 5)
        stranger = new_node_keys(tmp_path / "s", node_id="n1", address="127.0.0.1:9", suite=net.roster.suite).member
        own = net.keys["n1"].member
        for wrong, word in (
            (replace(own, kem=stranger.kem), "the sealing key of n1"),
            (replace(own, certificate=stranger.certificate), "the TLS key of n1"),
        ):
            members = tuple(wrong if member.id == "n1" else member for member in net.roster.members)
            bad = replace(net.roster, version=2, prev_digest=net.roster.digest, members=members)
            with pytest.raises(ConfigError, match=word):
                await net.nodes["n1"].follow(bad, net.keys["n1"])
        assert net.nodes["n1"].roster.version == 1
        await net.until(net.finished, 60)
        await net.stop()
        return net

    assert asyncio.run(main()).tally("updates") == 60


def test_who_leaves_the_roster_is_not_spoken_to_any_more(network: Make) -> None:
    """Its neighbours hang up and send what waits for it another way; training ends without it.

    Also where the model was sealed for it: then a message that nobody can open walks on for ever, and looks like life.
    """

    async def main() -> Any:
        net = network(
            5,
            chords=((0, 2), (1, 3)),
            rules=RunRules(walk=SIMPLE, updates=80, late_hops=40, starve_hops=100, hop_s=0.02),
        )
        await net.start()
        await net.until(lambda: net.tally("updates") > 5)
        edges = [edge for edge in net.roster.edges if "n4" not in edge]
        net.roster = changed_roster(net.roster, edges, cards={}, removed=["n4"], now=int(time.time()), days=1)
        with pytest.raises(ConfigError, match="leaves n4 out"):
            await net.nodes["n4"].follow(net.roster, net.keys["n4"])
        for name in ("n0", "n1", "n2", "n3"):
            await net.nodes[name].follow(net.roster, net.keys[name])
        await net.until(lambda: all(net.look(name)["final"] is not None for name in ("n0", "n1", "n2", "n3")), 60)
        assert net.nodes["n4"].links_up == 0
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].sum() >= 80


def test_a_message_cut_short_on_disk_is_thrown_away_and_the_link_goes_on(network: Make) -> None:
    """The walk is lost and made again; nothing broken is ever offered."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=40, late_hops=20, hop_s=0.02))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        await net.stop()
        for name in net.names:
            database = sqlite3.connect(net.folder / f"state-{name}" / "spool.db")
            database.execute("UPDATE message SET bytes = substr(bytes, 1, 100)")
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


def test_spare_copies_are_released_after_a_fixed_time(network: Make) -> None:
    """With spares, every message is there twice for a while, and at the end none is left."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=30, late_hops=1e9, spare_s=0.3))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 5)
        during = sum(spares(net, name) for name in net.names)
        await net.until(net.finished)
        await net.until(lambda: not sum(spares(net, name) for name in net.names))
        await net.stop()
        return net, during

    net, during = asyncio.run(main())
    assert during >= 1
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]


def spares(net: Any, name: str) -> int:
    database = sqlite3.connect(f"file:{net.folder / f'state-{name}' / 'spool.db'}?mode=ro", uri=True)
    try:
        return int(database.execute("SELECT count(*) FROM spare").fetchone()[0])
    finally:
        database.close()


@pytest.mark.parametrize("spare", [0.0, 30.0])
def test_what_a_lost_node_was_carrying_is_sent_again(network: Make, spare: float) -> None:
    """A node is lost for good with a message it was only carrying; with spares its neighbour sends the copy again."""

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=40, late_hops=1e9, spare_s=spare)
        net = network(5, chords=((0, 2), (0, 3)), rules=rules)
        # Nobody seals for n4, so whatever it holds it only carries.
        for name in net.names:
            others = [other for other in net.names if other not in {name, "n4"}]
            net.change(name, law=DestinationRow.of({other: 1 / len(others) for other in others}))
        await net.start()
        await net.until(lambda: net.tally("taken", "n4") >= 1)
        # It takes one more and is gone before it hands that on.
        net.nodes["n4"].desk.custody.outgoing = lambda _: None
        await asyncio.sleep(0.5)
        await net.until(lambda: net.look("n4")["messages"], 40)
        await net.stop("n4")
        edges = [edge for edge in net.roster.edges if "n4" not in edge]
        net.roster = changed_roster(net.roster, edges, cards={}, removed=["n4"], now=int(time.time()), days=1)
        rest = ("n0", "n1", "n2", "n3")
        for name in rest:
            await net.nodes[name].follow(net.roster, net.keys[name])
        try:
            await net.until(lambda: all(net.look(name)["final"] is not None for name in rest), 20 if spare else 2)
        except AssertionError:
            if spare:
                raise
        await net.stop()
        return net, rest

    net, rest = asyncio.run(main())
    if not spare:
        assert all(net.look(name)["final"] is None for name in rest)
        return
    assert net.tally("revived", *rest) >= 1
    assert net.look("n0")["final"].tolist()[:4] == [net.tally("updates", name) for name in rest]


def test_a_node_waits_while_its_roster_does_not_hold(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps past the roster's end: links go down, nothing is lost; it jumps back, and training ends."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 3)
        now = time.time
        with monkeypatch.context() as patch:
            patch.setattr("veilwalk.node.peer._membership.time.time", lambda: now() + 7200)
            await net.until(lambda: not any(node.links_up for node in net.nodes.values()))
            before = net.tally("hops")
            await asyncio.sleep(0.5)
            assert net.tally("hops") == before
        await net.until(net.finished, 40)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]


def test_a_node_starts_without_the_heavy_libraries() -> None:
    """A relay imports NumPy and cryptography, and neither numba nor SciPy: it is restarted often."""
    code = "import sys, veilwalk.node.peer; print(sorted({'numba', 'scipy', 'torch', 'typer'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


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
