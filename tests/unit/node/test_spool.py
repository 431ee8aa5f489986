"""Custody on disk: each step happens as a whole or not at all, and survives what may happen to a disk."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns import forgetful_disk, power_loss
from tests.helpers.custody import HEADER, NEIGHBOURS, deliver, digest, give, key, open_custody, relay, take
from tools.pages import custody as custody_page

from veilwalk.core.errors import SpoolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node.members import SIGNATURE_BYTES
from veilwalk.node.peer import NextHop
from veilwalk.node.peer._custody import TRANSITIONS, Custody, Event, Place, next_place
from veilwalk.node.sealing import Header
from veilwalk.node.spool import KEYS_REMEMBERED, FolderDisk, SignedEnd, Spool, UpdateOutcome, Verdict


@pytest.fixture(params=[0, 1 << 20], ids=["files", "rows"])
def inline_bytes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def custody(tmp_path: Path, inline_bytes: int) -> Iterator[Custody]:
    made = open_custody(tmp_path, inline_bytes)
    yield made
    made.spool.close()


def test_a_relayed_message_is_pinned_when_its_dwell_is_over(custody: Custody) -> None:
    """It is offered under its key until acknowledged."""
    taken = take(custody, 1, b"for somebody else")
    assert taken.verdict is Verdict.TAKEN
    assert taken.row.peer is None
    row = custody.pin(taken.row.id)
    assert row is not None
    assert row.peer in NEIGHBOURS
    for _ in range(3):
        outgoing = custody.outgoing(row.peer)
        assert outgoing is not None
        assert outgoing == (row, b"for somebody else")
        assert not outgoing[0].given
    deliver(custody, row)
    assert custody.outgoing(row.peer) is None
    assert custody.statistics() == ({"taken": 1, "hops": 1}, 0)


def test_a_key_is_taken_once(custody: Custody) -> None:
    """Again is acknowledged and forgotten, among the last of each neighbour; another neighbour's key is another's."""
    for number in range(KEYS_REMEMBERED + 1):
        assert take(custody, number, b"message %d" % number).verdict is Verdict.TAKEN
        custody.drop(custody.spool.tables.messages()[-1].id, "dropped")
    for number in range(1, KEYS_REMEMBERED + 1):
        assert take(custody, number, b"message %d" % number).verdict is Verdict.AGAIN
    assert take(custody, 0, b"message 0").verdict is Verdict.TAKEN
    assert take(custody, 5, b"another link", "b").verdict is Verdict.TAKEN


def test_a_neighbour_with_a_new_disk_begins_anew(custody: Custody) -> None:
    assert custody.greet("a", b"first")
    take(custody, 1, b"one")
    assert not custody.greet("a", b"first")
    assert take(custody, 1, b"one").verdict is Verdict.AGAIN
    assert custody.greet("a", b"other")
    assert take(custody, 1, b"another one").verdict is Verdict.TAKEN


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("place", [None, *Place])
def test_what_the_table_does_not_list_cannot_happen(place: Place | None, event: Event) -> None:
    if (place, event) in TRANSITIONS:
        assert next_place(place, event) is TRANSITIONS[place, event]
        return
    with pytest.raises(RuntimeError):
        next_place(place, event)


def test_the_page_shows_the_table() -> None:
    """Made by ``python -m tools.pages.custody``."""
    page = custody_page.PAGE.read_text()
    assert custody_page.page_with_diagram(page) == page
    assert all(event.value in page for event in Event)


def test_a_message_cannot_be_given_twice(custody: Custody) -> None:
    """A fault of this node's own, not of a neighbour: it says so, and nothing is sent."""
    row = relay(custody, 1, b"message")
    assert give(custody, row)
    with pytest.raises(RuntimeError):
        give(custody, row)


def test_what_is_wrong_with_an_offer_is_said_and_nothing_kept(custody: Custody, tmp_path: Path) -> None:
    assert custody.hold("a", key(1), bytes(32), b"damaged") is Verdict.DAMAGED
    assert take(custody, 1, b"old epoch").verdict is Verdict.REFUSED
    for number in range(1, 5):
        assert take(custody, number, f"one of four {number}".encode()).verdict is Verdict.TAKEN
    assert custody.statistics()[1] == 4


