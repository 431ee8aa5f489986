"""What the links of a node ask of the node itself."""

from __future__ import annotations

from typing import Protocol

from veilwalk.node._wire import Hello


class Host(Protocol):
    """A node, as its links see it."""

    @property
    def message_bytes(self) -> int:
        """Length of every message of the run."""
        ...

    def hello(self) -> Hello:
        """Return what this node says first."""
        ...

    def check_hello(self, hello: Hello) -> None:
        """Refuse what a peer said first, with a ProtocolError."""
        ...

    def neighbour_of(self, spki: bytes) -> str | None:
        """Return which neighbour shows that TLS key, if any."""
        ...

    def silent(self) -> frozenset[str]:
        """Return the neighbours that cannot be reached now."""
        ...

    def turned_away(self, why: str) -> None:
        """Note that somebody was turned away."""
        ...

    def link_changed(self, peer: str, *, up: bool, why: str) -> None:
        """Note that a link came up, or went down, or is down still."""
        ...
