"""Answers at random moments: a neighbour with a watch must not read from them how busy this node is.

A question is answered after a time that is drawn before any work is done, evenly up to a spread that is long beside the
work. Moments of a fixed grid would hide when the question was seen, and show to the millisecond how late this node was
in answering it; a fixed time after the question would show both.
"""

from __future__ import annotations

import asyncio
import secrets
import time

#: Of PING, which may be answered at leisure: some ten a second then tell next to nothing.
PING_SPREAD_S = 0.2
_LONGEST_SPREAD_S = 0.1
_dice = secrets.SystemRandom()


def answer_spread(dwell_s: float) -> float:
    """Return within which time anything but PING is answered where messages dwell so long."""
    return min(_LONGEST_SPREAD_S, dwell_s / 4)


def due_within(spread_s: float) -> float:
    """Return when a question asked now is to be answered."""
    return time.monotonic() + _dice.random() * spread_s if spread_s else 0.0


async def wait_until(due: float) -> None:
    """Wait for that moment, if it is not over."""
    left_s = due - time.monotonic() if due else 0.0
    if left_s > 0:
        await asyncio.sleep(left_s)
