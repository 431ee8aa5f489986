"""What the links of a node ask of the node itself, and of its desk."""

from __future__ import annotations

from typing import Protocol

from veilwalk.node.link._wire import Hello, Offer
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import Outgoing, Verdict


class TurnedAway(Protocol):
    """Is told that somebody was turned away, and which neighbour it was, where it was one."""

    def __call__(self, why: str, /, *, peer: str = "") -> None:
        """Note it."""
        ...


class Host(Protocol):
    """A node, as its links see it."""

    @property
    def message_bytes(self) -> int:
        """Length of every message of the run."""
        ...

    @property
    def degree(self) -> int:
        """How many neighbours it has."""
        ...

    @property
    def answer_spread_s(self) -> float:
        """Answers are given at a random moment within this; 0 for at once."""
        ...

    def hello(self, settled: int) -> Hello:
        """Return what this node says first on a link, where it is done with all numbers up to ``settled``."""
        ...

    def check_hello(self, hello: Hello) -> int:
        """Return the protocol to speak with a peer that said this first; or refuse it, with a ProtocolError."""
        ...

    def neighbour_of(self, spki: bytes) -> str | None:
        """Return which neighbour shows that TLS key, if any."""
        ...

    def silent(self) -> frozenset[str]:
        """Return the neighbours that cannot be reached now."""
        ...

    def turned_away(self, why: str, /, *, peer: str = "") -> None:
        """Note that somebody was turned away, or which neighbour was."""
        ...

    def failed(self, error: Exception) -> None:
        """Note that a connection ended by a fault of this node's own."""
        ...

    def put_back(self, peer: str) -> None:
        """Note that a neighbour says it has taken more than this disk knows of."""
        ...

    def link_up(self, peer: str, protocol: int) -> None:
        """Note that a link came up, and what is spoken on it."""
        ...

    def link_down(self, peer: str, *, was_up: bool, why: str) -> None:
        """Note that a link went down, or is down still."""
        ...


class Counter(Protocol):
    """A node's desk, as its links see it: where messages are handed in and fetched."""

    def trouble(self, why: str, /) -> None:
        """Note that the disk failed."""
        ...

    async def greeted(self, peer: str, hello: Hello) -> int:
        """Note which disk a neighbour has that is about to offer messages; return the last number taken from it."""
        ...

    async def settled(self, peer: str) -> int:
        """Return the last number on the link to ``peer`` before those that are yet to be handed over."""
        ...

    async def answered(self, peer: str, hello: Hello) -> bool:
        """Note what ``peer`` has taken; where this disk knows less, number what waits for it anew, and return that."""
        ...

    async def hold(self, peer: str, offer: Offer, body: Bytes) -> Verdict:
        """Keep a message that a neighbour offers, and do nothing with it yet."""
        ...

    async def held(self, peer: str) -> None:
        """Note that a neighbour was told that its message is held."""
        ...

    async def take(self, peer: str, seq: int) -> Verdict:
        """Take a held message that the neighbour has given; on disk when this returns."""
        ...

    async def cancelled(self, peer: str, seq: int) -> None:
        """Note that a message went another way; on disk when this returns."""
        ...

    async def outgoing(self, peer: str) -> Outgoing | None:
        """Return what is next for ``peer``."""
        ...

    async def waits_for(self, peer: str) -> bool:
        """Return whether anything is to be handed over to ``peer``."""
        ...

    async def give(self, peer: str, outgoing: Outgoing) -> bool:
        """Note that a message is ``peer``'s from now on, before it is told so; return whether it may be."""
        ...

    async def not_given(self, peer: str, outgoing: Outgoing) -> None:
        """Note that ``peer`` said it did not take it."""
        ...

    async def delivered(self, peer: str, outgoing: Outgoing) -> None:
        """Let go of what ``peer`` has acknowledged."""
        ...

    async def damaged(self, outgoing: Outgoing) -> None:
        """Throw a message away if it is damaged on this node's own disk."""
        ...

    async def reroute(self, peer: str, *, silent: frozenset[str]) -> bool:
        """Send what waits for ``peer``, and was not given, another way; return whether anything was."""
        ...

    def released(self, peer: str, seq: int) -> None:
        """Drop the spare copy of a message that ``peer`` has long handed on."""
        ...
