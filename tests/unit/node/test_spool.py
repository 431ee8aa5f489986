"""Custody on disk: each step happens as a whole or not at all, and survives what may happen to a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns import forgetful_disk, power_loss
from tests.helpers.custody import HEADER, NEIGHBOURS, digest, open_custody, take

from veilwalk.core.errors import ProtocolError, SpoolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing._envelope import Header
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._handover import Progress, Verdict
from veilwalk.node.spool._spool import Spool


@pytest.fixture(params=[0, 1 << 20], ids=["files", "rows"])
def inline_bytes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def custody(tmp_path: Path, inline_bytes: int) -> Iterator[Custody]:
    made = open_custody(tmp_path, inline_bytes)
    yield made
    made.spool.close()


def test_a_relayed_message_is_pinned_with_its_arrival(custody: Custody) -> None:
    """One commit takes it and draws its next hop; it is offered under that number until acknowledged."""
    taken = take(custody, 1, b"for somebody else")
    assert taken.verdict is Verdict.TAKEN
    peer, seq = taken.row.peer, taken.row.seq
    assert peer in NEIGHBOURS
    assert seq == 1
    for _ in range(3):
        outgoing = custody.outgoing(peer)
        assert outgoing is not None
        assert (outgoing.seq, outgoing.body) == (1, b"for somebody else")
    custody.delivered(peer, 1)
    assert custody.outgoing(peer) is None
    assert custody.statistics() == ({"taken": 1, "hops": 1}, 0)


def test_numbers_are_taken_once_and_in_order(custody: Custody) -> None:
    """Again is acknowledged and forgotten; ahead is refused; after nothing, anything is next."""
    assert take(custody, 7, b"first ever").verdict is Verdict.TAKEN
    assert take(custody, 7, b"first ever").verdict is Verdict.AGAIN
    assert take(custody, 3, b"older").verdict is Verdict.AGAIN
    with pytest.raises(ProtocolError, match="far ahead"):
        take(custody, 9, b"gap")
    assert take(custody, 8, b"next").verdict is Verdict.TAKEN
    assert take(custody, 1, b"another link", "b").verdict is Verdict.TAKEN
    assert custody.statistics()[1] == 3


def test_a_neighbour_with_a_new_disk_begins_anew(custody: Custody) -> None:
    custody.greeted("a", b"first")
    take(custody, 1, b"one")
    custody.greeted("a", b"first")
    assert take(custody, 1, b"one").verdict is Verdict.AGAIN
    custody.greeted("a", b"other")
    assert take(custody, 1, b"another one").verdict is Verdict.TAKEN


def test_what_is_wrong_with_an_offer_is_said_and_nothing_kept(custody: Custody, tmp_path: Path) -> None:
    assert custody.hold("a", 1, bytes(32), b"damaged") is Verdict.DAMAGED
    assert take(custody, 1, b"old epoch").verdict is Verdict.REFUSED
    for seq in range(1, 5):
        assert take(custody, seq, f"one of four {seq}".encode()).verdict is Verdict.TAKEN
    assert custody.statistics()[1] == 4


def test_finding_02_who_brings_too_much_loses_its_own_and_nobody_waits(tmp_path: Path, inline_bytes: int) -> None:
    """One of the same neighbour's goes, with its file; not another's, nor what was given, nor what is for us."""
    custody = open_custody(tmp_path, inline_bytes)
    others = [take(custody, seq, f"of b {seq}".encode(), "b").row.id for seq in range(1, 5)]
    mine = take(custody, 1, b"mine" + b"u" * 16).row.id
    given = take(custody, 2, b"given").row
    assert custody.give(given.peer, given.seq)
    for seq in range(3, 50):
        assert take(custody, seq, f"garbage {seq}".encode()).verdict is Verdict.TAKEN
    rows = custody.spool.tables.messages()
    assert {*others, mine, given.id} <= {row.id for row in rows}
    assert len([row for row in rows if row.came_from == "a"]) == 4 + 1
    assert custody.statistics()[0]["crowded_out"] == 49 - 5
    # The file of the last one goes with the next commit.
    assert len(list((tmp_path / "messages").iterdir())) <= len(rows) + 1
    # Numbers of those that were pinned are cancelled: no link waits for one that is gone.
    for peer in NEIGHBOURS:
        numbers = [row.seq or 0 for row in custody.spool.tables.pinned_to(peer)] + custody.spool.tables.cancelled(peer)
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
    custody.spool.close()


def test_an_update_replaces_its_message_in_one_step(custody: Custody) -> None:
    """Id, new message, checkpoint, learner state and tally together; the same id again is not for this node."""
    taken = take(custody, 1, b"mine" + b"u" * 16)
    assert taken.for_us
    assert taken.row.peer is None
    done = Progress(
        message=b"sealed anew",
        model=b"model",
        header=HEADER,
        epoch=0,
        iteration=2,
        learner_state={"velocity": b"v"},
        counts=("updates",),
    )
    made = custody.progress(taken.row, done)
    assert made is not None
    assert made.peer is not None
    assert made.came_from == "a"
    with custody.spool.transaction() as register:
        assert [custody.spool.read(row) for row in register.messages()] == [b"sealed anew"]
        model = register.model("checkpoint")
        assert model is not None
        assert custody.spool.read(model) == b"model"
        assert register.learner_state() == {"velocity": b"v"}
        assert register.tally("updates") == 1
    again = take(custody, 2, b"mine" + b"u" * 16)
    assert (again.verdict, again.for_us) == (Verdict.TAKEN, False)
    assert again.row.peer is not None


def test_a_failed_commit_leaves_nothing_behind(custody: Custody, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither row nor file; the neighbour keeps its message and offers it again."""

    class FullDiskError(Exception):
        pass

    def fail(*_: Any, **__: Any) -> None:
        raise FullDiskError

    with monkeypatch.context() as patch:
        patch.setattr("veilwalk.node.spool._register.Register.add_message", fail)
        with pytest.raises(FullDiskError):
            take(custody, 1, b"a message")
    assert custody.statistics() == ({}, 0)
    assert custody.spool._disk.names() == []
    assert take(custody, 1, b"a message").verdict is Verdict.TAKEN


