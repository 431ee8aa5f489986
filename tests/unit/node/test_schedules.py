"""The whole protocol in virtual time: crashes, power cuts, pauses and silence by seed; nothing is lost or doubled."""

from __future__ import annotations

import multiprocessing

import pytest
from tests.campaigns import schedules


def test_no_schedule_loses_or_doubles_an_update() -> None:
    """Seeds that the campaign plays too, one after the other."""
    outcomes = [schedules.play(seed) for seed in range(60)]
    assert [outcome for outcome in outcomes if outcome.faults] == []
    assert sum(outcome.crashes for outcome in outcomes) > 200
    assert min(outcome.updates for outcome in outcomes) >= 4


def test_a_seed_is_played_the_same_again() -> None:
    """Here, and in another process."""
    here = [schedules.play(seed) for seed in (3, 4, 3, 4)]
    assert here[:2] == here[2:]
    assert here[0].trace != here[1].trace
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(schedules.play, (3, 4)) == here[:2]


@pytest.mark.parametrize("mutant", schedules.MUTANTS)
def test_nodes_that_are_wrong_are_caught(mutant: str) -> None:
    assert schedules.caught(mutant, range(120), until=1)
