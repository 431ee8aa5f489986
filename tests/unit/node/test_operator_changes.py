"""What an operator does in an ordinary year: new rosters and manifests, members that come and go, keys, backups."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, ProtocolError, SpoolError
from veilwalk.core.walk import SIMPLE
from veilwalk.graphs import distances, parse_graph_spec
from veilwalk.node import ClusterSettings, RunRules, load_config, node_status
from veilwalk.node.cluster import prepare_or_resume, set_up_cluster
from veilwalk.node.cluster._files import free_ports, node_ids
from veilwalk.node.link._wire import PROTOCOL, Hello, Wire, agreed_protocol, encode
from veilwalk.node.members import (
    KeyRing,
    LawRule,
    changed_manifest,
    changed_roster,
    edges_after,
    load_root_key,
    new_node_keys,
    read_password,
    read_signed_manifest,
    read_signed_roster,
    rotate_node_keys,
    rotated_roster,
    sign_manifest,
    sign_roster,
)
from veilwalk.node.peer import _process
from veilwalk.node.peer._assemble import assemble, key_ring
from veilwalk.node.peer._law_files import read_law
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._process import Follower
from veilwalk.node.peer._routing import FileLaw, RuleLaw
from veilwalk.node.sealing import seal
from veilwalk.node.spool import FolderDisk, Spool

Make = Callable[..., Any]
FOREVER = RunRules(walk=SIMPLE, updates=100_000, late_hops=1e9)
NOW = int(time.time())


def small_cluster(folder: Path, **options: Any) -> tuple[list[Path], Any, Any]:
    """A cluster's files, its root key and its roster."""
    setup = set_up_cluster(ClusterSettings(graph="rrg:6:3:seed=2", updates=5, suite="x25519", **options))
    configs = prepare_or_resume(setup, folder)
    root = load_root_key(folder / "root")
    return configs, root, read_signed_roster(folder / "roster.json", root.public_key())


@asynccontextmanager
async def followed(config_path: Path, *, ring: KeyRing | None = None) -> AsyncIterator[tuple[Node, Follower, Any]]:
    """One node at work that looks for news every few milliseconds, and its log."""
    config, text = load_config(config_path), io.StringIO()
    log, ring = Log(text), ring or key_ring(config)
    node, stop = Node(assemble(config, log=log, ring=ring)), asyncio.Event()
    running = asyncio.create_task(node.run(stop))
    follower = Follower(node, config, ring, log)
    following = asyncio.create_task(follower.run(asyncio.Event(), begin_anew=lambda: None))
    try:
        yield node, follower, text
    finally:
        following.cancel()
        stop.set()
        await running


async def until(done: Callable[[], Any], timeout_s: float = 30.0) -> None:
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "not in time"
        await asyncio.sleep(0.02)


# ---- files in any order, passwords, supervision ------------------------------------------------------------------


@pytest.mark.parametrize("first", ["roster.json", "roster.json.sig"])
def test_finding_13_roster_and_signature_come_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Whichever is there first is refused, once in the log, and both together are followed without a word."""
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")
    sign_roster(
        tmp_path / "roster.json", changed_roster(roster, roster.edges, cards={}, removed=[], now=NOW, days=9), root
    )

    async def main() -> str:
        async with followed(configs[1]) as (node, _, text):
            for name in sorted(("roster.json", "roster.json.sig"), key=lambda name: name != first):
                shutil.copy(tmp_path / name, tmp_path / "c" / name)
                await until(lambda: "roster_refused" in text.getvalue())
                await asyncio.sleep(0.2)
            await until(lambda: node.roster.version == 2)
            return str(text.getvalue())

    assert asyncio.run(main()).count("roster_refused") == 1


def test_finding_14_a_password_that_came_by_a_pipe_serves_for_every_later_roster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once; keys are opened again where a roster asks for it, and not by the thread that serves links."""
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / "n1" / "keys")
    member = roster.member("n1")
    keys = new_node_keys(
        tmp_path / "c" / "n1" / "keys", node_id="n1", address=member.address, suite=roster.suite, password=b"pw"
    )
    now = int(time.time())
    roster = changed_roster(roster, roster.edges, cards={"n1": keys.member}, removed=[], now=now, days=9)
    sign_roster(tmp_path / "c" / "roster.json", roster, root)
    read, write = os.pipe()
    os.write(write, b"pw\n")
    os.close(write)
    ring = key_ring(replace(load_config(configs[1]), password_file=Path(f"/dev/fd/{read}")))
    os.close(read)
    threads: set[str] = set()
    load = KeyRing.load

    def noted(ring: KeyRing) -> Any:
        threads.add(threading.current_thread().name)
        return load(ring)

    monkeypatch.setattr(KeyRing, "load", noted)

    async def main() -> None:
        async with followed(configs[1], ring=ring) as (node, _, text):
            threads.clear()
            following = changed_roster(roster, roster.edges, cards={}, removed=[], now=now, days=9)
            sign_roster(tmp_path / "c" / "roster.json", following, root)
            await until(lambda: node.roster.version == 3)
            assert "roster_refused" not in text.getvalue()

    asyncio.run(main())
    assert threads
    assert threading.main_thread().name not in threads


