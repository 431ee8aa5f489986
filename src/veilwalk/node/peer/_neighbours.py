"""Weighs neighbours by what they do: how long they take, what they bring for what they get, how much of it is junk.

Junk is what comes again and again: what nobody can open walks for ever, and must not crowd out what somebody can. A
model is sealed anew at its destination, so an honest ciphertext comes by a node a few times only: after each visit the
walk meets the destination before it is back with a chance of at least 1/(degree x effective resistance), for every
destination. Bytes that come more often than chance explains wait here, longer every time: an honest message that was
very unlucky is late, not lost. Where a neighbour brings more than it may they are thrown away, before others; and so
are bytes that were first seen so long ago that nobody waits for their walk any more. Whether they opened here once
makes no difference: a neighbour that brings old bytes again must not see whose they were.

A walk that goes to a slow neighbour waits, and one that goes to a neighbour that swallows it is lost. No measure says
who is to blame, and none needs to: a neighbour that does worse than the others gets fewer messages, and never none, so
that one that mends is seen to.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

# Hand-overs that are remembered of each neighbour, and how few say nothing.
_TIMES, _LEAST_TIMES = 8, 2
# A neighbour may take so many times as long as the others, and as much longer in any case.
_SLOW, _LEAST_SLOW_S = 4.0, 0.25
# A neighbour may get so many times as many messages as it brings, and twelve more: chance alone does less.
_UNEVEN, _CREDIT = 3.0, 4.0
# The share of one that does badly never falls below this.
_LEAST_SHARE = 0.001
# Messages that are remembered with the neighbour that brought them first.
_REMEMBERED = 4096
# Above this share of junk each message waits so long at the door.
_MUCH_JUNK, _PAUSE_S = 0.2, 1.0
# Of what was exchanged long ago less and less counts.
_FADE = 0.98


@dataclass
class Neighbour:
    """What one neighbour did lately."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    handed: float = 0.0
    brought: float = 0.0
    junk: float = 0.0

    @property
    def typical_s(self) -> float | None:
        """How long a hand-over takes; None where too few are known."""
        return statistics.median(self.times) if len(self.times) >= _LEAST_TIMES else None


class NeighbourWeights:
    """How much of its even share each neighbour gets."""

    def __init__(self) -> None:
        self._of: dict[str, Neighbour] = {}
        # Who brought which bytes first, and whether they were found to be junk.
        self._first: OrderedDict[bytes, str] = OrderedDict()

    def on_handed(self, peer: str, seconds: float) -> None:
        """Note that a neighbour took a message, in that time from the offer to its answer."""
        neighbour = self._neighbour(peer)
        neighbour.times.append(seconds)
        neighbour.handed += 1

    def on_brought(self, peer: str, digest: bytes) -> None:
        """Note that a neighbour brought a message."""
        neighbour = self._neighbour(peer)
        for count in ("handed", "brought", "junk"):
            setattr(neighbour, count, _FADE * getattr(neighbour, count))
        neighbour.brought += 1
        if digest not in self._first:
            self._first[digest] = peer
            if len(self._first) > _REMEMBERED:
                self._first.popitem(last=False)

    def on_junk(self, digest: bytes) -> None:
        """Note that the same bytes come too often: whoever brought them first gets the blame, once."""
        peer = self._first.pop(digest, None)
        if peer is not None:
            self._neighbour(peer).junk += 1

    def typical_s(self, peer: str) -> float | None:
        """Return how long a neighbour takes for a message; None where that is not known."""
        return self._neighbour(peer).typical_s

    def share(self, peer: str) -> float:
        """Return how much of its even share a neighbour gets, from little to 1."""
        share = self._share_by_time(peer) * self._share_by_balance(peer)
        return max(_LEAST_SHARE, min(1.0, share))

    def pause_s(self, peer: str) -> float:
        """Return how long a neighbour waits with each message because much of what it brought first was junk."""
        neighbour = self._neighbour(peer)
        return _PAUSE_S if neighbour.junk > _MUCH_JUNK * neighbour.brought + _CREDIT else 0.0

    def _share_by_time(self, peer: str) -> float:
        own = self._neighbour(peer).typical_s
        others = [
            neighbour.typical_s
            for name, neighbour in self._of.items()
            if name != peer and neighbour.typical_s is not None
        ]
        if own is None or not others:
            return 1.0
        allowed = max(_SLOW * statistics.median(others), _LEAST_SLOW_S)
        return 1.0 if own <= allowed else (allowed / own) ** 2

    def _share_by_balance(self, peer: str) -> float:
        neighbour = self._neighbour(peer)
        # What turned out to be junk was no message.
        good = max(0.0, neighbour.brought - 2 * neighbour.junk)
        allowed = _UNEVEN * (good + _CREDIT)
        # Steep: each message that a swallower gets is a walk that has to be found late.
        return 1.0 if neighbour.handed <= allowed else (allowed / neighbour.handed) ** 4

    def _neighbour(self, peer: str) -> Neighbour:
        return self._of.setdefault(peer, Neighbour())


# An honest ciphertext is delayed by a node with this probability at most.
_RARE = 1e-4
_REMEMBERED = 4096
_LONGEST_PAUSES = 200


class Visits:
    """How often the same bytes came by, how long they wait for it, and whether they are too old to go on."""

    def __init__(
        self,
        allowed: int,
        *,
        pause_s: float,
        life_s: float = math.inf,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.allowed = allowed
        self._pause_s = pause_s
        self._life_s = life_s
        self._clock = clock or time.monotonic
        self._asleep_s = 0.0
        self._seen: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    def visit(self, digest: bytes) -> tuple[float, bool]:
        """Count a visit; return how long it lasts, 0 for as long as chance explains it, and whether it is the last."""
        now = self._clock() - self._asleep_s
        count, first = self._seen.pop(digest, (0, now))
        count += 1
        self._seen[digest] = count, first
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        if now - first > self._life_s:
            return self._pause_s * _LONGEST_PAUSES, True
        # By the square: what a flood left is at rest within a few rounds, and a message whose only recipient is away
        # for a while comes round again in a fraction of that time.
        return self._pause_s * min(max(0, count - self.allowed) ** 2, _LONGEST_PAUSES), False

    def slept(self, seconds: float) -> None:
        """Note that this node stood still, or had no neighbour, for so long: nothing grew older meanwhile."""
        self._asleep_s += max(0.0, seconds)


def allowed_visits(links: int, visits_per_link: float) -> int:
    """Return how often a walk may come to a node of so many links, save about once in 10,000 walks.

    ``visits_per_link`` is the manifest's; where it is 0 nothing comes too often.
    """
    visits = links * visits_per_link
    if not visits:
        return 10**9
    return 1 if visits <= 1 + 1e-9 else math.ceil(math.log(_RARE) / math.log1p(-1 / visits))
