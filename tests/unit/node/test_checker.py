"""The checker of the campaign says that a run is over only when it is: nodes that run are read one after the other."""

from __future__ import annotations

import pytest
from tests.campaigns.chaos_checker import Findings, ends


def found(*, kept: int = 0, taken: int = 0, unfinished: int = 0) -> Findings:
    return Findings(
        updates=1,
        hops=9,
        live=0,
        kept=kept,
        taken=taken,
        lost=0,
        doubled=0,
        finished=3 - unfinished,
        unfinished=unfinished,
        ended=[1],
        tallies={},
    )


@pytest.mark.parametrize(
    ("looks", "over_at"),
    [
        ([found(taken=5)], None),
        ([found(taken=5), found(taken=5)], 1),
        # One took a message between the two looks: it was with neither when they were read.
        ([found(taken=5), found(taken=6), found(taken=6)], 2),
        # A finished model is under way to a node that has it already.
        ([found(taken=5, kept=1), found(taken=5, kept=1), found(taken=6), found(taken=6)], 3),
        ([found(taken=5, unfinished=1), found(taken=5, unfinished=1)], None),
    ],
)
def test_a_run_is_over_when_nothing_moves(looks: list[Findings], over_at: int | None) -> None:
    is_over = ends()
    assert [at for at, look in enumerate(looks) if is_over(look)] == ([] if over_at is None else [over_at])
