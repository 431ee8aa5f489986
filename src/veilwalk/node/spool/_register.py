"""Every change that is ever made to the tables of a node, inside one transaction."""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from veilwalk.node.spool._tables import (
    KEY_BYTES,
    KEYS_REMEMBERED,
    ROUNDS,
    STARTS,
    UNDONE,
    WALKS,
    Row,
    SeenWalk,
    Stored,
    StoredModel,
    of_lane,
)

_DIGEST_BYTES = 32
# A walk that did not open here for so many turns of this node is dead, or was forged: whoever seals for a node can give
# every message a new one, and all that are known are read at every turn.
_TURNS_REMEMBERED = 1000
_ROW = f"SELECT message.{', '.join(Row.__slots__)} FROM message JOIN body ON body.id = message.body "  # noqa: S608
_MODEL = f"SELECT {', '.join(StoredModel.__slots__)} FROM model JOIN body ON body.id = model.body "  # noqa: S608


class Register:
    """All tables of one node."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        #: Files that this transaction needs no more.
        self.dropped_files: list[str] = []
        #: Files that rows of this transaction are the first to name.
        self.named_files: list[str] = []

    # Messages.

    def add_message(
        self, stored: Stored, *, came_from: str | None, peer: str | None = None, end_lane: int | None = None
    ) -> Row:
        """Take a message into custody; with ``peer`` it is pinned to that link."""
        key = None if peer is None else secrets.token_bytes(KEY_BYTES)
        body = self._add_body(stored)
        values: dict[str, Any] = {"came_from": came_from, "peer": peer, "key": key, "given": 0, "end_lane": end_lane}
        statement = f"INSERT INTO message (body, {', '.join(values)}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id"  # noqa: S608
        ((number,),) = self.execute(statement, body, *values.values())
        return Row(id=number, body=body, file=stored.file, digest=stored.digest, **values)

    def pin(self, row: Row, peer: str) -> Row:
        """Pin a message to ``peer`` under a new key."""
        key = secrets.token_bytes(KEY_BYTES)
        self._database.execute("UPDATE message SET peer = ?, key = ?, given = 0 WHERE id = ?", (peer, key, row.id))
        return replace(row, peer=peer, key=key, given=0)

    def set_given(self, row: Row, given: bool) -> None:  # noqa: FBT001  it is the value
        """Note whether the neighbour may be using a pinned message."""
        self._database.execute("UPDATE message SET given = ? WHERE id = ?", (int(given), row.id))

    def drop(self, row: Row) -> bool:
        """Let a message go; return whether it was here. Its file goes when this transaction is safe."""
        gone = self.execute("DELETE FROM message WHERE id = ? RETURNING body", row.id)
        for (body,) in gone:
            self._drop_body(body)
        return bool(gone)

    def messages(self, **columns: object) -> list[Row]:
        """Return the messages that have those values: those that were given first, then in the order they came."""
        where = " AND ".join(f"message.{name} = ?" for name in columns) or "TRUE"
        rows = self.execute(f"{_ROW} WHERE {where} ORDER BY given DESC, message.id", *columns.values())
        return [Row(**dict(zip(Row.__slots__, values, strict=True))) for values in rows]

    def message(self, **columns: object) -> Row | None:
        """Return the message that has those values, if it is here."""
        return next(iter(self.messages(**columns)), None)

    def note_boot(self, boot: bytes) -> None:
        """Note which start of the machine this is; after another one, all that is pinned may have been given.

        What was given is written without waiting for the disk, and so forgotten where the power failed.
        """
        if self.mark("boot") != boot:
            self._database.execute("UPDATE message SET given = 1 WHERE peer IS NOT NULL")
            self.set_mark("boot", boot)

    # Links.

    def has_taken(self, peer: str, key: bytes) -> bool:
        """Return whether the message of that key was taken from ``peer``, among the last ones."""
        return key in self._taken(peer)

    def add_taken(self, peer: str, key: bytes) -> None:
        """Note that the message of that key was taken from ``peer``."""
        keys = [*self._taken(peer), key][-KEYS_REMEMBERED:]
        statement = "INSERT INTO link VALUES (?, x'', ?) ON CONFLICT (peer) DO UPDATE SET taken = excluded.taken"
        self.execute(statement, peer, b"".join(keys))

    def greet(self, peer: str, incarnation: bytes) -> None:
        """Note the new disk of a neighbour, of which nothing was taken."""
        self.execute("INSERT OR REPLACE INTO link VALUES (?, ?, x'')", peer, incarnation)

    def is_disk_of(self, peer: str, incarnation: bytes) -> bool:
        """Return whether that neighbour is known by that disk."""
        return bool(self.execute("SELECT 1 FROM link WHERE peer = ? AND incarnation = ?", peer, incarnation))

    def _taken(self, peer: str) -> list[bytes]:
        keys = b"".join(data for (data,) in self.execute("SELECT taken FROM link WHERE peer = ?", peer))
        return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]

    # What was opened.

    def is_opened(self, update_id: bytes) -> bool:
        """Return whether an update of that id was opened here before."""
        return bool(self.execute("SELECT 1 FROM opened WHERE update_id = ?", update_id))

    def add_opened(self, update_id: bytes, epoch: int) -> None:
        """Note that an update was opened, for as long as its epoch is accepted."""
        self._database.execute("INSERT INTO opened VALUES (?, ?)", (update_id, epoch))

    def forget_opened_before(self, epoch: int) -> None:
        """Forget the ids of epochs that are not accepted any more."""
        self._database.execute("DELETE FROM opened WHERE epoch < ?", (epoch,))

    def walks(self) -> Mapping[bytes, SeenWalk]:
        """Return every walk this node was a destination of."""
        rows = self._database.execute("SELECT tag, iteration, first_turn, last_turn, made_at FROM walk")
        return {tag: SeenWalk(**dict(zip(SeenWalk.__slots__, numbers, strict=True))) for tag, *numbers in rows}

    def add_walk(self, tag: bytes, iteration: int, turn: int, made_at: int = 0) -> None:
        """Note that walk ``tag``, made at update ``made_at``, was opened here at this node's turn ``turn``."""
        self._database.execute(
            "INSERT INTO walk VALUES (?, ?, ?, ?, ?) ON CONFLICT (tag) DO UPDATE SET "
            "iteration = max(iteration, excluded.iteration), last_turn = excluded.last_turn, "
            "made_at = excluded.made_at",
            (tag, iteration, turn, turn, made_at),
        )
        self._database.execute("DELETE FROM walk WHERE last_turn <= ?", (turn - _TURNS_REMEMBERED,))

    # Marks and tallies.

    def mark(self, name: str) -> bytes | None:
        """Return what is noted under that name."""
        return next((bytes(data) for (data,) in self.execute("SELECT data FROM mark WHERE name = ?", name)), None)

    def set_mark(self, name: str, data: bytes) -> None:
        """Note something under that name."""
        self._database.execute("INSERT OR REPLACE INTO mark VALUES (?, ?)", (name, data))

    def count(self, name: str, by: int = 1) -> int:
        """Add to a tally and return it."""
        statement = "INSERT INTO tally VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value "
        return int(self.execute(statement + "RETURNING value", name, by)[0][0])

    def tally(self, name: str) -> int:
        """Return a tally; 0 if nothing was counted."""
        return self.tallies().get(name, 0)

    def tallies(self) -> dict[str, int]:
        """Return all tallies."""
        return dict(self._database.execute("SELECT name, value FROM tally"))

    # Models.

    def model(self, kind: str, lane: int = 0) -> StoredModel | None:
        """Return the ``checkpoint``, ``end`` or ``final`` model of a lane, or of no lane the learner's ``state``."""
        row = self._database.execute(f"{_MODEL} WHERE kind = ? AND lane = ?", (kind, lane)).fetchone()
        return None if row is None else StoredModel(**dict(zip(StoredModel.__slots__, row, strict=True)))

    def set_model(
        self, kind: str, stored: Stored, *, lane: int = 0, tag: bytes, iteration: int, signatures: bytes = b""
    ) -> None:
        """Put a model in the place of the one there was."""
        self.drop_model(kind, lane)
        values = kind, lane, self._add_body(stored), tag, iteration, signatures
        self._database.execute("INSERT INTO model VALUES (?, ?, ?, ?, ?, ?)", values)

    def set_signatures(self, kind: str, lane: int, signatures: bytes) -> None:
        """Note who has signed a model."""
        self._database.execute("UPDATE model SET signatures = ? WHERE kind = ? AND lane = ?", (signatures, kind, lane))

    def drop_model(self, kind: str, lane: int = 0) -> None:
        """Let a model go."""
        for (body,) in self.execute("DELETE FROM model WHERE kind = ? AND lane = ? RETURNING body", kind, lane):
            self._drop_body(body)

    def lanes(self, *kinds: str) -> list[int]:
        """Return the lanes of which a model of that kind, or of one of two kinds, is here."""
        statement = "SELECT DISTINCT lane FROM model WHERE kind IN (?, ?) ORDER BY lane"
        return [lane for (lane,) in self.execute(statement, kinds[0], kinds[-1])]

    def newest(self, walk: int) -> StoredModel | None:
        """Return the model of a walk's last lane that is here: its end, or this node's own."""
        lanes = [lane for lane in self.lanes("final", "checkpoint") if lane % self.walks_of_run == walk]
        return (self.model("final", lanes[-1]) or self.model("checkpoint", lanes[-1])) if lanes else None

    @property
    def walks_of_run(self) -> int:
        """How many walks the run has."""
        return int(self.mark(WALKS) or 1)

    @property
    def rounds_of_run(self) -> int:
        """How often all walks end: where they meet, and with the run."""
        return int(self.mark(ROUNDS) or 1)

    @property
    def round(self) -> int:
        """The number of the present round, from 0: it follows the last one of which the ends of all walks are here."""
        walks = self.walks_of_run
        ends = Counter(lane // walks for lane in self.lanes("final"))
        return max((number + 1 for number, count in ends.items() if count == walks), default=0)

    def is_finished(self) -> bool:
        """Return whether the finished models of all walks are here."""
        return self.round >= self.rounds_of_run

    def forget_rounds(self) -> None:
        """Let go of the models of rounds that are over; the last two stay, for the newest ends may be undone."""
        statement = "SELECT kind, lane FROM model WHERE kind <> 'state' AND lane < ?"
        for kind, lane in self.execute(statement, (self.round - 2) * self.walks_of_run):
            self.drop_model(kind, lane)

    def set_start(self, lane: int, noted: bytes) -> None:
        """Note after which end of a lane the walk starts here, and who brought it; nothing, once it has."""
        self.set_mark(of_lane(STARTS, lane % self.walks_of_run), noted)

    def lanes_to_start(self) -> dict[int, str]:
        """Return the lanes that begin here, as this node made the last update before; with who brought that walk."""
        walks, present, starts = self.walks_of_run, self.round, {}
        for walk in range(walks):
            noted, lane = self.mark(of_lane(STARTS, walk)), present * walks + walk
            final = self.model("final", lane - walks)
            is_ours = noted and final is not None and noted[:_DIGEST_BYTES] == final.digest
            if noted and is_ours and self.model("checkpoint", lane) is None:
                starts[lane] = noted[_DIGEST_BYTES:].decode()
        return starts

    def undone_ends(self, lane: int = 0) -> tuple[bytes, ...]:
        """Return the digests of the finished models of a lane that the operator has undone."""
        digests = self.mark(of_lane(UNDONE, lane)) or b""
        return tuple(digests[start : start + _DIGEST_BYTES] for start in range(0, len(digests), _DIGEST_BYTES))

    def undo_end(self, digest: bytes, lane: int = 0) -> None:
        """Let the finished model of a lane go, never to be taken again."""
        self.set_mark(of_lane(UNDONE, lane), b"".join((*self.undone_ends(lane), digest)))
        self.drop_model("final", lane)
        self.drop_model("end", lane)

    # Bytes.

    def inline(self, row: Row | StoredModel) -> bytes:
        """Return the bytes of a row that has no file; none if the row is gone."""
        stored = self._database.execute("SELECT bytes FROM body WHERE id = ?", (row.body,)).fetchone()
        return b"" if stored is None or stored[0] is None else bytes(stored[0])

    def files(self) -> set[str]:
        """Return the names of all files that some row needs."""
        return {name for (name,) in self._database.execute("SELECT file FROM body WHERE file IS NOT NULL")}

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        return self._database.execute(statement, values).fetchall()

    def _add_body(self, stored: Stored) -> int:
        if stored.file is not None:
            self.named_files.append(stored.file)
        values = (stored.file, stored.inline, stored.digest)
        return self._database.execute("INSERT INTO body (file, bytes, digest) VALUES (?, ?, ?)", values).lastrowid or 0

    def _drop_body(self, body: int) -> None:
        for (file,) in self.execute("DELETE FROM body WHERE id = ? RETURNING file", body):
            if file is not None:
                self.dropped_files.append(file)
