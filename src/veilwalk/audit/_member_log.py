"""What members of a coalition write down: every hop at which the token was with one of them, and nothing else.

A segment begins when a member opened a ciphertext and drew the next recipients, whom it knows, and ends when a
member opens one again. At its start the token's state is known for certain, so what went before tells nothing more:
segments are inferred each by itself, and exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class MemberLog:
    """One segment as the members saw it: a row each time that one of them held the token.

    Attributes:
        clock: When.
        node: The member.
        came_from: Who handed it over.
        went_to: Whom the member handed it to.
        new: Whether the ciphertext is another than the one they last sent on; not so in the first row.
        drawn: The recipients that the member of the first row drew.
        updates: How many updates there were from that draw to the opening in the last row, as the opened message says.
        row: Which update each ciphertext belongs to: to file answers under, never to infer from.
    """

    clock: IntArray
    node: IntArray
    came_from: IntArray
    went_to: IntArray
    new: BoolArray
    drawn: IntArray
    updates: int
    row: IntArray


def member_log(path: IntArray, clocks: IntArray, drawn: IntArray, member: BoolArray, first_row: int) -> MemberLog:
    """Return what members saw of one segment.

    Args:
        path: Where the token was from the hop before the first opening to the hop after the last.
        clocks: When the updates from the first opening to the last arrived, both included, one a row of the run.
        drawn: The recipients drawn at the first opening.
        member: Who the members are.
        first_row: The row of the run that the first clock belongs to.
    """
    inner = path[1:-1]
    held = np.flatnonzero(member[inner])
    clock = held + clocks[0]
    # Which ciphertext is handed over, and which one leaves: another one at an opening.
    arrives = np.searchsorted(clocks, clock, side="left")
    leaves = np.searchsorted(clocks, clock, side="right")
    new = np.r_[False, arrives[1:] != leaves[:-1]]
    return MemberLog(
        clock=clock,
        node=inner[held].astype(np.int64),
        came_from=path[held].astype(np.int64),
        went_to=path[held + 2].astype(np.int64),
        new=new,
        drawn=drawn,
        updates=len(clocks) - 2,
        row=first_row + arrives,
    )