def test_what_waits_for_a_silent_neighbour_goes_to_one_that_was_busy(tmp_path: Path) -> None:
    """All others took nothing lately: better one of those than the same again."""
    custody = open_custody(tmp_path)
    taken = take(custody, 1, b"message")
    first = taken.row.peer
    custody._gone = lambda: frozenset(NEIGHBOURS) - {first}
    for _ in range(20):
        chosen = custody.reroute(first, avoid=frozenset())
        assert chosen
        assert first not in chosen
        with custody.spool.transaction() as register:
            (row,) = register.messages()
            register.pin(row, first)
    custody.spool.close()


def test_a_rerouted_message_leaves_no_gap(custody: Custody) -> None:
    """Its number is cancelled in its turn, before later ones are offered."""
    taken = take(custody, 1, b"message")
    first = taken.row.peer
    assert custody.reroute(first, avoid=frozenset()) <= set(NEIGHBOURS) - {first}
    cancel = custody.outgoing(first)
    assert cancel is not None
    assert (cancel.seq, cancel.row) == (1, None)
    custody.delivered(first, 1)
    assert custody.outgoing(first) is None
    assert custody.statistics()[0]["rerouted"] == 1
    assert custody.statistics()[1] == 1


def test_a_cancelled_number_is_not_taken_any_more_but_what_was_taken_stays(tmp_path: Path) -> None:
    """The neighbour may have cancelled it because its own copy is damaged: then this one is the last."""
    custody = open_custody(tmp_path, dwells=True)
    take(custody, 1, b"still held")
    custody.cancelled("a", 1)
    held = take(custody, 2, b"on its way already")
    custody.pin(held.row.id)
    custody.cancelled("a", 2)
    assert custody.statistics()[1] == 2
    custody.cancelled("a", 3)
    assert take(custody, 3, b"never mind").verdict is Verdict.AGAIN
    with pytest.raises(ProtocolError, match="far ahead"):
        custody.cancelled("a", 9)
    custody.spool.close()


