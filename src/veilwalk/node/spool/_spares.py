"""Spare copies: a node keeps what it handed on until the receiver has handed it on in its turn.

So a node that is lost for good takes no walk with it that it was only carrying: when the roster leaves it out, its
neighbour sends the spare copy another way. The receiver says RELEASE a fixed time after its own hand-over was
acknowledged, whatever it did with the message: any other moment would tell whether it trained.
"""

from __future__ import annotations

from veilwalk.node.spool._register import Register
from veilwalk.node.spool._spool import Spool
from veilwalk.node.spool._tables import Row, Stored


class Spares:
    """The spare copies of one node, and the releases it owes. Used by one thread at a time."""

    def __init__(self, spool: Spool, *, most: int) -> None:
        self._spool = spool
        # A receiver that never releases must not fill the disk.
        self._most = most

    def keep(self, register: Register, row: Row) -> None:
        """Turn a message that was just acknowledged into a spare copy."""
        register.execute(
            "INSERT OR REPLACE INTO spare SELECT peer, seq, file, bytes, digest, came_from FROM message WHERE id = ?",
            row.id,
        )
        register.delete(row)
        kept = register.execute("SELECT seq FROM spare WHERE peer = ? ORDER BY seq DESC", row.peer)
        for (seq,) in kept[self._most :]:
            self._drop(register, str(row.peer), seq)

    def owe(self, register: Register, peer: str | None, seq: int | None) -> None:
        """Note that the neighbour a message came from may drop its copy, after the fixed time."""
        if peer is not None and seq is not None:
            register.execute("INSERT OR IGNORE INTO debt VALUES (?, ?)", peer, seq)
            # Nor does that one keep more: a neighbour that is never there to be told must not fill the table.
            newest = "SELECT seq FROM debt WHERE peer = ? ORDER BY seq DESC LIMIT ?"
            register.execute(
                f"DELETE FROM debt WHERE peer = ? AND seq NOT IN ({newest})",  # noqa: S608  both are ours
                *(peer, peer, self._most),
            )

    def debts(self) -> list[tuple[str, int]]:
        """Return the releases that are owed: to whom, and of which number."""
        with self._spool.transaction(durable=False) as register:
            return [(str(peer), int(seq)) for peer, seq in register.execute("SELECT peer, seq FROM debt")]

    def owe_now(self, peer: str, seq: int) -> bool:
        """Owe a release before the message is gone; return whether it was not owed yet."""
        with self._spool.transaction(durable=False) as register:
            if register.execute("SELECT 1 FROM debt WHERE peer = ? AND seq = ?", peer, seq):
                return False
            self.owe(register, peer, seq)
            return True

    def paid(self, peer: str, seq: int) -> bool:
        """Forget a release that was sent; return whether it was owed."""
        with self._spool.transaction(durable=False) as register:
            return bool(register.execute("DELETE FROM debt WHERE peer = ? AND seq = ? RETURNING seq", peer, seq))

    def released(self, peer: str, seq: int) -> None:
        """Drop the copy of a message that ``peer`` has long handed on."""
        with self._spool.transaction(durable=False) as register:
            self._drop(register, peer, seq)

    def revive(self, register: Register, peer: str) -> list[Row]:
        """Take the copies of what a lost neighbour was given back into custody."""
        found = register.execute("SELECT file, bytes, digest, came_from FROM spare WHERE peer = ?", peer)
        register.execute("DELETE FROM spare WHERE peer = ?", peer)
        return [
            register.add_message(Stored(digest=digest, file=file, inline=inline), came_from=came_from)
            for file, inline, digest, came_from in found
        ]

    def _drop(self, register: Register, peer: str, seq: int) -> None:
        for (file,) in register.execute("SELECT file FROM spare WHERE peer = ? AND seq = ?", peer, seq):
            if file is not None:
                register.dropped_files.append(file)
        register.execute("DELETE FROM spare WHERE peer = ? AND seq = ?", peer, seq)
