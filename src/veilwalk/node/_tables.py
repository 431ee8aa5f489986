"""The tables of a node, and their rows as values.

Nothing here knows the time: what is on disk must not tell when anything happened.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (      -- messages in custody, in the order they came
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT UNIQUE,                     -- where the bytes are, or NULL where they are here
    bytes BLOB,
    digest BLOB NOT NULL,
    came_from TEXT,                       -- neighbour, or NULL for a walk made here
    came_seq INTEGER,                     -- its number on the link from there, while it is as it came
    owed INTEGER,                         -- that number again: released there when this, or what it became, is gone
    peer TEXT,                            -- pinned next hop, or NULL while held
    seq INTEGER,                          -- its number on that link
    fixed INTEGER NOT NULL DEFAULT 0,     -- for that peer and no other
    UNIQUE (peer, seq)
);
CREATE TABLE IF NOT EXISTS link (
    peer TEXT PRIMARY KEY,
    sent INTEGER NOT NULL DEFAULT 0,      -- last number given out
    taken INTEGER,                        -- last number taken, NULL where none is known
    incarnation BLOB                      -- of the neighbour's disk, which numbers what it sends
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cancelled (peer TEXT, seq INTEGER, PRIMARY KEY (peer, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spare (        -- copies of messages that were handed on, until released
    peer TEXT, seq INTEGER, file TEXT, bytes BLOB, digest BLOB NOT NULL, came_from TEXT, PRIMARY KEY (peer, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS debt (peer TEXT, seq INTEGER, PRIMARY KEY (peer, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS opened (update_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS walk (         -- walks this node was a destination of
    tag BLOB PRIMARY KEY,
    iteration INTEGER NOT NULL,           -- highest seen
    first_turn INTEGER NOT NULL,          -- this node's turn (its count of openings) when first seen
    last_turn INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS edge_use (peer TEXT PRIMARY KEY, clock INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mark (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tally (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS learner_state (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS model (        -- 'checkpoint': this node's newest, 'final': the finished one
    kind TEXT PRIMARY KEY,
    file TEXT,
    bytes BLOB,
    digest BLOB NOT NULL,
    tag BLOB NOT NULL,
    iteration INTEGER NOT NULL
) WITHOUT ROWID;
"""


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
    came_seq: int | None
    owed: int | None
    peer: str | None
    seq: int | None
    fixed: bool


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
