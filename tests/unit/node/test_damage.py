"""A disk that goes bad while a node is down: noticed, counted, never passed on, and the node works on."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns import chaos_damage

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.peer._assemble import check_disk
from veilwalk.node.spool import FolderDisk, Spool

Make = Callable[..., Any]


def dice() -> random.Random:
    """The same damage every time."""
    return random.Random(1)  # noqa: S311


def folders(net: Any, tmp_path: Path) -> Path:
    """The nodes' states where the campaign looks for them."""
    where = tmp_path / "as-in-the-campaign"
    for name in net.names:
        (where / name).mkdir(parents=True, exist_ok=True)
        if not (where / name / "state").exists():
            (where / name / "state").symlink_to(net.folder / f"state-{name}")
    return where


async def interrupted(network: Make, **options: Any) -> Any:
    """A network that was stopped with a message under way."""
    net = network(4, rules=RunRules(walk=SIMPLE, updates=60, late_hops=20, hop_s=0.02, **options))
    await net.start()
    await net.until(lambda: net.tally("updates") >= 5)
    await net.stop()
    assert any(net.look(name)["messages"] for name in net.names)
    return net


@pytest.mark.parametrize("kind", sorted(chaos_damage.KINDS))
def test_every_damaged_message_is_noticed_and_none_passed_on(
    network: Make, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chaos_damage, "KINDS", {kind: chaos_damage.KINDS[kind]})

    async def main() -> Any:
        net = await interrupted(network)
        where = folders(net, tmp_path)
        hurt = chaos_damage.hurt_messages(where, net.names, dice())
        assert len(chaos_damage.broken(where, net.names)) == len(hurt) == len(chaos_damage.still_there(where, hurt))
        await net.start()
        await net.until(net.finished, 60)
        await net.stop()
        return net, where, hurt

    net, where, hurt = asyncio.run(main())
    assert net.tally("damaged") == len(hurt) >= 1
    assert chaos_damage.broken(where, net.names) == []
    assert net.look("n0")["final"].sum() == 60


