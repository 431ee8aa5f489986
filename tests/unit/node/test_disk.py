"""A node's disk that is full or fails, what a thief reads from it, and one that another version has written."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.campaigns import forgetful_disk, power_loss
from tests.helpers.custody import Opener, deliver, relay, take

from veilwalk.core.errors import SpoolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node.peer._custody import Custody, Place
from veilwalk.node.peer._routing import NextHop, OsDraws
from veilwalk.node.sealing import Header
from veilwalk.node.spool import FolderDisk, Spool, UpdateOutcome, Verdict, open_read_only
from veilwalk.node.spool._tables import FORMAT

NEIGHBOUR = "a"
MINE = b"mine" + b"u" * 16


def custody_on(disk: Any, inline_bytes: int = 0) -> Custody:
    return Custody(
        Spool(disk, inline_bytes=inline_bytes),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=(NEIGHBOUR, "b")),
        draws=OsDraws(),
        quota=4,
    )


def progress(header: Header, number: int = 0) -> UpdateOutcome:
    model = b"model" + bytes([number])
    return UpdateOutcome(message=b"anew" + model, model=model, header=header, epoch=0, iteration=2, counts=("updates",))


def work(custody: Custody, attempt: Callable[[Callable[[], Any]], Any]) -> None:
    """Take one message to relay and one to train on, train, hand both on; each step until it succeeds."""
    attempt(lambda: take(custody, 1, b"relayed"))
    attempt(lambda: take(custody, 2, MINE))
    (number,) = (row.id for row in custody.spool.tables.messages() if custody.place_of(row) is Place.OPENING)

    def train() -> None:
        found = custody.examine(number)
        if found is not None and found[1] is not None:
            custody.replace(found[0], progress(found[1].header))

    attempt(train)
    for waiting in custody.spool.tables.messages():
        row = attempt(partial(custody.pin, waiting.id))
        attempt(partial(custody.give, row.peer, row.key))
        attempt(partial(custody.deliver, row.peer, row.key))
    attempt(lambda: take(custody, 3, b"one more"))


def retrying(disk: forgetful_disk.FullDisk, failures: list[str]) -> Callable[[Callable[[], Any]], Any]:
    """Do a step again and again, as a node does, and make room when it has failed three times."""

    def attempt(step: Callable[[], Any]) -> Any:
        for times in range(9):
            try:
                return step()
            except SpoolError as error:
                failures.append(str(error))
            if times == 2:
                disk.failing = 0
        raise AssertionError("the disk is in order again, and nothing works")

    return attempt


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20], ids=["files", "rows"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("lasting", [1, 1000])
def test_finding_21_a_full_disk_at_every_step_loses_nothing_and_leaves_nothing(
    inline_bytes: int, code: int, lasting: int
) -> None:
    """One step fails, or all until room is made: the work is done in the end, and no file is left that nobody needs."""
    for sound in range(200):
        disk = forgetful_disk.FullDisk(random.Random(1))  # noqa: S311
        custody = custody_on(disk, inline_bytes)
        disk.sound, disk.failing, disk.code = sound, lasting, code
        failures: list[str] = []
        work(custody, retrying(disk, failures))
        disk.failing = 0
        tables = custody.spool.tables
        assert tables.tallies() == {"taken": 3, "updates": 1, "turns": 1, "hops": 2}
        assert [custody.spool.read(row) for row in tables.messages()] == [b"one more"]
        with custody.spool.transaction() as register:
            needed = register.files()
        assert set(disk.names()) - set(custody.spool._free) == needed
        if not failures:
            assert sound > 10
            return
    raise AssertionError("there is no end to the steps")


def test_finding_21_full_disks_and_power_cuts_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that failed may be found after a cut all the same: nobody is told before that is known."""
    cuts, faults = power_loss.campaign(cuts=400, seed=1, disk=forgetful_disk.FullDisk)
    # How many the last round adds hangs on what SQLite writes, and so on its version.
    assert cuts >= 400
    assert not faults
    monkeypatch.setattr(Spool, "settle", lambda _: None)
    _, faults = power_loss.campaign(cuts=20_000, seed=10, disk=forgetful_disk.FullDisk, until_fault=True)
    assert faults


def test_finding_21_errors_inside_a_transaction_are_our_own(tmp_path: Path) -> None:
    """Also where SQLite has ended the transaction by itself, as it does when the disk is full."""
    disk = FolderDisk(tmp_path)
    spool = Spool(disk)
    with pytest.raises(SpoolError, match="no such table"), spool.transaction() as register:
        register.execute("SELECT * FROM nowhere")
    with pytest.raises(SpoolError, match="full"), spool.transaction():
        _end_it(disk.database)
    (pages,) = disk.database.execute("PRAGMA page_count").fetchone()
    disk.database.execute(f"PRAGMA max_page_count={pages + 4}")
    for _ in range(3):
        with pytest.raises(SpoolError, match="full"), spool.transaction() as register:
            register.add_message(spool.store(bytes(100_000)), came_from=None)
    disk.database.execute("PRAGMA max_page_count=1000000")
    with spool.transaction() as register:
        register.add_message(spool.store(bytes(100_000)), came_from=None)
    assert len(spool.tables.messages()) == 1
    spool.close()


