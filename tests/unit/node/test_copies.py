"""The same bytes again: nobody opens them twice, and nobody sees by what becomes of them whose they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.helpers.custody import HEADER, deliver, open_custody, take

from veilwalk.node.peer._watches import Visits
from veilwalk.node.spool import UpdateOutcome, Verdict


def test_finding_06_replays_are_held_alike_whoever_opened_them(tmp_path: Path) -> None:
    """Brought again and again, the same bytes get the same answers from their destination as from a relay, and go on.

    At each step as many are here, and they wait as long; neither lets any go before it is too old, and then both do. A
    destination that kept them would be known by it, to one neighbour even, for what goes on comes round again.
    """
    mine, others = b"mine" + b"u" * 16, b"other" + b"u" * 16
    stories = {}
    went: dict[bytes, list[int]] = {}
    for body in (mine, others):
        custody = open_custody(tmp_path / body.decode())
        now = 0.0
        custody.visits = Visits(3, pause_s=1.0, life_s=100.0, clock=lambda: now)  # noqa: B023  called in this turn
        first = take(custody, 1, body)
        if body is mine:
            done = UpdateOutcome(message=None, model=b"m", header=HEADER, epoch=0, iteration=2)
            custody.replace(first.row, done)
        else:
            custody.drop(first.row.id, "handed on")
        story, seq = [], 2
        for turn in range(4):
            found = []
            now = 101.0 if turn == 3 else now
            for _ in range(6):
                taken = take(custody, seq, body)
                seq += taken.verdict is Verdict.TAKEN
                here = custody.spool.tables.messages()
                story.append((turn, taken.verdict, taken.wait_s, len(here), [row.peer for row in here]))
                found += [taken.row.id] if taken.row is not None else []
            # Their dwell is over.
            onward = [custody.pin(number) for number in found]
            went.setdefault(body, []).append(len([row for row in onward if row is not None]))
            for row in onward:
                if row is not None:
                    deliver(custody, row)
        stories[body] = story
        custody.spool.close()
    assert (stories[mine], went[mine]) == (stories[others], went[others])
    assert [bool(number) for number in went[mine]] == [True, True, True, False]


def test_finding_06_copies_are_held_alike_while_the_first_is_trained_on(tmp_path: Path) -> None:
    """Brought again at once, before the first can have been opened and sealed anew: they rest and go as elsewhere."""
    mine, others = b"mine" + b"u" * 16, b"other" + b"u" * 16
    stories: dict[bytes, list[Any]] = {}
    for body in (mine, others):
        custody = open_custody(tmp_path / body.decode())
        custody.visits = Visits(2, pause_s=1.0)
        first = take(custody, 1, body)
        assert first.for_us is (body is mine)
        for seq in range(2, 8):
            taken = take(custody, seq, body)
            assert not taken.for_us
            stories.setdefault(body, []).append((taken.wait_s, len(custody.spool.tables.messages())))
        assert any(wait_s for wait_s, _ in stories[body])
        custody.spool.close()
        again = open_custody(tmp_path / body.decode())
        # Of the copies that a restart finds one is trained on, at most.
        assert sum(for_us for _, for_us in again.recover()) == (body is mine)
        again.spool.close()
    assert stories[mine] == stories[others]


def test_finding_06_what_was_given_up_here_goes_on_when_it_comes_again(tmp_path: Path) -> None:
    """As a walk that was behind: nothing is made of it, and still nobody sees by its bytes who opened it."""
    custody = open_custody(tmp_path)
    body = b"mine" + b"u" * 16
    first = take(custody, 1, body)
    assert first.for_us
    custody.replace(first.row, UpdateOutcome(counts=("retired",)))
    again = take(custody, 2, body)
    assert not again.for_us
    onward = custody.pin(again.row.id)
    assert onward is not None
    assert onward.peer is not None
    custody.spool.close()


def test_finding_06_a_restart_does_not_forget_which_are_copies(tmp_path: Path) -> None:
    custody = open_custody(tmp_path)
    body = b"mine" + b"u" * 16
    first = take(custody, 1, body)
    custody.replace(first.row, UpdateOutcome(message=None, model=b"m", header=HEADER, epoch=0, iteration=2))
    take(custody, 2, body)
    custody.spool.close()
    again = open_custody(tmp_path)
    ((row, for_us),) = again.recover()
    assert not for_us
    onward = again.pin(row.id)
    assert onward is not None
    assert onward.peer is not None
    again.spool.close()
