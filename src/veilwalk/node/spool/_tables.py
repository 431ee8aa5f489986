"""The tables of a node, and their rows as values.

Nothing here knows the time: what is on disk must not tell when anything happened. Where a wrong number would lose a
message without a word, or end a run, it is written twice (``twice``), by the database itself.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

#: Counts the changes to these tables that a release has seen; each has its step in ``_formats``.
FORMAT = 3
#: Marks that a node keeps besides those of its disk: how far its last update moved the model, the digests of the
#: finished models that its operator has undone, how many walks it made since it trained last, how many ends it took.
STEP, UNDONE, ASKED, ENDS = "step", "undone", "asked", "ends"
#: How many walks the run has, noted where there is more than one.
WALKS = "walks"
#: What is written twice, by table.
TWICE = {
    "message": "quote(peer) || quote(seq) || quote(came_from) || quote(owed) || fixed",
    "link": "quote(peer) || sent || quote(taken) || quote(incarnation)",
    "cancelled": "quote(peer) || seq",
    "given": "quote(peer) || seq",
    "debt": "quote(peer) || seq",
    "opened": "quote(update_id) || epoch",
    "walk": "quote(tag) || iteration || ' ' || first_turn || ' ' || last_turn || ' ' || made_at",
    "model": "kind || quote(digest) || quote(tag) || iteration",
}
SCHEMA = """
CREATE TABLE IF NOT EXISTS message (      -- messages in custody, in the order they came
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT UNIQUE,                     -- where the bytes are, or NULL where they are here
    bytes BLOB,
    digest BLOB NOT NULL,
    came_from TEXT,                       -- neighbour, or NULL for a walk made here
    owed INTEGER,                         -- its number on the link from there: released when it, or its heir, is gone
    peer TEXT,                            -- pinned next hop, or NULL while held
    seq INTEGER,                          -- its number on that link
    fixed INTEGER NOT NULL DEFAULT 0,     -- for that peer and no other: 1 + the lane of a finished model
    TWICE,
    UNIQUE (peer, seq)
);
CREATE TABLE IF NOT EXISTS link (
    peer TEXT PRIMARY KEY,
    sent INTEGER NOT NULL DEFAULT 0,      -- last number given out
    taken INTEGER,                        -- last number taken, NULL where none is known
    incarnation BLOB,                     -- of the neighbour's disk, which numbers what it sends
    TWICE
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cancelled (peer TEXT, seq INTEGER, TWICE, PRIMARY KEY (peer, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS given (        -- pinned messages that the neighbour may be using already
    peer TEXT, seq INTEGER, TWICE, PRIMARY KEY (peer, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spare (        -- copies of messages that were handed on, until released
    peer TEXT, seq INTEGER, file TEXT, bytes BLOB, digest BLOB NOT NULL, came_from TEXT, PRIMARY KEY (peer, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS debt (peer TEXT, seq INTEGER, TWICE, PRIMARY KEY (peer, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS opened (update_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, TWICE) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS walk (         -- walks this node was a destination of
    tag BLOB PRIMARY KEY,
    iteration INTEGER NOT NULL,           -- highest seen
    first_turn INTEGER NOT NULL,          -- this node's turn (its count of openings) when first seen
    last_turn INTEGER NOT NULL,
    made_at INTEGER NOT NULL,             -- updates the model had had when the walk was made
    TWICE
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claim (        -- finished models that members vouch for, and this node does not believe
    peer TEXT PRIMARY KEY, digest BLOB NOT NULL, iteration INTEGER NOT NULL, brought_by TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tally (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS learner_state (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS model (        -- 'checkpoint': this node's newest, 'final': the finished one,
                                          -- 'claimed': the newest that a claim is about (of_lane)
    kind TEXT PRIMARY KEY,
    file TEXT,
    bytes BLOB,
    digest BLOB NOT NULL,
    tag BLOB NOT NULL,
    iteration INTEGER NOT NULL,
    TWICE
) WITHOUT ROWID;
"""


def of_lane(name: str, lane: int) -> str:
    """Return what is called ``name`` where there is one walk, for one of several; that of the first is called so."""
    return f"{name} {lane}" if lane else name


def make_tables(database: sqlite3.Connection) -> None:
    """Make the tables that are not there yet, inside a transaction."""
    for statement in SCHEMA.split(";"):
        table = statement.partition("EXISTS ")[2].partition(" ")[0]
        twice = f"twice TEXT GENERATED ALWAYS AS ({TWICE.get(table)}) STORED"
        database.execute(statement.replace("TWICE", twice))
    if database.execute("PRAGMA user_version").fetchone() != (FORMAT,):
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("INSERT OR REPLACE INTO mark VALUES ('format', CAST(? AS BLOB))", (str(FORMAT),))


def table_names(database: sqlite3.Connection) -> list[str]:
    """Return the tables that a database has."""
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return [str(name) for (name,) in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes on their way into a row: in a file that is safe already, or, where they are few, in the row itself."""

    digest: bytes
    file: str | None = None
    inline: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A message in custody."""

    id: int
    file: str | None
    digest: bytes
    came_from: str | None
    owed: int | None
    peer: str | None
    seq: int | None
    fixed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model on this node's disk."""

    kind: str
    file: str | None
    digest: bytes
    tag: bytes
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWalk:
    """What this node, as a destination, knows of a walk."""

    iteration: int
    first_turn: int
    last_turn: int
    made_at: int = 0
