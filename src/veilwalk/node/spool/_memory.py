"""What a node remembers besides messages: what it opened, walks, claims, models, counts."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from veilwalk.node.spool._tables import WALKS, Row, SeenWalk, Stored, StoredModel, of_lane

# A walk that did not open here for so many turns of this node is dead, or was forged: whoever seals for a node can give
# every message a new one, and all that are known are read at every turn.
_TURNS_REMEMBERED = 1000


class Memory:
    """The tables that hold no messages, inside one transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.dropped_files: list[str] = []
        #: Files that rows of this transaction are the first to name.
        self.named_files: list[str] = []

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
        rows = self._database.execute("SELECT tag, iteration, first_turn, last_turn, made_at FROM walk")
        return {tag: SeenWalk(**dict(zip(SeenWalk.__slots__, numbers, strict=True))) for tag, *numbers in rows}

    def saw_walk(self, tag: bytes, iteration: int, turn: int, made_at: int = 0) -> None:
        """Note that walk ``tag``, made at update ``made_at``, was opened here at this node's turn ``turn``."""
        self._database.execute(
            "INSERT INTO walk VALUES (?, ?, ?, ?, ?) ON CONFLICT (tag) DO UPDATE SET "
            "iteration = max(iteration, excluded.iteration), last_turn = excluded.last_turn, "
            "made_at = excluded.made_at",
            (tag, iteration, turn, turn, made_at),
        )
        self._database.execute("DELETE FROM walk WHERE last_turn <= ?", (turn - _TURNS_REMEMBERED,))

    def mark(self, name: str) -> bytes | None:
        """Return what is noted under that name."""
        row = self._database.execute("SELECT data FROM mark WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def set_mark(self, name: str, data: bytes) -> None:
        """Note something under that name."""
        self._database.execute("INSERT OR REPLACE INTO mark VALUES (?, ?)", (name, data))

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
        """Return the ``checkpoint`` or the ``final`` model, or that of a lane (:func:`.of_lane`)."""
        query = f"SELECT {', '.join(StoredModel.__slots__)} FROM model WHERE kind = ?"  # noqa: S608  all of it is ours
        row = self._database.execute(query, (kind,)).fetchone()
        return None if row is None else StoredModel(**dict(zip(StoredModel.__slots__, row, strict=True)))

    @property
    def walks_of_run(self) -> int:
        """How many walks the run has."""
        return int(self.mark(WALKS) or 1)

    def is_finished(self) -> bool:
        """Return whether the finished models of all lanes are here."""
        return all(self.model(of_lane("final", lane)) is not None for lane in range(self.walks_of_run))

    def set_model(self, kind: str, stored: Stored, *, tag: bytes, iteration: int) -> None:
        """Put a model in the place of the one there was."""
        if stored.file is not None:
            self.named_files.append(stored.file)
        before = self.model(kind)
        if before is not None and before.file is not None:
            self.dropped_files.append(before.file)
        self._database.execute(
            "INSERT OR REPLACE INTO model VALUES (?, ?, ?, ?, ?, ?)",
            (kind, stored.file, stored.inline, stored.digest, tag, iteration),
        )

    def drop_model(self, kind: str) -> None:
        """Let a model go."""
        before = self.model(kind)
        if before is not None and before.file is not None:
            self.dropped_files.append(before.file)
        self._database.execute("DELETE FROM model WHERE kind = ?", (kind,))

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

    def _one(self, query: str, *values: object) -> int:
        row = self._database.execute(query, values).fetchone()
        return 0 if row is None else int(row[0])
