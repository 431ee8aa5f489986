"""Every change that is ever made to the tables of a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from veilwalk.node.spool._memory import Memory
from veilwalk.node.spool._tables import Row, Stored

# So many numbers of a link wait to be cancelled: a neighbour that is there and answers nothing must not fill the table.
# Of those before, the greeting of the next connection says that they are settled.
_MOST_CANCELLED = 1000


class Register(Memory):
    """All tables, inside one transaction."""

    def add_message(
        self,
        stored: Stored,
        *,
        came_from: str | None,
        owed: int | None = None,
        peer: str | None = None,
        seq: int | None = None,
        fixed: int = 0,
    ) -> Row:
        """Take a message into custody; with ``peer`` it is pinned to that link, or ``fixed`` to it.

        Its number there is ``seq``, as :meth:`number` gave it out, or the next. Pinned at once it is written once: to
        change a row is to write all of it anew, the message with it.
        """
        if stored.file is not None:
            self.named_files.append(stored.file)
        if peer is not None and seq is None:
            seq = self.number(peer)
        cursor = self._database.execute(
            "INSERT INTO message (file, bytes, digest, came_from, owed, peer, seq, fixed) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (stored.file, stored.inline, stored.digest, came_from, owed, peer, seq, fixed),
        )
        return Row(
            id=cursor.lastrowid or 0,
            file=stored.file,
            digest=stored.digest,
            came_from=came_from,
            owed=owed,
            peer=peer,
            seq=seq,
            fixed=fixed,
        )

    def pin(self, row: Row, peer: str) -> Row:
        """Pin a message to the next number of the link to ``peer``; a number it had before is cancelled."""
        if row.peer is not None:
            self._cancel(row)
            self.not_given(row.peer, row.seq or 0)
        seq = self.number(peer)
        self._database.execute("UPDATE message SET peer = ?, seq = ? WHERE id = ?", (peer, seq, row.id))
        return replace(row, peer=peer, seq=seq)

    def delete(self, row: Row) -> str | None:
        """Take a message out of the table, if it is there; its file, if it has one, stays, and is returned."""
        found = self.execute("DELETE FROM message WHERE id = ? RETURNING file", row.id)
        self._database.execute("DELETE FROM given WHERE peer = ? AND seq = ?", (row.peer, row.seq))
        return found[0][0] if found else None

    def drop(self, row: Row, *, undelivered: bool = False) -> None:
        """Let a message go; its file goes when this transaction is safe.

        One that was pinned but never acknowledged leaves a gap in the numbers of its link: ``undelivered`` fills it.
        """
        if undelivered and row.peer is not None:
            self._cancel(row)
        # By the table: one that was crowded out while it was worked on is gone, and its file is another message's.
        file = self.delete(row)
        if file is not None:
            self.dropped_files.append(file)

    def message(self, number: int) -> Row | None:
        """Return the message of that id, if it is still here."""
        return next(self._messages("WHERE id = ?", number), None)

    def pinned(self, peer: str, seq: int) -> Row | None:
        """Return the message with that number on the link to ``peer``."""
        return next(self._messages("WHERE peer = ? AND seq = ?", peer, seq), None)

    def held(self) -> list[Row]:
        """Return the messages without a next hop, oldest first."""
        return list(self._messages("WHERE peer IS NULL ORDER BY id"))

    def pinned_to(self, peer: str) -> list[Row]:
        """Return the messages for that link in the order of their numbers."""
        return list(self._messages("WHERE peer = ? ORDER BY seq", peer))

    def next_for(self, peer: str) -> tuple[Row | None, bytes | None, bool, int | None]:
        """Return the message of the lowest number for that link, its bytes, whether it was given, and what to cancel.

        Each is None, or no, where there is none; the number to cancel is the lowest.
        """
        (cancelled,) = self._database.execute("SELECT min(seq) FROM cancelled WHERE peer = ?", (peer,)).fetchone()
        query = (
            f"SELECT {', '.join(Row.__slots__)}, bytes, "  # noqa: S608  all of it is ours
            "EXISTS (SELECT 1 FROM given WHERE given.peer = message.peer AND given.seq = message.seq) "
            "FROM message WHERE peer = ? ORDER BY seq LIMIT 1"
        )
        found = self._database.execute(query, (peer,)).fetchone()
        if found is None:
            return None, None, False, cancelled
        row = Row(**dict(zip(Row.__slots__, found[:-2], strict=True)))
        return row, found[-2], bool(found[-1]), cancelled

    def messages(self) -> list[Row]:
        """Return every message, oldest first."""
        return list(self._messages("ORDER BY id"))

    def not_given_from(self, peer: str) -> list[Row]:
        """Return the messages that neighbour brought and nobody else may have yet, oldest first."""
        given = "SELECT 1 FROM given WHERE given.peer = message.peer AND given.seq = message.seq"
        return list(self._messages(f"WHERE came_from = ? AND NOT fixed AND NOT EXISTS ({given}) ORDER BY id", peer))

    def taken(self, peer: str) -> int | None:
        """Return the last number taken from that neighbour; None if no message was, or its disk is a new one."""
        row = self._database.execute("SELECT taken FROM link WHERE peer = ?", (peer,)).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def greeted(self, peer: str, incarnation: bytes) -> None:
        """Note which disk that neighbour has; a new one numbers its messages from the beginning."""
        self._database.execute(
            "INSERT INTO link (peer, incarnation) VALUES (?, ?) ON CONFLICT (peer) DO UPDATE SET "
            "taken = CASE WHEN incarnation IS excluded.incarnation THEN taken END, incarnation = excluded.incarnation",
            (peer, incarnation),
        )

    def is_disk_of(self, peer: str, incarnation: bytes) -> bool:
        """Return whether that neighbour is known by that disk."""
        return self._one("SELECT 1 FROM link WHERE peer = ? AND incarnation = ?", peer, incarnation) == 1

    def incarnation(self, fresh: bytes) -> bytes:
        """Return the mark of this disk; ``fresh`` becomes it where there is none yet."""
        self._database.execute("INSERT OR IGNORE INTO mark VALUES ('incarnation', ?)", (fresh,))
        return bytes(self._database.execute("SELECT data FROM mark WHERE name = 'incarnation'").fetchone()[0])

    def sent(self, peer: str) -> int:
        """Return the last number given out on the link to that neighbour."""
        return self._one("SELECT sent FROM link WHERE peer = ?", peer)

    def set_sent(self, peer: str, seq: int) -> None:
        """Go on numbering what is for that neighbour after ``seq``."""
        self._database.execute(
            "INSERT INTO link (peer, sent) VALUES (?, ?) ON CONFLICT (peer) DO UPDATE SET sent = excluded.sent",
            (peer, seq),
        )

    def set_taken(self, peer: str, seq: int) -> None:
        """Note that number ``seq`` of that neighbour is here, or will never be."""
        self._database.execute(
            "INSERT INTO link (peer, taken) VALUES (?, ?) ON CONFLICT (peer) DO UPDATE SET taken = excluded.taken",
            (peer, seq),
        )

    def cancelled(self, peer: str) -> list[int]:
        """Return the numbers on the link to ``peer`` that are to be cancelled."""
        rows = self._database.execute("SELECT seq FROM cancelled WHERE peer = ? ORDER BY seq", (peer,))
        return [int(seq) for (seq,) in rows]

    def cancel_done(self, peer: str, seq: int) -> None:
        """Forget a cancellation the neighbour has confirmed."""
        self._database.execute("DELETE FROM cancelled WHERE peer = ? AND seq = ?", (peer, seq))

    def give(self, peer: str, seq: int) -> bool:
        """Note that the message of that number, if it is here, may be used by ``peer`` now; return whether it is."""
        note = "INSERT OR REPLACE INTO given SELECT peer, seq FROM message WHERE peer = ? AND seq = ?"
        return self._database.execute(note, (peer, seq)).rowcount == 1

    def not_given(self, peer: str, seq: int) -> None:
        """Note that ``peer`` does not use the message of that number."""
        self._database.execute("DELETE FROM given WHERE peer = ? AND seq = ?", (peer, seq))

    def is_given(self, peer: str, seq: int) -> bool:
        """Return whether the message of that number may be in use by ``peer``."""
        return self._one("SELECT 1 FROM given WHERE peer = ? AND seq = ?", peer, seq) == 1

    def started(self, boot: bytes) -> None:
        """Note which start of the machine this is; after another one, all that is pinned may have been given.

        What was given is written without waiting for the disk, and so forgotten where the power failed.
        """
        if self.execute("SELECT 1 FROM mark WHERE name = 'boot' AND data = ?", boot):
            return
        self._database.execute(
            "INSERT OR IGNORE INTO given SELECT peer, seq FROM message WHERE peer IS NOT NULL AND NOT fixed"
        )
        self._database.execute("INSERT OR REPLACE INTO mark VALUES ('boot', ?)", (boot,))

    def files(self) -> set[str]:
        """Return the names of all files that some row needs."""
        tables = " UNION ".join(f"SELECT file FROM {table}" for table in ("message", "model", "spare"))  # noqa: S608
        rows = self._database.execute(tables)
        return {name for (name,) in rows if name is not None}

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement of a module that has tables of its own."""
        return self._database.execute(statement, values).fetchall()

    def number(self, peer: str) -> int:
        """Return the next number on the link to ``peer``, which is given out with this."""
        return self._one(
            "INSERT INTO link (peer, sent) VALUES (?, 1) ON CONFLICT (peer) DO UPDATE SET sent = sent + 1 "
            "RETURNING sent",
            peer,
        )

    def _cancel(self, row: Row) -> None:
        self._database.execute("INSERT INTO cancelled VALUES (?, ?)", (row.peer, row.seq))
        oldest = "SELECT seq FROM cancelled WHERE peer = ? ORDER BY seq DESC LIMIT 1 OFFSET ?"
        self._database.execute(
            f"DELETE FROM cancelled WHERE peer = ? AND seq <= ({oldest})",  # noqa: S608  both are ours
            (row.peer, row.peer, _MOST_CANCELLED),
        )

    def _messages(self, condition: str, *values: object) -> Iterator[Row]:
        query = f"SELECT {', '.join(Row.__slots__)} FROM message {condition}"  # noqa: S608  both are ours
        for values_of_row in self._database.execute(query, values):
            yield Row(**dict(zip(Row.__slots__, values_of_row, strict=True)))