def test_finding_02_who_brings_too_much_loses_its_own_and_nobody_waits(tmp_path: Path, inline_bytes: int) -> None:
    """One of the same neighbour's goes, with its file; not another's, nor what was given, nor what is for us."""
    custody = open_custody(tmp_path, inline_bytes)
    others = [take(custody, seq, f"of b {seq}".encode(), "b").row.id for seq in range(1, 5)]
    mine = take(custody, 1, b"mine" + b"u" * 16).row.id
    given = relay(custody, 2, b"given")
    assert give(custody, given)
    for seq in range(3, 50):
        assert take(custody, seq, f"garbage {seq}".encode()).verdict is Verdict.TAKEN
    rows = custody.spool.tables.messages()
    assert {*others, mine, given.id} <= {row.id for row in rows}
    assert len([row for row in rows if row.came_from == "a"]) == 4 + 1
    assert custody.statistics()[0]["crowded_out"] == 49 - 5
    # The file of the last one goes with the next commit.
    assert len(list((tmp_path / "messages").iterdir())) <= len(rows) + 1
    custody.spool.close()


def test_an_update_replaces_its_message_in_one_step(custody: Custody) -> None:
    """Id, new message, checkpoint, learner state and tally together; the same id again is not for this node."""
    taken = take(custody, 1, b"mine" + b"u" * 16)
    assert taken.for_us
    assert taken.row.peer is None
    done = UpdateOutcome(
        message=b"sealed anew",
        model=b"model",
        header=HEADER,
        epoch=0,
        iteration=2,
        learner_state=b"velocity",
        counts=("updates",),
    )
    made = custody.replace(taken.row, done)
    assert made is not None
    assert made.came_from == "a"
    with custody.spool.transaction() as register:
        assert [custody.spool.read(row) for row in register.messages()] == [b"sealed anew"]
        model = register.model("checkpoint")
        assert model is not None
        assert custody.spool.read(model) == b"model"
        state = register.model("state")
        assert state is not None
        assert custody.spool.read(state) == b"velocity"
        assert register.tally("updates") == 1
    again = take(custody, 2, b"mine" + b"u" * 16)
    assert (again.verdict, again.for_us) == (Verdict.TAKEN, False)


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
    first = str(relay(custody, 1, b"message").peer)
    custody._avoided = lambda _: frozenset(NEIGHBOURS) - {first}
    for _ in range(20):
        chosen = custody.reroute(first, avoid=frozenset())
        assert chosen
        assert first not in chosen
        with custody.spool.transaction() as register:
            (row,) = register.messages()
            register.pin(row, first)
    custody.spool.close()


def test_a_rerouted_message_has_another_key(custody: Custody) -> None:
    """Whoever holds it under the first one can never be given it."""
    row = relay(custody, 1, b"message")
    assert custody.reroute(str(row.peer), avoid=frozenset()) <= set(NEIGHBOURS) - {row.peer}
    assert custody.outgoing(str(row.peer)) is None
    (moved,) = custody.spool.tables.messages()
    assert moved.key != row.key
    assert custody.statistics()[0]["rerouted"] == 1
    assert custody.statistics()[1] == 1


def test_so_many_deliveries_wait_for_a_sync_as_keys_are_remembered(tmp_path: Path) -> None:
    """A power cut may bring delivered messages back: never one whose key the neighbour has forgotten."""
    custody, synced = open_custody(tmp_path, 1 << 20, quota=1000), list[bool]()
    transaction = custody.spool._disk.transaction
    rows = [relay(custody, number, b"message %d" % number) for number in range(2 * KEYS_REMEMBERED)]
    for row in rows:
        give(custody, row)

    def noting(*, durable: bool = True) -> Any:
        synced.append(durable)
        return transaction(durable=durable)

    custody.spool._disk.transaction = noting  # type: ignore[method-assign]
    for row in rows:
        custody.deliver(str(row.peer), row.key or b"")
    runs = "".join("s" if durable else "." for durable in synced).split("s")
    assert len(synced) == len(rows)
    assert max(map(len, runs)) < KEYS_REMEMBERED
    custody.spool.close()