def test_a_node_that_does_not_look_is_found_out(network: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: what is on disk is believed. Then the neighbour refuses it, and it never goes."""

    async def main() -> Any:
        net = await interrupted(network, dwell_s=0.0)
        hurt = chaos_damage.hurt_messages(folders(net, tmp_path), net.names, dice())
        monkeypatch.setattr("veilwalk.node.peer._custody.Custody.drop_if_damaged", lambda *_: False)
        monkeypatch.setattr("veilwalk.node.spool._spool.Spool.read", lambda spool, row: spool.read_unchecked(row))
        await net.start()
        await asyncio.sleep(1)
        await net.stop()
        return chaos_damage.still_there(folders(net, tmp_path), hurt), net.tally("damaged")

    left, noticed = asyncio.run(main())
    assert left or not noticed


def test_a_damaged_model_and_a_damaged_memory_are_as_good_as_none(network: Make, tmp_path: Path) -> None:
    """Neither is trained on: the walk's own model is, and the learner begins anew."""

    async def main() -> Any:
        net = await interrupted(network)
        hurt = chaos_damage.hurt_keepings(folders(net, tmp_path), net.names, dice())
        await net.start()
        await net.until(net.finished, 60)
        await net.stop()
        return net, hurt

    net, hurt = asyncio.run(main())
    assert hurt["checkpoint"] >= 1
    assert hurt["state"] >= 1
    assert net.tally("damaged") >= hurt["checkpoint"] + hurt["state"]
    assert net.look("n0")["final"].sum() == 60


def test_a_copy_that_was_damaged_after_it_was_handed_over_takes_nothing_with_it(network: Make) -> None:
    """The sender did not hear the acknowledgement, and its disk went bad: the receiver's copy is the last."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=8, late_hops=1e9, dwell_s=0.1))
        await net.start()
        await net.until(lambda: net.tally("updates") >= 2)
        await net.until(lambda: any(_held(net, name) for name in net.names))
        await net.stop()
        # It may have gone on while the nodes were stopped.
        while not any(_held(net, name) for name in net.names):
            await net.start()
            await net.until(lambda: any(_held(net, name) for name in net.names))
            await net.stop()
        receiver, row = next((name, _held(net, name)[0]) for name in net.names if _held(net, name))
        with closing(sqlite3.connect(net.folder / f"state-{row.came_from}" / "spool.db")) as database:
            # The answer may not have come before the nodes stopped.
            body = database.execute("INSERT INTO body (bytes, digest) VALUES (zeroblob(5000), ?)", (row.digest,))
            with closing(sqlite3.connect(net.folder / f"state-{receiver}" / "spool.db")) as other:
                (keys,) = other.execute("SELECT taken FROM link WHERE peer = ?", (row.came_from,)).fetchone()
            database.execute(
                "INSERT OR REPLACE INTO message (body, peer, key, given) VALUES (?, ?, ?, 1)",
                (body.lastrowid, receiver, keys[-16:]),
            )
            database.commit()
        await net.start()
        await net.until(net.finished, 60)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("damaged") == 1
    assert net.look("n0")["final"].tolist() == [net.tally("updates", name) for name in net.names]
    assert net.tally("updates") == 8


def _held(net: Any, name: str) -> list[Any]:
    return [row for row in net.look(name)["messages"] if row.peer is None and row.came_from]


PAGE = 4096


def test_a_database_that_is_none_is_set_aside_and_the_node_goes_on(network: Make) -> None:
    """Its first pages overwritten at every node, then some page at random: no crash, and training comes to its end."""

    async def main() -> Any:
        net = await interrupted(network)
        for turn, name in enumerate(net.names):
            path = net.folder / f"state-{name}" / "spool.db"
            data = bytearray(path.read_bytes())
            start = 0 if turn < 2 else PAGE * dice().randrange(1, len(data) // PAGE)
            data[start : start + PAGE] = bytes(PAGE)
            path.write_bytes(data)
        await net.start()
        await net.until(lambda: len(finals(net)) == 1, 60)
        await net.stop()
        return net

    def finals(net: Any) -> set[bytes | None]:
        models = [net.look(name)["final"] for name in net.names]
        # Until everybody has one, no number of them is enough.
        return set() if any(model is None for model in models) else {model.tobytes() for model in models}

    net = asyncio.run(main())
    for name in net.names[:2]:
        assert net.tally("damaged", name) >= 1
        assert (net.folder / f"state-{name}" / "spool.db.damaged").exists()
    assert len(finals(net)) == 1


def test_a_damaged_database_is_set_aside(tmp_path: Path) -> None:
    """The node goes on as one with a new disk, which its neighbours notice. A healthy one is left alone."""
    spool = Spool(FolderDisk(tmp_path))
    with spool.transaction() as register:
        row = register.add_message(spool.store(b"precious" * 1000), came_from="a")
        register.pin(row, "b")
        for number in range(500):
            register.add_walk(number.to_bytes(8, "big"), 1, number)
    mark = spool.incarnation
    spool.close()
    healthy = Spool(FolderDisk(tmp_path))
    assert healthy.incarnation == mark
    healthy.close()
    path = tmp_path / "spool.db"
    with closing(sqlite3.connect(path)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'walk'").fetchone()
    data = bytearray(path.read_bytes())
    data[PAGE * (page - 1) : PAGE * page] = b"\xff" * PAGE
    path.write_bytes(data)
    disk = FolderDisk(tmp_path)
    assert disk.mended
    mended = Spool(disk)
    assert mended.incarnation != mark
    assert mended.tables.messages() == []
    assert mended.tables.tallies() == {"damaged": 1}
    assert (tmp_path / "spool.db.damaged").read_bytes() == bytes(data)
    mended.close()


@pytest.mark.parametrize("at", [None, 0.5, 0.001, 20, 9, 0.9999, "short"])
def test_a_log_that_is_damaged_is_like_a_disk_that_was_put_back(tmp_path: Path, at: Any) -> None:
    """SQLite forgets the commits behind the damage: what is left is whole, and what was pinned is offered once more."""
    spool = Spool(FolderDisk(tmp_path / "alive"))
    for number in range(30):
        with spool.transaction() as register:
            row = register.add_message(spool.store(bytes([number]) * 5000), came_from="a")
            register.pin(row, "b")
    shutil.copytree(tmp_path / "alive", tmp_path / "dead")
    spool.close()
    log = tmp_path / "dead" / "spool.db-wal"
    data = bytearray(log.read_bytes())
    assert len(data) > 100_000
    if at == "short":
        del data[-100:]
    elif at is not None:
        data[int(at * len(data)) if isinstance(at, float) else at] ^= 16
    log.write_bytes(data)
    again = Spool(FolderDisk(tmp_path / "dead"))
    rows = again.tables.messages()
    assert [again.read(row)[0] for row in rows] == list(range(len(rows)))
    assert len(rows) == 30 if at is None else len(rows) < 30
    again.close()


def test_every_single_bit_of_a_database_is_noticed_or_does_not_matter(tmp_path: Path) -> None:
    """Drawn from all bits: no crash, and whatever reads differently is found by a digest, a copy or SQLite itself."""
    spool = Spool(FolderDisk(tmp_path / "whole"))
    with spool.transaction() as register:
        for number in range(4):
            row = register.add_message(spool.store(bytes([number]) * 300), came_from="n3")
            register.pin(row, f"n{number}")
            register.greet(f"n{number}", b"x" * 8)
            register.add_taken(f"n{number}", bytes([number]) * 16)
            register.add_opened(bytes([number]) * 16, 0)
            register.add_walk(bytes([number]) * 8, number, number)
        register.set_model("checkpoint", spool.store(b"m" * 500), tag=b"t" * 8, iteration=44)
    spool.close()

    def content(path: Path) -> Any:
        with closing(sqlite3.connect(path)) as database:
            # Where the mark of the start is damaged all messages count as given.
            tables = ("message", "body", "opened", "walk", "model")
            database.execute("UPDATE message SET given = 0")
            return {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608

    expected = content(tmp_path / "whole" / "spool.db")
    data = (tmp_path / "whole" / "spool.db").read_bytes()
    # Where the rows are, and where the file says what they are: most other bytes are free.
    used = [at for at in range(len(data)) if data[at]]
    coins, found = dice(), {"mended": 0, "digest": 0, "same": 0}
    for _ in range(150):
        folder = tmp_path / "one"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        flipped = bytearray(data)
        flipped[coins.choice(used)] ^= 1 << coins.randrange(8)
        (folder / "spool.db").write_bytes(flipped)
        disk = FolderDisk(folder)
        Spool(disk).close()
        if disk.mended:
            found["mended"] += 1
            continue
        now = content(folder / "spool.db")
        stored = [(row[2], row[3]) for row in now["body"]]
        if any(hashlib.sha256(inline).digest() != digest for inline, digest in stored):
            found["digest"] += 1
            continue
        found["same"] += 1
        assert now == expected
    assert found["mended"] > 15
    assert found["digest"] > 15


def test_a_disk_that_was_lost_or_put_back_counts_as_full(tmp_path: Path) -> None:
    """Nobody knows how many updates it had seen made: the member trains no more in this run, and in others it does."""
    note, backup = tmp_path / "keys" / "disk-run", tmp_path / "backup"

    def start(state: Path, note: Path = note) -> int:
        spool = Spool(FolderDisk(state))
        check_disk(spool, note)
        lost = spool.tables.tally("disks_lost")
        spool.close()
        return lost

    state = tmp_path / "state"
    assert [start(state), start(state)] == [0, 0]
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    shutil.copytree(state, backup)
    # A crash between the two marks: the disk has the new one, the note the one before.
    noted = note.read_bytes()
    assert start(state) == 0
    note.write_bytes(noted)
    assert [start(state), start(state)] == [0, 0]
    assert start(backup) == 1
    assert start(tmp_path / "new") == 1
    assert start(tmp_path / "other", tmp_path / "keys" / "disk-other") == 0


def test_who_lost_its_disk_trains_no_more(network: Make, tmp_path: Path) -> None:
    """Its models go on as they came, and are counted: the run ends, and the others make what they may."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=20, late_hops=1e9, most_updates=100))
        (tmp_path / "note").write_bytes(bytes(16))
        net.change("n2", note=tmp_path / "note")
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    made = net.look("n0")["final"]
    assert made[2] == 0
    assert made.sum() == net.tally("updates") < 20
    assert made.sum() + net.tally("passed_on") == 20