def _end_it(database: sqlite3.Connection) -> None:
    database.execute("ROLLBACK")
    raise sqlite3.OperationalError("database or disk is full")


@pytest.mark.skipif(os.geteuid() != 0, reason="to fill a disk takes a file system of one's own")
def test_finding_21_a_real_disk_that_is_full(tmp_path: Path) -> None:
    """Messages in files, on a file system of 2 MB: what does not fit leaves nothing, and room is all it takes."""
    mount = tmp_path / "small"
    mount.mkdir()
    if os.system(f"mount -t tmpfs -o size=2m none {mount} 2>/dev/null"):  # noqa: S605
        pytest.skip("this system lets nobody mount")
    try:
        custody = custody_on(FolderDisk(mount / "state"))
        (mount / "filler").write_bytes(bytes(1 << 20))
        body = os.urandom(700_000)
        for _ in range(5):
            with pytest.raises(SpoolError, match="No space left"):
                _take_all(custody, body)
        assert len(custody.spool._disk.names()) == custody.spool.tables.tallies().get("taken", 0)
        taken = custody.spool.tables.tally("taken")
        (mount / "filler").unlink()
        assert take(custody, taken + 1, body).verdict is Verdict.TAKEN
        custody.spool.close()
    finally:
        os.system(f"umount {mount}")  # noqa: S605


def _take_all(custody: Custody, body: bytes) -> None:
    for seq in (1, 2, 3):
        take(custody, seq, body)


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20], ids=["files", "rows"])
def test_finding_22_times_of_files_do_not_tell_when_a_node_trained(tmp_path: Path, inline_bytes: int) -> None:
    custody = custody_on(FolderDisk(tmp_path), inline_bytes)
    begun = time.time()
    row = take(custody, 1, MINE).row
    found = custody.examine(row.id)
    assert found is not None
    assert found[1] is not None
    custody.replace(found[0], progress(found[1].header))
    for path in [*(tmp_path / "messages").iterdir(), tmp_path / "spool.db-wal"]:
        assert path.stat().st_mtime == path.stat().st_atime == 0, path
    custody.spool.tidy()
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mtime < begun, path
    custody.spool.close()
    assert all(path.stat().st_mtime < begun for path in tmp_path.rglob("*") if path.name != "messages")


@pytest.mark.parametrize("when", ["after many commits", "on the beat", "at the end"])
def test_finding_22_the_log_of_the_database_keeps_no_history(tmp_path: Path, when: str) -> None:
    """Raw bytes of the whole folder: nothing is left of the row of a message that was handed on."""
    custody = custody_on(FolderDisk(tmp_path), 1 << 20)
    first = b"first of all" + os.urandom(5000)
    row = relay(custody, 1, first)
    deliver(custody, row)
    assert any(row.digest in path.read_bytes() for path in tmp_path.glob("spool.db*"))
    for seq in range(2, 80 if when == "after many commits" else 3):
        another = relay(custody, seq, os.urandom(5000))
        deliver(custody, another)
    if when == "on the beat":
        custody.spool.tidy()
    if when == "at the end":
        custody.spool.close()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert row.digest not in path.read_bytes(), path
            assert first[-1000:] not in path.read_bytes(), path
    if when != "at the end":
        custody.spool.close()


@pytest.mark.parametrize("delivers", [True, False])
def test_the_log_is_wiped_when_nobody_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, delivers: bool
) -> None:
    """After a message is let go, not while one is taken; where none is let go, after so many commits all the same."""
    disk = FolderDisk(tmp_path)
    custody = custody_on(disk, 1 << 20)
    wipe, step, found = FolderDisk._wipe, "", []

    def noting(self: FolderDisk) -> None:
        found.append((step, self._commits))
        wipe(self)

    monkeypatch.setattr(FolderDisk, "_wipe", noting)
    for seq in range(1, 300):
        step = "take"
        row = relay(custody, seq, b"message")
        if delivers:
            step = "let go"
            deliver(custody, row)
    assert len(found) >= 2
    assert {step for step, _ in found} == {"let go" if delivers else "take"}
    assert all(commits <= 128 for _, commits in found)
    custody.spool.close()


@pytest.mark.parametrize("wiped", [32, 5000, None])
def test_finding_22_a_power_cut_while_the_log_is_wiped_loses_nothing(tmp_path: Path, wiped: int | None) -> None:
    """All of it is in the database by then; a log that is wiped in part is neither read nor taken for damaged."""
    custody = custody_on(FolderDisk(tmp_path / "state"), 1 << 20)
    for seq in range(1, 4):
        take(custody, seq, b"message" + os.urandom(5000))
    log = tmp_path / "state" / "spool.db-wal"
    before = log.read_bytes()
    custody.spool.tidy()
    after = log.read_bytes()
    assert len(after) == len(before)
    shutil.copytree(tmp_path / "state", tmp_path / "found")
    if wiped is not None:
        (tmp_path / "found" / "spool.db-wal").write_bytes(after[:wiped] + before[wiped:])
    custody.spool.close()
    disk = FolderDisk(tmp_path / "found")
    again = custody_on(disk, 1 << 20)
    assert not disk.mended
    assert len(again.recover()) == 3
    again.spool.close()


