"""The tables of a node, their rows as values, and the number of their format.

Nothing here knows the time: what is on disk must not tell when anything happened. State and bytes are apart: to change
a row in SQLite is to write all of it anew. Where a wrong value would lose or double a message without a word it is
written twice (``twice``), by the database itself.

A database that is no longer what was written is set aside; the node goes on as one with a new disk. Neighbours know
such a node by the new mark of its disk, and give it the finished model, if there is one. Nothing is taken over: what
cannot be proven would lose or double a message without a word.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node.sealing import Header

#: Counts the changes to these tables.
FORMAT = 5
#: Marks that a node keeps for each walk: how far its last update moved the model, and what it needs to start the walk
#: after a meeting, where it made the last update before; and for each lane: the digests of the finished models that its
#: operator has undone.
STEP, STARTS, UNDONE = "step", "starts", "undone"
#: How many walks the run has, and how often they end, noted where that is more than one.
WALKS, ROUNDS = "walks", "rounds"
#: Bytes of the key of a pinned message, and how many keys a node remembers of what it took from each neighbour.
KEY_BYTES, KEYS_REMEMBERED = 16, 64
#: What is written twice, by table.
TWICE = {
    "message": "quote(came_from) || quote(peer) || quote(key) || given || quote(end_lane)",
    "opened": "quote(update_id) || epoch",
    "walk": "quote(tag) || iteration || ' ' || first_turn || ' ' || last_turn || ' ' || made_at",
    "model": "kind || lane || quote(tag) || iteration",
}
# Texts that are not written twice.
_TEXTS = " UNION ".join(
    f"SELECT {column} FROM {table}"  # noqa: S608  ours
    for table, column in (("tally", "name"), ("mark", "name"), ("link", "peer"))
)
SCHEMA = """
CREATE TABLE IF NOT EXISTS body (         -- bytes of messages and models
    id INTEGER PRIMARY KEY,
    file TEXT UNIQUE,                     -- where the bytes are, or NULL where they are here
    bytes BLOB,
    digest BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS message (      -- messages in custody, in the order they came
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    body INTEGER NOT NULL,
    came_from TEXT,                       -- neighbour, or NULL for a walk made here
    peer TEXT,                            -- pinned next hop, or NULL while it waits
    key BLOB UNIQUE,                      -- idempotency key, by which that neighbour knows it
    given INTEGER NOT NULL DEFAULT 0,     -- whether that neighbour may be using it already
    end_lane INTEGER,                     -- for that neighbour and no other: the end of this lane
    TWICE
) STRICT;
CREATE TABLE IF NOT EXISTS link (
    peer TEXT PRIMARY KEY,
    incarnation BLOB NOT NULL,            -- mark of the neighbour's disk
    taken BLOB NOT NULL                   -- keys of the last messages taken from it
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS opened (update_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, TWICE) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS walk (         -- walks this node was a destination of
    tag BLOB PRIMARY KEY,
    iteration INTEGER NOT NULL,           -- highest seen
    first_turn INTEGER NOT NULL,          -- this node's turn (its count of openings) when first seen
    last_turn INTEGER NOT NULL,
    made_at INTEGER NOT NULL,             -- updates the model had had when the walk was made
    TWICE
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (name TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tally (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS model (        -- 'checkpoint': this node's newest, 'end': one that is being signed,
    kind TEXT NOT NULL,                   -- 'final': the finished one, 'state': what the learner keeps here
    lane INTEGER NOT NULL,
    body INTEGER NOT NULL,
    tag BLOB NOT NULL,
    iteration INTEGER NOT NULL,
    signatures BLOB NOT NULL,
    TWICE,
    PRIMARY KEY (kind, lane)
) STRICT, WITHOUT ROWID;
"""


def of_lane(name: str, lane: int) -> str:
    """Return the name of a mark of one lane; that of the first is the bare name."""
    return f"{name} {lane}" if lane else name


def make_tables(database: sqlite3.Connection) -> None:
    """Make the tables that are not there yet, inside a transaction."""
    for statement in SCHEMA.split(";"):
        table = statement.partition("EXISTS ")[2].partition(" ")[0]
        content = TWICE.get(table)
        twice = f"twice TEXT GENERATED ALWAYS AS ({content}) STORED CHECK (twice IS ({content}))"
        database.execute(statement.replace("TWICE", twice))
    if database.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("INSERT OR REPLACE INTO mark VALUES ('format', CAST(? AS BLOB))", (str(FORMAT),))


def table_names(database: sqlite3.Connection) -> list[str]:
    """Return the tables that a database has."""
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return [str(name) for (name,) in rows]


def check_format(database: sqlite3.Connection, path: Path) -> None:
    """Refuse the database at ``path`` if another version of veilwalk wrote it: that is never damage.

    Raises:
        SpoolError: It is of another version.
    """
    number = _format_number(database)
    if number is None or number == FORMAT:
        return
    age, remedy = ("a newer", "upgrade this one") if number > FORMAT else ("an older", "go on with that version")
    raise SpoolError(
        f"{path}: written by {age} version of veilwalk (storage format {number}, this one has {FORMAT}): {remedy}, "
        "or begin with an empty folder"
    )


def _format_number(database: sqlite3.Connection) -> int | None:
    """Return the format of a database; None of an empty one, and where it is not certain.

    It is written twice: where only one of the two is another number, it is damage.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if not table_names(database):
        return None
    try:
        mark = database.execute("SELECT data FROM mark WHERE name = 'format'").fetchone()
    except sqlite3.Error as error:
        if "no such" not in str(error):
            raise
        mark = None
    # Those of the first versions had neither.
    return int(version) if (b"0" if mark is None else mark[0]) == b"%d" % version else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes on their way into a row: in a file that is safe already, or, where they are few, in the row itself."""

    digest: bytes
    file: str | None = None
    inline: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A message in custody; ``given`` and ``key`` are of its pinned next hop ``peer``."""

    id: int
    body: int
    file: str | None
    digest: bytes
    came_from: str | None
    peer: str | None
    key: bytes | None
    given: int
    end_lane: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model on this node's disk."""

    kind: str
    lane: int
    body: int
    file: str | None
    digest: bytes
    tag: bytes
    iteration: int
    signatures: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWalk:
    """What this node, as a destination, knows of a walk."""

    iteration: int
    first_turn: int
    last_turn: int
    made_at: int = 0


# SQLite's codes for a file whose content is wrong; others say that it cannot be read now.
_DAMAGE = (1, 11, 26)


def open_or_set_aside(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> tuple[sqlite3.Connection, bool]:
    """Return the database at ``path``, and whether it had to be set aside and made anew."""
    try:
        database = connect(path)
        try:
            check_format(database, path)
            if _is_whole(database):
                return database, False
        except BaseException:
            database.close()
            raise
        database.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if not _is_damage(error):
            raise
    aside = path.with_name(path.name + ".damaged")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).replace(aside.with_name(aside.name + suffix))
    database = connect(path)
    database.execute("BEGIN IMMEDIATE")
    make_tables(database)
    database.execute("INSERT INTO tally VALUES ('damaged', 1)")
    database.execute("COMMIT")
    return database, True


def _is_whole(database: sqlite3.Connection) -> bool:
    """Return whether the file is in form, its tables are ours, its columns of their types, and what is twice alike."""
    if not table_names(database):
        return True
    if database.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
        return False
    if database.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        return False
    # For the sake of decoding them.
    database.execute(_TEXTS).fetchall()
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        make_tables(model)
        return _statements(database) == _statements(model)


def _statements(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return what made the tables of a database."""
    return database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


def _is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", _DAMAGE[0]) & 0xFF in _DAMAGE


# ---- values that pass between custody and the rest of the node ------------------------------------------------------


class Verdict(Enum):
    """The fate of an offered message."""

    HELD = "here, and not used"
    TAKEN = "taken"
    AGAIN = "taken before"
    BUSY = "this node takes nothing new"
    DAMAGED = "not the bytes that were announced"
    REFUSED = "not of this run and epoch"
    UNKNOWN = "not here"


@dataclass(frozen=True, slots=True)
class Taken:
    """A verdict, and the message where it is now in custody, with how long it is to wait besides its dwell.

    ``crowded_out`` is the message that had to go for it.
    """

    verdict: Verdict
    row: Row | None = None
    for_us: bool = False
    wait_s: float = 0.0
    crowded_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEnd:
    """The end of a lane: a model that members sign, until enough have.

    Attributes:
        lane: Of which walk it is, between which meetings.
        model: The model, encoded; empty where it was taken here and is damaged.
        digest: Its SHA-256.
        iteration: Updates that it has had.
        signatures: Those known here, one after the other.
        is_final: Whether they are enough.
    """

    lane: int
    model: bytes
    digest: bytes
    iteration: int
    signatures: bytes = b""
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """The result of an opened message at its node, written all or nothing.

    Attributes:
        header: What the opened message's header said; None where nothing came of it, so that its id is remembered for
            a while only.
        epoch: Its epoch, for as long as which the id must be remembered.
        message: The model sealed for the next destination; None where the walk ends here.
        model: This node's newest model, encoded; None where the message changes nothing about that.
        iteration: Updates that one has had.
        learner_state: What the learner keeps here, encoded; None where no update was made.
        counts: Tallies to add to.
        step: How far this node's update moved the model (Euclidean norm); None where none was made.
        lost: Updates that this node knows to be lost by it.
        lane: Its lane.
        end: The end of the lane, where there is news of it.
        farewells: The end of the lane sealed for each neighbour that is to have it now, by name.
    """

    header: Header | None = None
    epoch: int = 0
    message: bytes | None = None
    model: bytes | None = None
    iteration: int = 0
    learner_state: bytes | None = None
    counts: tuple[str, ...] = ()
    step: float | None = None
    lost: int = 0
    lane: int = 0
    end: SignedEnd | None = None
    farewells: Mapping[str, bytes] = field(default_factory=dict)
