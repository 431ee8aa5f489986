"""What a bad disk does to a node that is down, kind by kind; and whether the node noticed afterwards.

Works on the files alone and shares no code with the node.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

#: What is done to a stored message, in SQL, with :at a byte of it and :digest one of its digest's.
KINDS = {
    "zeroed": "bytes = zeroblob(length(bytes))",
    "bit flipped": "bytes = flipped(bytes, :at)",
    "cut short": "bytes = substr(bytes, 1, :at)",
    "digest flipped": "digest = flipped(digest, :digest)",
}


@dataclass(frozen=True, slots=True)
class Hurt:
    """One message that was damaged.

    Attributes:
        node: At which node.
        number: Its row there.
        kind: What was done to it.
        passed_on: Whether the next node had it on disk already: then nothing is lost with it.
    """

    node: str
    number: int
    kind: str
    passed_on: bool


def hurt_messages(folder: Path, names: Sequence[str], dice: random.Random) -> list[Hurt]:
    """Damage every message in the keeping of these stopped nodes, each in one way drawn from all."""
    taken = {name: _taken(folder, name) for name in names}
    found = []
    for name in names:
        with closing(_database(folder, name)) as database:
            rows = database.execute(
                "SELECT message.id, body.id, length(bytes), peer, key FROM message JOIN body ON body.id = body "
                "WHERE bytes IS NOT NULL"
            )
            for number, body, length, peer, key in rows.fetchall():
                kind = dice.choice(sorted(KINDS))
                where = {"at": dice.randrange(length), "digest": dice.randrange(32), "id": body}
                database.execute(f"UPDATE body SET {KINDS[kind]} WHERE id = :id", where)  # noqa: S608  ours
                passed_on = peer is not None and key in taken[peer].get(name, b"")
                found.append(Hurt(name, number, kind, passed_on))
            database.commit()
    return found


def hurt_keepings(folder: Path, names: Sequence[str], dice: random.Random) -> Counter[str]:
    """Flip a bit in the newest model, and in what the learner keeps, of every node; return in how many of each."""
    found: Counter[str] = Counter()
    for name in names:
        with closing(_database(folder, name)) as database:
            rows = database.execute(
                "SELECT kind, body.id, length(bytes) FROM body JOIN model ON body = body.id WHERE kind != 'end'"
            )
            for kind, body, length in rows.fetchall():
                at = dice.randrange(length)
                database.execute("UPDATE body SET bytes = flipped(bytes, ?) WHERE id = ?", (at, body))
                found[kind] += 1
            database.commit()
    return found


def still_there(folder: Path, hurt: Sequence[Hurt]) -> list[Hurt]:
    """Return the damaged messages that are still in custody."""
    found = []
    for one in hurt:
        with closing(_database(folder, one.node)) as database:
            if database.execute("SELECT 1 FROM message WHERE id = ?", (one.number,)).fetchone():
                found.append(one)
    return found


def broken(folder: Path, names: Sequence[str]) -> list[str]:
    """Return every message and model whose bytes are not those of its digest, in words."""
    found = []
    for name in names:
        with closing(_database(folder, name)) as database:
            for inline, digest in database.execute("SELECT bytes, digest FROM body"):
                if inline is not None and hashlib.sha256(inline).digest() != digest:
                    found.append(f"a broken message or model at {name}")
    return found


def _taken(folder: Path, name: str) -> dict[str, bytes]:
    with closing(_database(folder, name)) as database:
        return dict(database.execute("SELECT peer, taken FROM link"))


def _database(folder: Path, name: str) -> sqlite3.Connection:
    database = sqlite3.connect(folder / name / "state" / "spool.db", timeout=10)
    database.create_function("flipped", 2, _flipped)
    return database


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