def test_a_restart_finds_everything_and_clears_what_was_half_done(tmp_path: Path, inline_bytes: int) -> None:
    custody = open_custody(tmp_path, inline_bytes)
    relayed = take(custody, 1, b"relayed").row
    mine = take(custody, 2, b"mine" + b"x" * 16).row
    custody.spool.close()
    (tmp_path / "messages" / "0123456789abcdef.draft").write_bytes(b"half")
    (tmp_path / "messages" / "fedcba9876543210").write_bytes(b"no row was committed")
    again = open_custody(tmp_path, inline_bytes)
    assert again.recover() == [(relayed, False), (mine, True)]
    assert len(again.spool._disk.names()) == (2 if inline_bytes == 0 else 0)
    again.spool.close()


def test_a_flipped_bit_is_noticed_and_not_passed_on(tmp_path: Path) -> None:
    """Found at a restart, or when the neighbour says so: the message goes, its number is cancelled, it is counted."""
    custody = open_custody(tmp_path)
    row = take(custody, 1, b"precious bytes").row
    file = tmp_path / "messages" / row.file
    file.write_bytes(b"precious bytez")
    outgoing = custody.outgoing(row.peer)
    assert outgoing is not None
    assert custody.drop_if_damaged(row)
    cancel = custody.outgoing(row.peer)
    assert cancel is not None
    assert cancel.row is None
    custody.spool.close()
    again = open_custody(tmp_path)
    assert again.recover() == []
    assert again.statistics()[0]["damaged"] == 1
    again.spool.close()


def test_one_folder_is_for_one_process(tmp_path: Path) -> None:
    custody = open_custody(tmp_path)
    with pytest.raises(SpoolError, match="a node runs"):
        FolderDisk(tmp_path)
    custody.spool.close()
    FolderDisk(tmp_path).close()


def test_a_disk_that_fails_is_our_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC while writing: nothing is taken, and the neighbour is told to try again later."""
    custody = open_custody(tmp_path)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(SpoolError, match="No space left"):
            take(custody, 1, b"a message")
    assert take(custody, 1, b"a message").verdict is Verdict.TAKEN
    custody.spool.close()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SpoolError, match="file"):
        FolderDisk(tmp_path / "file" / "state")


def test_a_database_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    """One that is none is another matter: it is set aside (test_damage.py)."""
    (tmp_path / "spool.db").mkdir()
    with pytest.raises(SpoolError, match="cannot be opened"):
        FolderDisk(tmp_path)


def test_power_cuts_lose_and_double_nothing() -> None:
    """Whatever was not synced may be gone; 2,000 cuts at every step of custody."""
    cuts, faults = power_loss.campaign(cuts=2000, seed=1)
    assert cuts >= 2000
    assert faults == []


@pytest.mark.parametrize("disk", [forgetful_disk.UnsyncedDisk, forgetful_disk.LazyDisk, forgetful_disk.BootlessDisk])
def test_the_simulation_catches_a_node_that_does_not_sync(disk: Any) -> None:
    """Files, or the database: leaving either to chance loses messages; not to know of a cut doubles them."""
    _, faults = power_loss.campaign(cuts=1000, seed=2, cuts_per_world=100, disk=disk, until_fault=True)
    assert faults


def test_the_simulation_catches_a_node_that_uses_what_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Used as soon as it is stored, a message is used twice when it goes another way after all."""
    hold = Custody.hold

    def use_at_once(self: Custody, peer: str, seq: int, announced: bytes, body: Any) -> Verdict:
        held = hold(self, peer, seq, announced, body)
        if held is Verdict.HELD:
            self.take(peer, seq)
        return held

    monkeypatch.setattr(Custody, "hold", use_at_once)
    _, faults = power_loss.campaign(cuts=200, seed=2, cuts_per_world=10, until_fault=True)
    assert any("messages on their way" in fault for fault in faults)


def test_what_is_held_is_used_by_nobody_and_forgotten_at_a_restart(tmp_path: Path, inline_bytes: int) -> None:
    """Until it is given it is the neighbour's, who may send it another way."""
    custody = open_custody(tmp_path, inline_bytes)
    assert custody.hold("a", 1, digest(b"mine" + b"u" * 16), b"mine" + b"u" * 16) is Verdict.HELD
    assert custody.statistics() == ({}, 0)
    custody.spool.close()
    again = open_custody(tmp_path, inline_bytes)
    assert again.recover() == []
    assert again.spool._disk.names() == []
    assert again.take("a", 1).verdict is Verdict.UNKNOWN
    assert take(again, 1, b"mine" + b"u" * 16).for_us
    again.spool.close()


