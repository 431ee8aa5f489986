"""Every change that is ever made to the tables of a node."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from veilwalk.node.spool._tables import Row, SeenWalk, Stored, StoredModel


class Register:
    """The tables, inside one transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.dropped_files: list[str] = []

    def add_message(
        self,
        stored: Stored,
        *,
        came_from: str | None,
        owed: int | None = None,
        peer: str | None = None,
        fixed: bool = False,
    ) -> Row:
        """Take a message into custody; with ``peer`` it is pinned to the next number of that link, or ``fixed`` to it.

        Pinned at once it is written once: to change a row is to write all of it anew, the message with it.
        """
        seq = None if peer is None else self._next_seq(peer)
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
            self._database.execute("INSERT INTO cancelled VALUES (?, ?)", (row.peer, row.seq))
            self.not_given(row.peer, row.seq or 0)
        seq = self._next_seq(peer)
        self._database.execute("UPDATE message SET peer = ?, seq = ? WHERE id = ?", (peer, seq, row.id))
        return replace(row, peer=peer, seq=seq)

    def delete(self, row: Row) -> None:
        """Take a message out of the table; its file, if it has one, stays."""
        self._database.execute("DELETE FROM message WHERE id = ?", (row.id,))
        self._database.execute("DELETE FROM given WHERE peer = ? AND seq = ?", (row.peer, row.seq))

    def drop(self, row: Row, *, undelivered: bool = False) -> None:
        """Let a message go; its file goes when this transaction is safe.

        One that was pinned but never acknowledged leaves a gap in the numbers of its link: ``undelivered`` fills it.
        """
        if undelivered and row.peer is not None:
            self._database.execute("INSERT INTO cancelled VALUES (?, ?)", (row.peer, row.seq))
        self.delete(row)
        if row.file is not None:
            self.dropped_files.append(row.file)

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

    def messages(self) -> list[Row]:
        """Return every message, oldest first."""
        return list(self._messages("ORDER BY id"))

    def count_from(self, peer: str) -> int:
        """Return how many messages from that neighbour are still here."""
        return self._one("SELECT count(*) FROM message WHERE came_from = ?", peer)

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

    def give(self, peer: str, seq: int) -> None:
        """Note that the message of that number may be used by ``peer`` from now on."""
        self._database.execute("INSERT OR IGNORE INTO given VALUES (?, ?)", (peer, seq))

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

    def is_opened(self, update_id: bytes) -> bool:
        """Return whether an update of that id was opened here before."""
        return self._one("SELECT 1 FROM opened WHERE update_id = ?", update_id) == 1

    def add_opened(self, update_id: bytes, epoch: int) -> None:
        """Note that an update was opened, for as long as its epoch is accepted."""
        self._database.execute("INSERT INTO opened VALUES (?, ?)", (update_id, epoch))

    def forget_opened_before(self, epoch: int) -> None:
        """Forget the ids of epochs that are not accepted any more."""
        self._database.execute("DELETE FROM opened WHERE epoch < ?", (epoch,))

    def walks(self) -> Mapping[bytes, SeenWalk]:
        """Return every walk this node was a destination of."""
        rows = self._database.execute("SELECT tag, iteration, first_turn, last_turn FROM walk")
        return {tag: SeenWalk(iteration=i, first_turn=first, last_turn=last) for tag, i, first, last in rows}

    def saw_walk(self, tag: bytes, iteration: int, turn: int) -> None:
        """Note that walk ``tag`` was opened here at this node's turn ``turn``."""
        self._database.execute(
            "INSERT INTO walk VALUES (?, ?, ?, ?) ON CONFLICT (tag) DO UPDATE SET "
            "iteration = max(iteration, excluded.iteration), last_turn = excluded.last_turn",
            (tag, iteration, turn, turn),
        )

    def edge_clocks(self) -> dict[str, int]:
        """Return when, by this node's own count of uses, each edge was last used; edges never used are not there."""
        return dict(self._database.execute("SELECT peer, clock FROM edge_use"))

    def used_edge(self, peer: str) -> None:
        """Note that a message came or went along the edge to ``peer``."""
        clock = self.count("edge_uses")
        self._database.execute(
            "INSERT INTO edge_use VALUES (?, ?) ON CONFLICT (peer) DO UPDATE SET clock = excluded.clock", (peer, clock)
        )

    def count(self, name: str, by: int = 1) -> int:
        """Add to a tally and return it."""
        return self._one(
            "INSERT INTO tally VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value "
            "RETURNING value",
            name,
            by,
        )

    def tally(self, name: str) -> int:
        """Return a tally; 0 if nothing was counted."""
        return self._one("SELECT value FROM tally WHERE name = ?", name)

    def tallies(self) -> dict[str, int]:
        """Return all tallies."""
        return dict(self._database.execute("SELECT name, value FROM tally"))

    def model(self, kind: str) -> StoredModel | None:
        """Return the ``checkpoint`` or the ``final`` model."""
        query = f"SELECT {', '.join(StoredModel.__slots__)} FROM model WHERE kind = ?"  # noqa: S608  all of it is ours
        row = self._database.execute(query, (kind,)).fetchone()
        return None if row is None else StoredModel(**dict(zip(StoredModel.__slots__, row, strict=True)))

    def set_model(self, kind: str, stored: Stored, *, tag: bytes, iteration: int) -> None:
        """Put a model in the place of the one there was."""
        before = self.model(kind)
        if before is not None and before.file is not None:
            self.dropped_files.append(before.file)
        self._database.execute(
            "INSERT OR REPLACE INTO model VALUES (?, ?, ?, ?, ?, ?)",
            (kind, stored.file, stored.inline, stored.digest, tag, iteration),
        )

    def inline(self, row: Row | StoredModel) -> bytes:
        """Return the bytes of a row that has no file; none if the row is gone."""
        if isinstance(row, Row):
            found = self._database.execute("SELECT bytes FROM message WHERE id = ?", (row.id,)).fetchone()
        else:
            found = self._database.execute("SELECT bytes FROM model WHERE kind = ?", (row.kind,)).fetchone()
        return b"" if found is None or found[0] is None else bytes(found[0])

    def learner_state(self) -> dict[str, bytes]:
        """Return what the learner keeps at this node, encoded."""
        return dict(self._database.execute("SELECT name, data FROM learner_state"))

    def set_learner_state(self, state: Mapping[str, bytes]) -> None:
        """Put ``state`` in the place of what the learner kept."""
        self._database.execute("DELETE FROM learner_state")
        self._database.executemany("INSERT INTO learner_state VALUES (?, ?)", state.items())

    def files(self) -> set[str]:
        """Return the names of all files that some row needs."""
        tables = " UNION ".join(f"SELECT file FROM {table}" for table in ("message", "model", "spare"))  # noqa: S608
        rows = self._database.execute(tables)
        return {name for (name,) in rows if name is not None}

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement of a module that has tables of its own."""
        return self._database.execute(statement, values).fetchall()

    def _next_seq(self, peer: str) -> int:
        return self._one(
            "INSERT INTO link (peer, sent) VALUES (?, 1) ON CONFLICT (peer) DO UPDATE SET sent = sent + 1 "
            "RETURNING sent",
            peer,
        )

    def _messages(self, condition: str, *values: object) -> Iterator[Row]:
        query = f"SELECT {', '.join(Row.__slots__)} FROM message {condition}"  # noqa: S608  both are ours
        for values_of_row in self._database.execute(query, values):
            yield Row(**dict(zip(Row.__slots__, values_of_row, strict=True)))

    def _one(self, query: str, *values: object) -> int:
        row = self._database.execute(query, values).fetchone()
        return 0 if row is None else int(row[0])
