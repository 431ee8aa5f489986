"""How long a node waits for a neighbour, how much it takes from one, and at what moments it answers.

Answers come at random moments: a neighbour with a watch must not read from them how busy this node is. A question is
answered after a time that is drawn before any work is done, evenly up to a spread that is long beside the work. Moments
of a fixed grid would hide when the question was seen, and show to the millisecond how late this node was in answering
it; a fixed time after the question would show both.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass, replace

from veilwalk.core import validate

#: Of PING, which may be answered at leisure: some ten a second then tell next to nothing.
PING_SPREAD_S = 0.2
_LONGEST_SPREAD_S = 0.1
# A neighbour slower than this is as good as silent.
_SLOWEST_BYTES_PER_S = 64 * 1024
# A neighbour may have two messages here however long they are: one that goes on, and one that comes.
_LEAST_QUOTA = 2
_dice = secrets.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Waiting times in seconds, and quotas for each neighbour.

    Attributes:
        pin_s: A message waits so long for a neighbour that is connected and does not take it, then goes another way:
            never longer than a quarter of the time after which walks are believed lost. For one that is not connected
            it waits a second at most.
        connect_s: For a connection and its handshake.
        answer_s: For an answer, besides the time a message takes at 64 KB/s.
        ping_s: A quiet connection is tried this often.
        retry_s: Longest pause between two attempts.
        quota: Messages from one neighbour that may be here at once; for one more, one of its own goes.
        quota_bytes: The same in bytes, where messages are long; two messages are always allowed.
        rate: Messages a second from one neighbour, in the long run.
        burst: Messages at once from one neighbour, after a pause.
    """

    pin_s: float = 5.0
    connect_s: float = 10.0
    answer_s: float = 10.0
    ping_s: float = 15.0
    retry_s: float = 2.0
    quota: int = 16
    quota_bytes: int = 256 * 1024 * 1024
    rate: float = 200.0
    burst: int = 50

    def __post_init__(self) -> None:
        counts = {"quota": self.quota, "quota_bytes": self.quota_bytes, "burst": self.burst}
        validate.more_than(0, **{name: getattr(self, name) for name in self.__slots__ if name not in counts})
        validate.integer(1, **counts)

    def transfer_s(self, message_bytes: int) -> float:
        """Return how long a message with its answer may take."""
        return self.answer_s + message_bytes / _SLOWEST_BYTES_PER_S

    def messages_of_one(self, message_bytes: int, walks: int = 1) -> int:
        """Return how many messages of that length one neighbour may have here: one more for each further walk."""
        return min(self.quota, max(_LEAST_QUOTA, self.quota_bytes // message_bytes)) + walks - 1

    def within(self, late_s: float) -> Limits:
        """Return limits that give a silent neighbour up well before anybody believes the walk lost."""
        return replace(self, pin_s=min(self.pin_s, late_s / 4))


class TokenBucket:
    """Lets ``rate`` messages a second through, and ``burst`` at once after a pause."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = float(burst)
        self._last = time.monotonic()

    async def take(self) -> None:
        """Take one token; wait for it where there is none."""
        # Never in advance: a neighbour that comes back again and again would leave ever longer waits behind.
        while not self.take_if_any():
            await asyncio.sleep((1 - self._tokens) / self._rate)

    def take_if_any(self) -> bool:
        """Take one token if there is one; return whether there was."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._rate)
        self._last = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


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