def test_a_neighbour_holds_one_message_here_at_most(custody: Custody) -> None:
    """Another offer, a cancellation or a new disk take its place."""
    for _ in range(3):
        assert custody.hold("a", 1, digest(b"offered"), b"offered") is Verdict.HELD
    assert len(custody.spool._disk.names()) <= 1
    custody.greeted("a", b"new disk")
    assert custody.take("a", 1).verdict is Verdict.UNKNOWN
    custody.hold("a", 1, digest(b"offered"), b"offered")
    custody.cancelled("a", 1)
    assert custody.spool._disk.names() == []
    assert custody.take("a", 1).verdict is Verdict.AGAIN
    assert custody.statistics() == ({}, 0)


def test_what_was_given_goes_no_other_way(custody: Custody) -> None:
    """It may be used there already: it waits for the answer, and goes elsewhere only when that says no."""
    row = take(custody, 1, b"message").row
    custody.give(row.peer, row.seq)
    assert custody.reroute(row.peer, avoid=frozenset()) == set()
    outgoing = custody.outgoing(row.peer)
    assert outgoing is not None
    assert outgoing.given
    custody.not_given(row.peer, row.seq)
    assert custody.reroute(row.peer, avoid=frozenset())
    assert custody.statistics()[0]["rerouted"] == 1


def test_what_went_another_way_is_not_given(custody: Custody) -> None:
    """Between the offer and the answer, which the link does not see: only the tables know."""
    row = take(custody, 1, b"message").row
    assert custody.give(row.peer, row.seq)
    custody.not_given(row.peer, row.seq)
    custody.reroute(row.peer, avoid=frozenset())
    assert not custody.give(row.peer, row.seq)


def test_a_member_that_left_does_not_take_what_it_was_given_with_it(custody: Custody) -> None:
    row = take(custody, 1, b"message").row
    custody.give(row.peer, row.seq)
    custody.next_hop = NextHop(walk=SIMPLE, neighbours=tuple(set(NEIGHBOURS) - {row.peer}))
    (moved,) = custody.part_from(row.peer)
    assert moved.peer not in {row.peer, None}


@pytest.mark.parametrize("same_boot", [True, False])
def test_after_a_power_cut_everything_pinned_may_have_been_given(tmp_path: Path, same_boot: bool) -> None:
    """That is written without waiting for the disk; a process that was only killed knows it for certain."""
    custody = open_custody(tmp_path)
    row = take(custody, 1, b"message").row
    custody.spool.close()
    disk = FolderDisk(tmp_path)
    if not same_boot:
        disk.boot = b"another start"
    again = Spool(disk)
    assert again.tables.is_given(row.peer, row.seq) is not same_boot
    again.close()


def test_files_are_written_over_and_not_left_in_plain(tmp_path: Path) -> None:
    """A sealed message's file serves the next one; a model's goes when there is a newer one."""
    custody = open_custody(tmp_path)
    first = take(custody, 1, b"one message").row
    custody.delivered(first.peer, first.seq)
    second = take(custody, 2, b"the next, with more bytes").row
    # Until its row is gone for good, which the commit of the second has made safe, a file is not touched.
    assert second.file != first.file
    custody.delivered(second.peer, second.seq)
    third = take(custody, 3, b"a third").row
    assert third.file == first.file
    assert custody.spool.read(third) == b"a third"
    for number in (1, 2):
        mine = take(custody, 3 + number, b"mine" + bytes([number]) * 16).row
        header = Header(update_id=bytes([number]) * 16, walk_tag=b"w" * 8, iteration=number, body_length=3)
        custody.progress(
            mine, Progress(message=b"sealed", model=b"model", header=header, epoch=0, iteration=number, counts=())
        )
    assert sum(name.startswith("model-") for name in custody.spool._disk.names()) == 1
    custody.spool.close()
