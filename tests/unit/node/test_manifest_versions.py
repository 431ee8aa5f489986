"""Manifests that follow each other, folders that were put back, nodes of another version."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.followers import small_cluster
from tests.helpers.wire import feed

from veilwalk.core.errors import ProtocolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.link._wire import PROTOCOL, Hello, Wire, agreed_protocol, encode
from veilwalk.node.members import Manifest

Make = Callable[..., Any]


def test_finding_10_another_manifest_of_the_run_is_noticed_by_both(network: Make) -> None:
    """Of the same version it is refused, with a line on either side; one version apart is no harm."""

    async def main() -> Any:
        net = network(4, starts=False)
        membership = net.parts["n1"].membership
        other = replace(membership.manifest, norm_bound=7.0)
        net.change("n1", membership=replace(membership, manifest=other))
        later = membership.manifest.change(norm_bound=7.0)
        ahead = replace(membership, manifest=later)
        net.change("n3", membership=ahead)
        await net.start()
        await net.until(lambda: net.nodes["n3"].links_up == 2)
        word = "another manifest version 1: the root signed two"
        await net.until(lambda: all(word in net.logs[name].getvalue() for name in ("n0", "n1", "n2")))
        # Whoever dials learns it too, by name of the neighbour.
        await net.until(lambda: '"peer": "n1", "why": "a peer holds another' in net.logs["n0"].getvalue())
        assert net.nodes["n1"].links_up == 0
        await net.stop()

    asyncio.run(main())


def test_finding_10_a_manifest_follows_the_one_before_and_keeps_what_messages_must_fit() -> None:
    from tests.unit.node.test_manifest import manifest

    first = manifest()
    second = first.change(spec=first.spec.change(walk="non-backtracking"))
    assert (second.version, second.prev_digest) == (2, first.digest)
    for change in ({"recipients": 2}, {"seed": 8}, {"payload": "int8"}, {"walks": 2}):
        with pytest.raises(ProtocolError, match=f"version 2 has other {next(iter(change))}: that needs a new run"):
            first.change(spec=first.spec.change(**change))
    with pytest.raises(ProtocolError, match="version 2 has other arrays"):
        first.change(arrays=first.arrays[:1])


def test_finding_10_a_new_manifest_is_followed_while_running(tmp_path: Path) -> None:
    """Put in the place of the old: the node begins anew under it. A bad one, and an older one, are refused."""
    configs, root, _ = small_cluster(tmp_path / "c")
    path, log = tmp_path / "c" / "manifest.json", tmp_path / "log"
    first = Manifest.read_signed(path, root.public_key())
    second = first.change(spec=first.spec.change(updates=9, law="uniform-node:2:2"))
    bad = replace(second.change(), spec=second.spec.change(recipients=first.recipients + 1))
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "veilwalk.node", str(configs[1])]
        node = subprocess.Popen(command, stderr=stream)

    def wait_for(word: str, count: int = 1) -> None:
        end = time.monotonic() + 40
        while log.read_text().count(word) < count:
            assert time.monotonic() < end, log.read_text()
            assert node.poll() is None, log.read_text()
            time.sleep(0.05)

    def put(manifest: Any) -> None:
        manifest.sign(path, root)
        node.send_signal(signal.SIGHUP)

    try:
        wait_for('"started"')
        put(second)
        wait_for('"manifest": 2')
        put(bad)
        wait_for("version 3 has other recipients: that needs a new run")
        put(first)
        wait_for("version 1 is older than 2, which this node holds")
    finally:
        node.terminate()
        assert node.wait(30) == 0
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ended.returncode == 3
    assert "version 1 is older than 2" in ended.stderr


def test_finding_11_a_node_whose_folder_was_put_back_works_on(network: Make) -> None:
    """60 updates later: no token is taken for one that came before, no link refuses what comes after."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=160, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("updates") > 20)
        await net.stop("n1")
        shutil.copytree(net.folder / "state-n1", net.folder / "backup")
        before = net.tally("updates")
        while True:
            await net.start("n1")
            await net.until(lambda: net.tally("updates") >= before + 60)
            await net.stop("n1")
            # What it held would be lost with the disk, as it always is; that is not what is looked at here.
            if not net.look("n1")["messages"]:
                break
        shutil.rmtree(net.folder / "state-n1")
        shutil.copytree(net.folder / "backup", net.folder / "state-n1")
        await net.start("n1")
        await net.until(net.finished, 60)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert not any("far ahead" in log.getvalue() for log in net.logs.values())
    assert {float(net.look(name)["final"].sum()) for name in net.names} == {160.0}


def test_a_run_ends_under_a_manifest_that_asks_for_fewer_updates_than_were_made(network: Make) -> None:
    """What has had more is set aside, by everybody; so a walk that is made must not say so of itself."""

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=400, late_hops=30, hop_s=0.02)
        fewer = replace(rules, updates=20)
        net = network(4, rules=rules)
        await net.start()
        await net.until(lambda: net.tally("updates") >= 40)
        await net.stop()
        for name in net.names:
            net.change(name, rules=fewer, task=replace(net.parts[name].task, rules=fewer), starts=False)
        await net.start()
        await net.until(net.finished, 40)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert len({net.look(name)["final"].tobytes() for name in net.names}) == 1
    assert net.look("n0")["final"].sum() > 20


def test_a_node_of_version_0_1_is_told_apart_at_once() -> None:
    """Its greeting is shorter: nobody waits for the rest. With one that speaks more, what both do is spoken."""
    wire = Wire("listener", message_bytes=64)
    with pytest.raises(
        ProtocolError, match=r"a peer speaks protocol 1 \(version 0\.1\), this node protocol 3: upgrade"
    ):
        feed(wire, b"\x01\x01" + bytes(64))
    ours = Hello(PROTOCOL, PROTOCOL, 1, bytes(32), 1, bytes(32), bytes(16), bytes(8))
    assert encode(ours)[1] == PROTOCOL
    assert agreed_protocol(ours.lowest, 9) == PROTOCOL
    with pytest.raises(ProtocolError, match="a peer speaks protocols 4 to 9, this node protocol 3: upgrade this node"):
        agreed_protocol(4, 9)
