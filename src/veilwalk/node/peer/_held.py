"""Messages that neighbours have offered and not given yet: kept, and used by nobody.

They are in no table, so nothing can open them or pass them on, and a restart forgets them: the neighbour still has
each, and offers it again. A neighbour has one such message here at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from veilwalk.node.sealing import Bytes, OpenedHeader, Opener
from veilwalk.node.spool import Spool, Stored, hit


@dataclass(frozen=True, slots=True)
class Held:
    """A message that is here, and still the neighbour's."""

    seq: int
    digest: bytes
    body: Bytes
    stored: Stored
    # What came of opening it, and with which keys, where that was tried already.
    opened: OpenedHeader | None = None
    opener: Opener | None = None

    def open(self, opener: Opener) -> OpenedHeader | None:
        """Return its header, if ``opener`` opens it."""
        return self.opened if self.opener is opener else opener.open(self.body)


class HeldMessages:
    """The held messages of one node. Used by one thread at a time."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._of: dict[str, Held] = {}

    def put(self, peer: str, seq: int, digest: bytes, body: Bytes) -> None:
        """Keep what ``peer`` offers, in the place of what it offered before.

        Raises:
            DamageError: It is not what was announced.
        """
        self.let_go(peer)
        # A large one is in its file, synced, before it is given: what is left to do then is quick.
        self._of[peer] = Held(seq, digest, body, self._spool.store(body, digest=digest))
        hit("hold.stored")

    def look_at(self, peer: str, opener: Opener) -> None:
        """See whether ``opener`` opens what ``peer`` offered, if that is here."""
        held = self._of.get(peer)
        if held is not None and held.opener is not opener:
            self._of[peer] = replace(held, opened=opener.open(held.body), opener=opener)

    def pop(self, peer: str, seq: int) -> Held | None:
        """Return that message of ``peer``, which is now the caller's, if it is here; another one is forgotten.

        Its bytes are where the next that comes by the same connection will be.
        """
        held = self._of.get(peer)
        if held is not None and held.seq == seq:
            return self._of.pop(peer)
        self.let_go(peer)
        return None

    def keep_current(self, opener: Opener) -> None:
        """Forget what is not of an epoch that ``opener`` accepts: once given, nobody would take it from here."""
        for peer in [peer for peer, held in self._of.items() if not opener.is_current(held.body)]:
            self.let_go(peer)

    def let_go(self, peer: str) -> None:
        """Forget what ``peer`` offered."""
        held = self._of.pop(peer, None)
        if held is not None:
            self._spool.discard(held.stored)
