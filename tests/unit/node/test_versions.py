"""Versions side by side: what two neighbours speak, whose folders are taken over, whose files are read."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.wire import feed

from veilwalk.core.errors import InputFileError, ProtocolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node.link._wire import PROTOCOLS, Hello, State, Wire, agreed_protocol, encode
from veilwalk.node.members import RunRules
from veilwalk.node.members._keys import read_secret
from veilwalk.node.members._manifest import Manifest
from veilwalk.node.members._roster import Roster, read_card
from veilwalk.node.members._signed import canonical_json
from veilwalk.node.spool import FolderDisk, Spool

Make = Callable[..., Any]
OURS = PROTOCOLS[-1]
#: What the version after this one will speak, and the one after that.
NEXT, LATER = range(OURS, OURS + 2), range(OURS + 1, OURS + 2)
HELLO = Hello(OURS, OURS, 1, bytes(32), 1, bytes(32), bytes(16), bytes(8))


# ---- protocols -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "ours", "spoken"),
    [((2, 2), (2, 2), 2), ((2, 3), (2, 2), 2), ((2, 3), (2, 3), 3), ((3, 5), (2, 4), 4), ((2, 9), (4, 6), 6)],
)
def test_two_versions_speak_the_highest_that_both_do(
    theirs: tuple[int, int], ours: tuple[int, int], spoken: int
) -> None:
    for (low, high), (lowest, highest) in ((theirs, ours), (ours, theirs)):
        assert agreed_protocol(low, high, range(lowest, highest + 1)) == spoken


@pytest.mark.parametrize(
    ("lowest", "highest", "said"),
    [
        (1, 1, r"speaks protocol 1 \(version 0\.1\), this node protocols 2 to 3: upgrade the peer"),
        (4, 9, "speaks protocols 4 to 9, this node protocols 2 to 3: upgrade this node"),
        (5, 2, r"speaks protocols 5 to 2 \(version 0\.2\), this node protocols 2 to 3"),
    ],
)
def test_where_there_is_none_both_lists_are_named(lowest: int, highest: int, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        agreed_protocol(lowest, highest, range(2, 4))


def test_a_greeting_of_any_version_is_of_one_length() -> None:
    """One more byte is a frame of its own, and refused at once where the protocol has none of that type."""
    wire = Wire("listener", message_bytes=64)
    greeting = encode(replace(HELLO, highest=255))
    assert feed(wire, greeting) == [replace(HELLO, highest=255)]
    wire.send(HELLO)
    assert wire.state is State.IDLE
    with pytest.raises(ProtocolError, match="frame type 9: not known"):
        feed(wire, b"\x09")


@pytest.mark.parametrize("kind", ["roster", "manifest"])
def test_finding_18_nobody_holds_version_0(network: Make, kind: str) -> None:
    """It is one below the first, and was greeted as a neighbour that is late."""
    membership = network(4).parts["n0"].membership
    hello = membership.hello(b"incarnat")
    assert membership.check_hello(hello) == OURS
    with pytest.raises(ProtocolError, match=f"{kind} version 0"):
        membership.check_hello(replace(hello, **{f"{kind}_version": 0}))


def events(net: Any, name: str, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in net.logs[name].getvalue().splitlines()]
    return [event for event in found if event["event"] == kind]


def speak(net: Any, name: str, protocols: range) -> None:
    net.change(name, membership=replace(net.parts[name].membership, protocols=protocols))


def test_nodes_of_the_next_version_work_beside_those_of_this(network: Make) -> None:
    """Two that speak more and two that do not, in one run, to its end: nothing is lost, and each link has its own."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=40, late_hops=1e9))
        speak(net, "n0", NEXT)
        speak(net, "n1", NEXT)
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert {float(net.look(name)["final"].sum()) for name in net.names} == {40.0}
    spoken = {(name, up["peer"]): up["protocol"] for name in net.names for up in events(net, name, "link_up")}
    assert spoken == {
        (one, other): OURS + 1 if {one, other} == {"n0", "n1"} else OURS
        for edge in net.roster.edges
        for one, other in (edge, edge[::-1])
    }
    assert not any(events(net, name, "turned_away") for name in net.names)


def test_a_node_of_a_version_too_far_is_turned_away_in_one_line(network: Make) -> None:
    """Both ends say it once, with both lists and who is to be upgraded, however often it is tried; the rest goes on."""

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=10**6, late_hops=1e9)
        net = network(4, chords=((0, 2),), rules=rules, recipients=2)
        speak(net, "n3", LATER)
        await net.start()
        await net.until(lambda: net.nodes["n0"].events["turned_away"] >= 4 and net.tally("updates") >= 10)
        await net.stop()
        return net

    net = asyncio.run(main())
    theirs, ours = f"protocol {OURS + 1}", f"protocol {OURS}"
    told = [line["why"] for line in events(net, "n0", "turned_away") if line.get("peer") == "n3"]
    assert told == [f"a peer speaks {theirs}, this node {ours}: upgrade this node"]
    downs = [line["why"] for line in events(net, "n0", "link_down") if line["peer"] == "n3"]
    assert told[0] in downs
    assert [line["why"] for line in events(net, "n3", "turned_away") if line.get("peer") == "n0"] == [
        f"a peer speaks {ours}, this node {theirs}: upgrade the peer"
    ]


# ---- what is on disk -----------------------------------------------------------------------------------------------


def filled(folder: Path) -> bytes:
    """Make a folder of this version with something in it; return the mark of its disk."""
    spool = Spool(FolderDisk(folder))
    with spool.transaction() as register:
        register.count("hops", 5)
        register.greet("a", b"incarnat")
    spool.close()
    return spool.incarnation


@pytest.mark.parametrize("noted", [b"\xff", b"two", b""])
def test_a_format_that_is_no_number_is_damage_and_no_fault(tmp_path: Path, noted: bytes) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "spool.db")) as database:
        database.execute("PRAGMA user_version = 9")
        database.execute("UPDATE mark SET data = ? WHERE name = 'format'", (noted,))
        database.commit()
    disk = FolderDisk(tmp_path)
    assert disk.mended
    disk.close()


# ---- what is signed or kept as text --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "read"),
    [
        ("veilwalk-roster-3", lambda data, _: Roster.parse(data, "file")),
        ("veilwalk-manifest-3", lambda data, _: Manifest.parse(data, "file")),
        ("veilwalk-card-2", lambda data, _: read_card(data, "file")),
        ("veilwalk-key-1", lambda _, path: read_secret(path, about={}, length=1, password=None)),
    ],
)
def test_a_text_of_a_newer_format_says_so_in_one_line(
    tmp_path: Path, ours: str, read: Callable[[bytes, Path], object]
) -> None:
    """Whatever fields it has: they are not looked at."""
    kind, _, number = ours.rpartition("-")
    newer = f"{kind}-{int(number) + 1}"
    path = tmp_path / "file"

    def refusal(form: object) -> str:
        path.write_bytes(canonical_json({"format": form, "what it says": "more"}))
        path.chmod(0o600)
        with pytest.raises(InputFileError) as refused:
            read(path.read_bytes(), path)
        return str(refused.value)

    assert refusal(newer).endswith(f"{newer} is of a newer version, this one reads {ours}: upgrade veilwalk")
    for other in ("x", None, 3, [ours], f"{kind}-", f"{kind}-1²", f"{kind}-{'9' * 2000}", "veilwalk-law-7"):
        assert refusal(other).endswith(f"not a {kind.removeprefix('veilwalk-')} of this version")