def test_finding_24_a_loose_password_file_is_named_by_its_own_name(tmp_path: Path) -> None:
    """Not by the descriptor it was handed over as, whose mode nobody can change."""
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    with path.open() as stream, pytest.raises(SpoolError, match=f"chmod 600 {path}$"):
        read_password(Path(f"/dev/fd/{stream.fileno()}"))


def test_what_nobody_foresaw_does_not_end_the_following_of_rosters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")

    async def main() -> str:
        async with followed(configs[1]) as (node, follower, text):
            news, faults = follower._files.news, [RuntimeError("never thought of")]
            follower._files.news = lambda *about: (_ for _ in ()).throw(faults.pop()) if faults else news(*about)  # type: ignore[method-assign]
            following = changed_roster(roster, roster.edges, cards={}, removed=[], now=NOW, days=9)
            sign_roster(tmp_path / "c" / "roster.json", following, root)
            await until(lambda: node.roster.version == 2)
            return str(text.getvalue())

    assert "RuntimeError: never thought of" in asyncio.run(main())


# ---- rosters while messages walk -----------------------------------------------------------------------------------


def test_finding_08_a_message_outlives_harmless_versions_of_the_roster(network: Make) -> None:
    """Sealed under version 1, it walks while everybody takes up 2 and 3, and opens."""

    async def main() -> Any:
        net = network(4, starts=False)
        membership = net.parts["n0"].membership
        message = seal(
            membership.roster.seal_context(membership.manifest),
            [membership.roster.kem_key("n2", 0)],
            walk_tag=b"walktag1",
            iteration=0,
            body=np.zeros(4).tobytes(),
        )
        await net.start()
        for days in (2, 3):
            roster = net.nodes["n0"].roster
            following = changed_roster(roster, roster.edges, cards={}, removed=[], now=NOW, days=days)
            for name in net.names:
                await net.nodes[name].follow(following, net.keys[name])
        desk = net.nodes["n0"].desk
        desk._settle(await desk.storage(desk.custody.create, message, "started"), for_us=False)
        await net.until(lambda: net.tally("updates", "n2") >= 1)
        await net.stop()

    asyncio.run(main())