def test_a_restart_finds_everything_and_clears_what_was_half_done(tmp_path: Path, inline_bytes: int) -> None:
    custody = open_custody(tmp_path, inline_bytes)
    relayed = relay(custody, 1, b"relayed")
    mine = take(custody, 2, b"mine" + b"x" * 16).row
    custody.spool.close()
    (tmp_path / "messages" / "0123456789abcdef.draft").write_bytes(b"half")
    (tmp_path / "messages" / "fedcba9876543210").write_bytes(b"no row was committed")
    again = open_custody(tmp_path, inline_bytes)
    assert again.recover() == [(relayed, False), (mine, True)]
    assert len(again.spool._disk.names()) == (2 if inline_bytes == 0 else 0)
    again.spool.close()


def test_a_flipped_bit_is_noticed_and_not_passed_on(tmp_path: Path) -> None:
    """Found at a restart, or when the neighbour says so: the message goes, and it is counted."""
    custody = open_custody(tmp_path)
    row = relay(custody, 1, b"precious bytes")
    file = tmp_path / "messages" / str(row.file)
    file.write_bytes(b"precious bytez")
    assert custody.outgoing(str(row.peer)) is not None
    assert custody.drop_if_damaged(row)
    assert custody.outgoing(str(row.peer)) is None
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
    """Whatever was not synced may be gone; hundreds of cuts at every step of custody."""
    cuts, faults = power_loss.campaign(cuts=600, seed=1)
    assert cuts >= 600
    assert faults == []


@pytest.mark.parametrize("disk", [forgetful_disk.UnsyncedDisk, forgetful_disk.LazyDisk, forgetful_disk.BootlessDisk])
def test_the_simulation_catches_a_node_that_does_not_sync(disk: Any) -> None:
    """Files, or the database: leaving either to chance loses messages; not to know of a cut doubles them."""
    _, faults = power_loss.campaign(cuts=1000, seed=2, cuts_per_world=100, disk=disk, until_fault=True)
    assert faults


def test_the_simulation_catches_a_node_that_uses_what_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Used as soon as it is stored, a message is used twice when it goes another way after all."""
    hold = Custody.hold

    def use_at_once(self: Custody, peer: str, key: bytes, announced: bytes, body: Any) -> Verdict:
        held = hold(self, peer, key, announced, body)
        if held is Verdict.HELD:
            self.take(peer, key)
        return held

    monkeypatch.setattr(Custody, "hold", use_at_once)
    _, faults = power_loss.campaign(cuts=200, seed=2, cuts_per_world=10, until_fault=True)
    assert any("messages on their way" in fault for fault in faults)


def test_no_signature_is_lost_to_one_that_comes_at_the_same_time(custody: Custody) -> None:
    """A node signs an end, or takes it with a signature, while another is written that it did not know of."""
    ours, theirs, others = (bytes([number]) * SIGNATURE_BYTES for number in (1, 2, 3))
    end = SignedEnd(lane=0, model=b"model", digest=hashlib.sha256(b"model").digest(), iteration=5)

    def take_end(signatures: bytes) -> None:
        taken = take(custody, signatures[0], b"mine" + signatures[:16])
        custody.replace(taken.row, UpdateOutcome(header=HEADER, end=replace(end, signatures=signatures)))

    take_end(theirs)
    assert custody.sign_end(replace(end, signatures=ours), {})
    with custody.spool.transaction() as register:
        register.execute("DELETE FROM opened")
    take_end(others)
    noted = custody.spool.tables.model("end")
    assert noted is not None
    assert noted.signatures == ours + theirs + others


def test_what_is_held_is_used_by_nobody_and_forgotten_at_a_restart(tmp_path: Path, inline_bytes: int) -> None:
    """Until it is given it is the neighbour's, who may send it another way."""
    custody = open_custody(tmp_path, inline_bytes)
    assert custody.hold("a", key(1), digest(b"mine" + b"u" * 16), b"mine" + b"u" * 16) is Verdict.HELD
    assert custody.statistics() == ({}, 0)
    custody.spool.close()
    again = open_custody(tmp_path, inline_bytes)
    assert again.recover() == []
    assert again.spool._disk.names() == []
    assert again.take("a", key(1)).verdict is Verdict.UNKNOWN
    assert take(again, 1, b"mine" + b"u" * 16).for_us
    again.spool.close()


