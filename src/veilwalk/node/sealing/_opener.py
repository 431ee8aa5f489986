"""Which messages a node accepts, and which of them it can open."""

from __future__ import annotations

from collections.abc import Iterable

from veilwalk.core.geometry import CLEAR_BYTES
from veilwalk.node.sealing._body import Bytes
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import OpenedHeader, open_header
from veilwalk.node.sealing._kem import KemPrivateKey


class Opener:
    """The contexts a node opens messages in: those of the epochs around its own."""

    def __init__(self, keys: Iterable[tuple[SealContext, KemPrivateKey]], *, accepted: Iterable[SealContext]) -> None:
        self._keys = list(keys)
        self._clear = {context.clear for context in accepted} | {context.clear for context, _ in self._keys}

    @property
    def oldest_epoch(self) -> int:
        """The oldest epoch of which a message can still be opened here; 0 where none can."""
        return min((context.epoch for context, _ in self._keys), default=0)

    def is_current(self, message: Bytes) -> bool:
        """Return whether version, suite, epoch and bucket are such as members of this run accept now."""
        return bytes(memoryview(message)[:CLEAR_BYTES]) in self._clear

    def open(self, message: Bytes) -> OpenedHeader | None:
        """Return the header if the message is for this node."""
        clear = bytes(memoryview(message)[:CLEAR_BYTES])
        for context, key in self._keys:
            if context.clear == clear:
                opened = open_header(context, key, message)
                if opened is not None:
                    return opened
        return None