def test_finding_20_all_change_over_at_one_time(network: Make) -> None:
    """Nodes that have the new roster seal in the old epoch until its time; half of them having it stalls nobody."""

    async def main() -> None:
        net = network(6, chords=((0, 2), (1, 4)), rules=FOREVER)
        await net.start()
        await net.until(lambda: net.tally("updates") > 3)
        manifest = net.nodes["n0"].manifest
        keys = {name: rotate_node_keys(net.folder / name) for name in net.names}
        cards = {name: found.member for name, found in keys.items()}
        now = int(time.time())
        later = rotated_roster(net.roster, cards=cards, now=now, days=1, seals_from=now + 600)
        assert [later.epoch_at(when) for when in (now, now + 599, now + 600)] == [0, 0, 1]
        assert later.seal_context(manifest).epoch == net.roster.seal_context(manifest).epoch == 0
        for name in ("n0", "n1", "n2"):
            await net.nodes[name].follow(later, keys[name])
        before = net.tally("updates")
        await net.until(lambda: net.tally("updates") > before + 10)
        # Its time has come: those that know of it seal in the new epoch, the others in the old, and all open both.
        at_once = replace(rotated_roster(net.roster, cards=cards, now=now, days=1), version=3, prev_digest=later.digest)
        for name in ("n0", "n1", "n2"):
            await net.nodes[name].follow(at_once, keys[name])
        for name in ("n3", "n4", "n5"):
            await net.nodes[name].follow(later, keys[name])
        before = net.tally("updates")
        await net.until(lambda: net.tally("updates") > before + 20)
        await net.stop()

    asyncio.run(main())


def test_a_roll_over_is_drafted_with_the_keys_it_needs(network: Make) -> None:
    """Those of the epoch before too, until it begins; then neither rotation nor new members have to wait."""
    net = network(4)
    cards = {name: rotate_node_keys(net.folder / name).member for name in net.names}
    now = net.roster.created
    rolling = rotated_roster(net.roster, cards=cards, now=now, days=9, seals_from=now + 100)
    assert {tuple(sorted(member.kem)) for member in rolling.members} == {(0, 1, 2)}
    renewed = changed_roster(rolling, rolling.edges, cards={}, removed=[], now=now + 50, days=9)
    assert (renewed.seals_from, renewed.rolls_over) == (now + 100, True)
    with pytest.raises(ConfigError, match="epoch 1 begins in 50 s: rotate after that"):
        rotated_roster(renewed, cards=cards, now=now + 50, days=9)
    joiner = new_node_keys(net.folder / "x", node_id="x", address="h:1", suite=net.roster.suite, epoch=1).member
    edges = edges_after(rolling, added=[("x", "n0")])
    with pytest.raises(ConfigError, match="needs 0 and 1 and 2; 1 has not begun: add members after that"):
        changed_roster(rolling, edges, cards={"x": joiner}, removed=[], now=now + 50, days=9)
    after = changed_roster(rolling, edges, cards={"x": joiner}, removed=[], now=now + 100, days=9)
    assert {tuple(sorted(member.kem)) for member in after.members} == {(1, 2)}
    assert after.epoch_at(now) == 1


# ---- laws by rule, and by names ------------------------------------------------------------------------------------


def joined(net: Any, name: str, *, edges: list[tuple[str, str]], data_of: str) -> Any:
    """The roster with one more member, whose parts are put in place as those of another."""
    port = free_ports(1)[0]
    keys = new_node_keys(net.folder / name, node_id=name, address=f"127.0.0.1:{port}", suite=net.roster.suite)
    roster = changed_roster(
        net.roster, edges_after(net.roster, added=edges), cards={name: keys.member}, removed=[], now=NOW, days=1
    )
    net.keys[name], net.logs[name] = keys, io.StringIO()
    parts = net.parts[data_of]
    net.parts[name] = replace(
        parts,
        keys=keys,
        membership=replace(parts.membership, roster=roster),
        starts=False,
        log=Log(net.logs[name]),
    )
    net.roster = roster
    return roster


def test_finding_15_a_joiner_really_trains(network: Make) -> None:
    """Under a law by rule everybody seals for it from the roster on, and it for everybody far enough."""

    async def main() -> None:
        net = network(5, rules=FOREVER)
        for name in net.names:
            net.change(name, law=RuleLaw(LawRule.of("far:2")))
        members = net.names
        await net.start()
        await net.until(lambda: net.tally("updates") > 3)
        roster = joined(net, "n9", edges=[("n0", "n9"), ("n2", "n9")], data_of="n3")
        for name in members:
            await net.nodes[name].follow(roster, net.keys[name])
        await net.start("n9")
        await net.until(lambda: net.tally("updates", "n9") >= 3)
        before = net.tally("updates", *members)
        await net.until(lambda: net.tally("updates", *members) > before + 5)
        # And gone again: nobody seals for it any more.
        await net.stop("n9")
        del net.nodes["n9"]
        net.roster = changed_roster(
            roster, edges_after(roster, removed=["n9"]), cards={}, removed=["n9"], now=NOW, days=1
        )
        for name in members:
            await net.nodes[name].follow(net.roster, net.keys[name])
            assert "n9" not in net.nodes[name]._destination.law.members
        await net.stop()

    asyncio.run(main())