def test_a_log_is_wiped_also_while_somebody_looks_but_later(tmp_path: Path) -> None:
    """Whoever reads is not waited for."""
    custody = custody_on(FolderDisk(tmp_path), 1 << 20)
    row = relay(custody, 1, os.urandom(5000))
    with closing(sqlite3.connect(tmp_path / "spool.db")) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM message").fetchone() == (1,)
        deliver(custody, row)
        begun = time.monotonic()
        custody.spool.tidy()
        assert time.monotonic() - begun < 5
        assert reader.execute("SELECT count(*) FROM message").fetchone() == (1,)
    custody.spool.tidy()
    assert all(row.digest not in path.read_bytes() for path in tmp_path.glob("spool.db*"))
    custody.spool.close()


def test_finding_22_pages_that_are_free_are_wiped_and_do_not_grow_in_number(tmp_path: Path) -> None:
    """Whatever the length of what was in them."""
    disk = FolderDisk(tmp_path)
    custody = custody_on(disk, 1 << 20)
    gone = []
    for seq, length in enumerate((50, 900, 3000, 4096, 5000, 8184, 20_000, 65_536), 1):
        row = relay(custody, seq, os.urandom(length))
        gone += [row.digest, custody.spool.read(row)[-40:]]
        deliver(custody, row)
    custody.spool.tidy()
    size = (tmp_path / "spool.db").stat().st_size
    for _ in range(5):
        custody.spool.tidy()
    assert (tmp_path / "spool.db").stat().st_size == size
    assert disk.database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    raw = b"".join(path.read_bytes() for path in tmp_path.glob("spool.db*"))
    assert [part for part in gone if part in raw] == []
    custody.spool.close()


def test_finding_24_what_is_said_of_a_full_disk_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only models are called models: a line with that name would say that this node has trained."""
    custody = custody_on(FolderDisk(tmp_path))
    row = take(custody, 1, MINE).row
    found = custody.examine(row.id)
    assert found is not None
    assert found[1] is not None

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(SpoolError) as of_a_model:
            custody.replace(found[0], progress(found[1].header))
        with pytest.raises(SpoolError) as of_a_message:
            take(custody, 2, b"relayed")
    assert str(of_a_model.value) == str(of_a_message.value)
    custody.spool.close()


def test_ids_of_epochs_that_are_over_are_forgotten(tmp_path: Path) -> None:
    custody = custody_on(FolderDisk(tmp_path))
    with custody.spool.transaction() as register:
        for epoch in (5, 6, 7, 8):
            register.add_opened(bytes([epoch]) * 16, epoch)
    custody.expire()
    assert [custody.spool.tables.is_opened(bytes([epoch]) * 16) for epoch in (5, 6, 7, 8)] == [False, False, True, True]
    custody.spool.close()


@pytest.mark.parametrize("other", [0, FORMAT + 1])
def test_a_database_of_another_version_is_said_so_and_left_alone(tmp_path: Path, other: int) -> None:
    """It is not damaged, and must not be set aside: whoever wrote it can still read it."""
    custody_on(FolderDisk(tmp_path)).spool.close()
    with closing(sqlite3.connect(tmp_path / "spool.db")) as database:
        database.execute(f"PRAGMA user_version={other}")
        if other:
            database.execute("UPDATE mark SET data = ? WHERE name = 'format'", (str(other).encode(),))
            database.execute("ALTER TABLE opened ADD COLUMN run BLOB")
        else:
            database.execute("DELETE FROM mark WHERE name = 'format'")
        database.commit()
    before = (tmp_path / "spool.db").read_bytes()
    age = "a newer" if other else "an older"
    said = f"by {age} version of veilwalk .storage format {other}, this one has {FORMAT}"
    with pytest.raises(SpoolError, match=said):
        FolderDisk(tmp_path)
    with pytest.raises(SpoolError, match=said):
        open_read_only(tmp_path)
    assert (tmp_path / "spool.db").read_bytes() == before
    assert not (tmp_path / "spool.db.damaged").exists()


def test_a_version_that_stands_in_one_of_two_places_only_is_damage(tmp_path: Path) -> None:
    custody = custody_on(FolderDisk(tmp_path))
    take(custody, 1, b"still here")
    custody.spool.close()
    with closing(sqlite3.connect(tmp_path / "spool.db")) as database:
        database.execute("PRAGMA user_version=77")
    disk = FolderDisk(tmp_path)
    assert disk.mended
    assert custody_on(disk).spool.tables.messages() == []
    disk.close()
