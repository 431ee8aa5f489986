"""How long a node waits for a neighbour, and how much it takes from one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from veilwalk.core import validate

# A neighbour slower than this is as good as silent.
_SLOWEST_BYTES_PER_S = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Waiting times in seconds, and quotas for each neighbour.

    Attributes:
        pin_s: A message waits so long for a silent neighbour before it goes another way.
        connect_s: For a connection and its handshake.
        answer_s: For an answer, besides the time a message takes at 64 KB/s.
        ping_s: A quiet connection is tried this often.
        retry_s: Longest pause between two attempts.
        quota: Messages from one neighbour that may be here at once.
        rate: Messages a second from one neighbour, in the long run.
        burst: Messages at once from one neighbour, after a pause.
    """

    pin_s: float = 60.0
    connect_s: float = 10.0
    answer_s: float = 30.0
    ping_s: float = 15.0
    retry_s: float = 2.0
    quota: int = 4
    rate: float = 200.0
    burst: int = 50

    def __post_init__(self) -> None:
        validate.more_than(
            0,
            pin_s=self.pin_s,
            connect_s=self.connect_s,
            answer_s=self.answer_s,
            ping_s=self.ping_s,
            retry_s=self.retry_s,
            rate=self.rate,
        )
        validate.integer(quota=self.quota, burst=self.burst)
        validate.at_least(1, quota=self.quota, burst=self.burst)

    def transfer_s(self, message_bytes: int) -> float:
        """Return how long a message with its answer may take."""
        return self.answer_s + message_bytes / _SLOWEST_BYTES_PER_S


class TokenBucket:
    """Lets ``rate`` messages a second through, and ``burst`` at once after a pause."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._tokens = float(burst)
        self._last = time.monotonic()

    def delay_s(self) -> float:
        """Take one token and return how long to wait before using it."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._rate) - 1
        self._last = now
        return max(0.0, -self._tokens / self._rate)