def test_a_rule_is_the_law_of_that_name() -> None:
    """Row by row what design makes of it; and whoever has nobody so far seals for the farthest there are."""
    from types import SimpleNamespace

    from veilwalk.design import FarLaw, choose_scheme

    graph = parse_graph_spec("rrg:40:3:seed=2")
    apart, names = distances(graph), node_ids(40)
    roster: Any = SimpleNamespace(
        distances=lambda node: {names[j]: int(hops) for j, hops in enumerate(apart[names.index(node)])}
    )
    laws = {"far:3": FarLaw(graph, 3), "uniform-node:2:4": choose_scheme(graph, "uniform-node", support=(2, 4)).law}
    for text, law in laws.items():
        rows = law.matrix.toarray()
        for node, row in zip(names, rows, strict=True):
            expected = {names[j]: share for j, share in enumerate(row) if share}
            assert LawRule.of(text).shares(roster, node) == pytest.approx(expected)
    farthest = {names[j] for j in np.flatnonzero(apart[0] == apart[0].max())}
    assert set(LawRule.of("far:99").shares(roster, names[0])) == farthest
    star: Any = SimpleNamespace(distances=lambda _: {"a": 0, "b": 1, "c": 1})
    with pytest.raises(ConfigError, match="a is next to all other members"):
        LawRule.of("far:2").shares(star, "a")


def test_a_law_in_a_file_goes_by_names_and_says_whom_it_lacks(network: Make, tmp_path: Path) -> None:
    """Members it does not name are left out, and said; who is not named itself is told what to do."""
    from veilwalk.design import FarLaw, save_law

    save_law(tmp_path / "law.npz", FarLaw(parse_graph_spec("ring:5"), 2), labels=["n0", "n1", "n2", "n3", "old"])
    law = read_law(tmp_path / "law.npz", ["n0", "n1", "n2", "n3", "new"], "n0")
    assert law.row.shares == pytest.approx({"n2": 0.5, "n3": 0.5})
    with pytest.raises(ConfigError, match="does not name new: it needs a law of the new members, or one by rule"):
        read_law(tmp_path / "law.npz", ["n0", "n1", "n2", "n3", "new"], "new")

    async def main() -> str:
        net = network(5, starts=False)
        net.change("n0", law=law)
        await net.start("n0")
        await net.stop()
        return str(net.logs["n0"].getvalue())

    assert isinstance(law, FileLaw)
    said = [json.loads(line) for line in asyncio.run(main()).splitlines()]
    assert [event["names"] for event in said if event["event"] == "law_lacks_members"] == ["n4"]


def test_status_names_the_members_that_a_law_in_a_file_lacks(tmp_path: Path) -> None:
    """And under which roster and manifest the node works."""
    configs, root, roster = small_cluster(tmp_path / "c", law="uniform-node")
    assemble(load_config(configs[1])).disk.close()
    card = new_node_keys(tmp_path / "x", node_id="x", address="h:1", suite=roster.suite).member
    edges = edges_after(roster, added=[("x", "n0"), ("x", "n3")])
    following = changed_roster(roster, edges, cards={"x": card}, removed=[], now=NOW, days=9)
    sign_roster(tmp_path / "c" / "roster.json", following, root)
    assemble(load_config(configs[1])).disk.close()
    Spool(FolderDisk(load_config(configs[1]).state)).close()
    found = node_status(load_config(configs[1]).state, with_versions=True)
    assert (found.roster_version, found.manifest_version, found.members_left_out) == (2, 1, ("x",))


