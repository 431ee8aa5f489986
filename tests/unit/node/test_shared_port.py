"""Several runs at one port: who gets a connection, and what one run must not do to another."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.helpers.members import ack, greet, message_for, offer, size_of

from veilwalk.core.errors import ConfigError, SpoolError, TransportError, VeilwalkError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import Limits, RunRules
from veilwalk.node.link import NO_RUN, Port
from veilwalk.node.link._connection import dial, dialing_context
from veilwalk.node.link._wire import Hello
from veilwalk.node.peer._ends import sign_end, valid_signatures
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._membership import Membership

Make = Callable[..., Any]
RULES = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)


def beside(net: Any) -> Any:
    """Another run of the same members, with messages of the same length: nothing but its id tells them apart."""
    manifest = replace(net.parts["n0"].membership.manifest, run_id=b"the other run's!")
    parts = {
        name: replace(
            part,
            membership=Membership(manifest=manifest, roster=net.roster),
            task=replace(part.task, manifest=manifest),
            log=Log(io.StringIO()),
        )
        for name, part in net.parts.items()
    }
    logs = {name: part.log._stream for name, part in parts.items()}
    (net.folder / "other").mkdir()
    other = replace(net, folder=net.folder / "other", parts=parts, logs=logs, nodes={}, stops={}, runs={}, ports={})
    net.said = []
    net.ports["n1"] = other.ports["n1"] = Port(
        limits=net.parts["n1"].limits, turned_away=lambda why, **_: net.said.append(why)
    )
    return other


async def stop(net: Any, other: Any) -> None:
    await net.stop()
    await other.stop()
    await net.ports["n1"].close()


def test_a_connection_goes_to_the_run_that_its_hello_names(network: Make) -> None:
    """A run that is not here, or is not here any more, is refused in the same way, by a HELLO that names none."""

    async def main() -> None:
        net = network(4, rules=RULES, starts=False)
        other = beside(net)
        await net.start("n1")
        await other.start("n1")
        for run, seq in ((net, 1), (other, 1), (other, 2)):
            connection = await greet(run, "n0", "n1")
            assert await offer(connection, seq, message_for(run, "n3", counts=[float(seq)] * 4)) == ack(seq)
            connection.close()
        assert (net.tally("taken", "n1"), other.tally("taken", "n1")) == (1, 2)
        await net.stop("n1")
        own = net.parts["n0"].membership.hello(b"incarnat")
        for run_id in (os.urandom(16), own.run):
            context = dialing_context(net.keys["n0"], net.roster.trust_anchors(["n1"]))
            connection = await dial(net.roster.member("n1"), context, message_bytes=size_of(net), timeout_s=5)
            await connection.send(replace(own, run=run_id))
            answer = await connection.receive(5)
            assert isinstance(answer, Hello)
            assert (answer.run, answer.manifest_digest, answer.incarnation) == (NO_RUN, bytes(32), bytes(8))
            with pytest.raises(TransportError):
                await connection.receive(5)
        assert net.said == ["a peer is of another run"] * 2
        with pytest.raises(VeilwalkError, match="a peer does not have this run"):
            net.parts["n0"].membership.check_hello(answer)
        connection = await greet(other, "n0", "n1")
        assert await offer(connection, 3, message_for(other, "n3", counts=[3.0] * 4)) == ack(3)
        connection.close()
        await stop(net, other)

    asyncio.run(main())


def test_two_runs_of_one_id_do_not_share_a_port(network: Make) -> None:
    """As when two tables name copies of one manifest."""

    async def main() -> None:
        net = network(4, rules=RULES, starts=False)
        other = beside(net)
        other.parts["n1"] = replace(other.parts["n1"], membership=net.parts["n1"].membership)
        await net.start("n1")
        with pytest.raises(ConfigError, match="another run of this node has the same manifest"):
            await other.start("n1")
        other.runs.clear()
        connection = await greet(net, "n0", "n1")
        connection.close()
        await stop(net, other)

    asyncio.run(main())


def test_a_message_of_one_run_is_opened_in_no_other(network: Make) -> None:
    """Same keys, same length, same epoch: in the wrong run its destination cannot open it, and nobody trains on it."""

    async def main() -> None:
        net = network(4, rules=RULES, starts=False)
        other = beside(net)
        await net.start("n1")
        await other.start("n1")
        message = message_for(net, "n1", counts=[1.0] * 4)
        openers = [run.parts["n1"].membership.opener(run.keys["n1"]) for run in (net, other)]
        assert openers[0].open(message) is not None
        assert openers[1].open(message) is None
        for run in (other, net):
            connection = await greet(run, "n0", "n1")
            assert await offer(connection, 1, message) == ack(1)
            connection.close()
        await net.until(lambda: net.tally("updates", "n1") == 1)
        await asyncio.sleep(0.3)
        assert other.tally("updates", "n1") == 0
        assert other.look("n1")["checkpoint"] is None
        await stop(net, other)

    asyncio.run(main())


def test_a_word_for_the_end_of_one_run_does_not_count_in_another(network: Make) -> None:
    """A member signs for a model in one run only."""
    net = network(4)
    digest = hashlib.sha256(b"model").digest()
    signed = sign_end(net.keys["n2"], b"a" * 16, 20, digest)
    assert set(valid_signatures(net.roster, b"a" * 16, signed, 20, digest)) == {"n2"}
    assert valid_signatures(net.roster, b"b" * 16, signed, 20, digest) == {}


def test_finding_18_half_open_connections_are_few_for_all_runs_together(network: Make) -> None:
    async def main() -> None:
        net = network(4, rules=RULES, starts=False)
        other = beside(net)
        await net.start("n1")
        await other.start("n1")
        member, half_open = net.roster.member("n1"), []
        for count in range(100):
            half_open.append(socket.create_connection((member.host, member.port)))
            if not count % 20:
                await asyncio.sleep(0.01)
        await net.until(lambda: len(net.said) >= 80)
        assert net.ports["n1"].waiting <= 16
        for run in (net, other):
            (await greet(run, "n0", "n1")).close()
        for one in half_open:
            one.close()
        await stop(net, other)

    asyncio.run(main())


def test_a_disk_that_fails_in_one_run_is_nothing_to_the_other(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody works in both runs; of one the disk is full at one node, and the other run ends with every update."""

    async def main() -> None:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=12, late_hops=1e9))
        other = beside(net)
        for name in net.names:
            net.ports[name] = other.ports[name] = Port(limits=Limits(), turned_away=lambda _, **__: None)
        await other.start()
        await other.until(lambda: other.tally("hops") > 0)

        def full(**_: object) -> None:
            raise SpoolError("storage: No space left on device")

        monkeypatch.setattr(other.parts["n1"].disk, "transaction", full)
        await other.until(lambda: other.nodes["n1"].events["storage_troubles"] > 0)
        await net.start()
        await net.until(net.finished)
        assert net.tally("updates") == 12
        monkeypatch.undo()
        await other.until(other.finished)
        assert other.tally("updates") == 12
        for run in (net, other):
            await run.stop()
        for port in net.ports.values():
            await port.close()

    asyncio.run(main())