def test_a_neighbour_holds_one_message_here_at_most(custody: Custody) -> None:
    """Another offer, a cancellation or a new disk take its place."""
    for _ in range(3):
        assert custody.hold("a", key(1), digest(b"offered"), b"offered") is Verdict.HELD
    assert len(custody.spool._disk.names()) <= 1
    custody.greet("a", b"new disk")
    assert custody.take("a", key(1)).verdict is Verdict.UNKNOWN
    assert custody.spool._disk.names() == []
    assert custody.statistics() == ({}, 0)


def test_what_was_given_goes_no_other_way(custody: Custody) -> None:
    """It may be used there already: it waits for the answer, and goes elsewhere only when that says no."""
    row = relay(custody, 1, b"message")
    assert give(custody, row)
    assert custody.reroute(str(row.peer), avoid=frozenset()) == set()
    outgoing = custody.outgoing(str(row.peer))
    assert outgoing is not None
    assert outgoing[0].given
    custody.deny(str(row.peer), row.key or b"")
    assert custody.reroute(str(row.peer), avoid=frozenset())
    assert custody.statistics()[0]["rerouted"] == 1


def test_a_walk_that_was_given_long_ago_is_elsewhere_or_lost(custody: Custody) -> None:
    """Finding 13: a neighbour that never answers GO must not keep this node from finding the walk late."""
    now = 100.0
    custody._clock = lambda: now
    row = relay(custody, 1, b"message")
    assert custody.has_a_walk(10.0)
    give(custody, row)
    now = 109.0
    assert custody.has_a_walk(10.0)
    now = 111.0
    assert not custody.has_a_walk(10.0)
    custody.deny(str(row.peer), row.key or b"")
    assert custody.has_a_walk(10.0)


def test_what_went_another_way_is_not_given(custody: Custody) -> None:
    """Between the offer and the answer, which the link does not see: only the tables know."""
    row = relay(custody, 1, b"message")
    custody.reroute(str(row.peer), avoid=frozenset())
    assert not give(custody, row)


def test_a_member_that_left_does_not_take_what_it_was_given_with_it(custody: Custody) -> None:
    row = relay(custody, 1, b"message")
    give(custody, row)
    custody.next_hop = NextHop(walk=SIMPLE, neighbours=tuple(set(NEIGHBOURS) - {str(row.peer)}))
    (moved,) = custody.part_from(str(row.peer))
    assert moved.peer not in {row.peer, None}


@pytest.mark.parametrize("same_boot", [True, False])
def test_after_a_power_cut_everything_pinned_may_have_been_given(tmp_path: Path, same_boot: bool) -> None:
    """That is written without waiting for the disk; a process that was only killed knows it for certain."""
    custody = open_custody(tmp_path)
    row = relay(custody, 1, b"message")
    custody.spool.close()
    disk = FolderDisk(tmp_path)
    if not same_boot:
        disk.boot = b"another start"
    again = Spool(disk)
    assert [bool(one.given) for one in again.tables.messages(peer=str(row.peer))] == [not same_boot]
    again.close()


def test_files_are_written_over_and_not_left_in_plain(tmp_path: Path) -> None:
    """A sealed message's file serves the next one; a model's goes when there is a newer one."""
    custody = open_custody(tmp_path)
    first = relay(custody, 1, b"one message")
    deliver(custody, first)
    second = relay(custody, 2, b"the next, with more bytes")
    # Until its row is gone for good, which the commit of the second has made safe, a file is not touched.
    assert second.file != first.file
    deliver(custody, second)
    third = take(custody, 3, b"a third").row
    assert third.file == first.file
    assert custody.spool.read(third) == b"a third"
    for number in (1, 2):
        mine = take(custody, 3 + number, b"mine" + bytes([number]) * 16).row
        header = Header(update_id=bytes([number]) * 16, walk_tag=b"w" * 8, iteration=number, body_length=3)
        custody.replace(
            mine, UpdateOutcome(message=b"sealed", model=b"model", header=header, epoch=0, iteration=number, counts=())
        )
    assert sum(name.startswith("model-") for name in custody.spool._disk.names()) == 1
    custody.spool.close()