def test_a_cluster_seals_by_rule_unless_told_otherwise(tmp_path: Path) -> None:
    """The recommended law needs no file; another is written under the names of the members."""
    _, root, roster = small_cluster(tmp_path / "a")
    manifest = read_signed_manifest(tmp_path / "a" / "manifest.json", root.public_key())
    assert (manifest.law, manifest.law_digest) == ("far:2", "")
    assert manifest.graph_digest == roster.graph_digest == roster.graph().digest
    assert not (tmp_path / "a" / "law.npz").exists()
    small_cluster(tmp_path / "b", law="uniform-node")
    with np.load(tmp_path / "b" / "law.npz") as law:
        assert tuple(law["labels"]) == roster.ids


# ---- manifests -----------------------------------------------------------------------------------------------------


def test_finding_10_another_manifest_of_the_run_is_noticed_by_both(network: Make) -> None:
    """Of the same version it is refused, with a line on either side; one version apart is no harm."""

    async def main() -> Any:
        net = network(4, starts=False)
        membership = net.parts["n1"].membership
        other = replace(membership.manifest, norm_bound=7.0)
        net.change("n1", membership=replace(membership, manifest=other))
        later = changed_manifest(membership.manifest, norm_bound=7.0)
        ahead = replace(membership, manifest=later, manifest_before=membership.manifest)
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
    second = changed_manifest(first, walk="least-recent")
    assert (second.version, second.prev_digest) == (2, first.digest)
    for change in ({"recipients": 2}, {"seed": 8}, {"arrays": first.arrays[:1]}):
        with pytest.raises(ProtocolError, match=f"version 2 has other {next(iter(change))}: that needs a new run"):
            changed_manifest(first, **change)


def test_finding_10_a_new_manifest_is_followed_while_running(tmp_path: Path) -> None:
    """Put in the place of the old: the node begins anew under it. A bad one, and an older one, are refused."""
    configs, root, _ = small_cluster(tmp_path / "c")
    path, log = tmp_path / "c" / "manifest.json", tmp_path / "log"
    first = read_signed_manifest(path, root.public_key())
    second = changed_manifest(first, walk=first.walk.replace("updates=5", "updates=9"), law="uniform-node:2:2")
    bad = replace(changed_manifest(second), recipients=first.recipients + 1)
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
        sign_manifest(path, manifest, root)
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


# ---- backups -------------------------------------------------------------------------------------------------------


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
    assert net.tally("put_back", "n1") >= 1
    assert not any("far ahead" in log.getvalue() for log in net.logs.values())
    assert {float(net.look(name)["final"].sum()) for name in net.names} == {160.0}


# ---- versions ------------------------------------------------------------------------------------------------------


def test_a_node_of_version_0_1_is_told_apart_at_once() -> None:
    """Its greeting is shorter: nobody waits for the rest. With one that speaks more, what both do is spoken."""
    wire = Wire("listener", message_bytes=64)
    with pytest.raises(ProtocolError, match=r"a peer speaks protocol 1 \(version 0\.1\), this node 2 and up"):
        wire.feed(b"\x01\x01" + bytes(64))
    ours = Hello(PROTOCOL, PROTOCOL, 1, bytes(32), 1, bytes(32), bytes(16), bytes(8))
    assert encode(ours)[1] == PROTOCOL
    assert agreed_protocol(replace(ours, highest=9)) == PROTOCOL
    with pytest.raises(ProtocolError, match="a peer speaks protocol 3 and up, this node 2: upgrade this node"):
        agreed_protocol(replace(ours, highest=9, lowest=3))


def test_edges_after_a_change_are_those_of_before_but_for_it(network: Make) -> None:
    roster = network(4).roster
    assert edges_after(roster) == roster.edges
    assert edges_after(roster, removed=["n3"]) == (("n0", "n1"), ("n1", "n2"))
    assert edges_after(roster, added=[("n2", "n0")], dropped=[("n1", "n0")])[:2] == (("n0", "n2"), ("n0", "n3"))
    for change in ({"added": [("n1", "n0")]}, {"dropped": [("n0", "n2")]}):
        with pytest.raises(Exception, match="edge = "):
            edges_after(roster, **change)  # type: ignore[arg-type]
