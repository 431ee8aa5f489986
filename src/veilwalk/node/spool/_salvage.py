"""A database that is no longer what was written: set aside, and what can still be read of it taken over.

The node then goes on as one that has lost its disk, which its neighbours notice by the new mark: numbers of links are
forgotten, for a wrong one would lose messages without a word. Messages that were offered before are offered again, as
copies, and the destination drops one of the two.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from veilwalk.node.spool._formats import check_format
from veilwalk.node.spool._tables import FORMAT, TWICE, make_tables, table_names
from veilwalk.node.spool._wal import log_frames

# Not the links' numbers, nor what is owed under them.
_KEPT = ("opened", "walk", "tally", "learner_state", "model")
# SQLite's codes for a file whose content is wrong; others say that it cannot be read now.
_DAMAGE = (1, 11, 26)


def open_or_mend(path: Path, opened: Callable[[Path], sqlite3.Connection]) -> tuple[sqlite3.Connection, bool]:
    """Return the database at ``path``, and whether it had to be set aside and made anew."""
    log = log_frames(path.with_name(path.name + "-wal"))
    try:
        database = opened(path)
        try:
            check_format(database, path)
            if not log.is_cut(database) and _is_whole(database):
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
    database = opened(path)
    database.execute("BEGIN IMMEDIATE")
    make_tables(database)
    _take_over(aside, database)
    database.execute("INSERT INTO tally VALUES ('damaged', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")
    database.execute("COMMIT")
    return database, True


def _is_whole(database: sqlite3.Connection) -> bool:
    """Return whether the file is in form, every column is there and of its type, and what is kept twice is alike."""
    if not table_names(database):
        return True
    if database.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
        return False
    if database.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
        return False
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        make_tables(model)
        try:
            return all(_holds(database, table, _columns(model, table)) for table in table_names(model))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            return False


def _holds(database: sqlite3.Connection, table: str, columns: dict[str, str]) -> bool:
    if any(name not in _columns(database, table) for name in columns):
        return False
    wrong = " OR ".join(f"typeof({name}) NOT IN ('{kind.lower()}', 'null')" for name, kind in columns.items())
    if database.execute(f"SELECT count(*) FROM {table} WHERE {wrong}").fetchone()[0]:  # noqa: S608  ours
        return False
    texts = [name for name, kind in columns.items() if kind == "TEXT"]
    if texts:
        # For the sake of decoding them.
        database.execute(f"SELECT {', '.join(texts)} FROM {table}").fetchall()  # noqa: S608
    if table not in TWICE:
        return True
    differ = f"SELECT count(*) FROM {table} WHERE twice IS NOT ({TWICE[table]})"  # noqa: S608
    return not database.execute(differ).fetchone()[0]


def _is_damage(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", _DAMAGE[0]) & 0xFF in _DAMAGE


def _columns(database: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return names and types of the columns that are written, not those that follow from others."""
    return {str(row[1]): str(row[2]) for row in database.execute(f"PRAGMA table_info({table})")}


def _take_over(aside: Path, database: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(aside)) as old:
        for table in _KEPT:
            names = ", ".join(_columns(database, table))
            for row in _readable(old, table, names):
                with contextlib.suppress(sqlite3.Error):
                    marks = ", ".join("?" * len(row))
                    database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608  ours
        for row in _readable(old, "message", "file, bytes, digest"):
            # Files are looked at by the node itself, before it offers anything.
            if row[0] is not None or (isinstance(row[1], bytes) and hashlib.sha256(row[1]).digest() == row[2]):
                with contextlib.suppress(sqlite3.Error):
                    database.execute("INSERT INTO message (file, bytes, digest) VALUES (?, ?, ?)", row)


def _readable(database: sqlite3.Connection, table: str, names: str) -> Iterator[tuple[object, ...]]:
    """Yield rows that are what was written, until the first that cannot be read."""
    alike = f"twice IS ({TWICE[table]})" if table in TWICE and table != "message" else "1"
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
        yield from database.execute(f"SELECT {names} FROM {table} WHERE {alike}")  # noqa: S608  ours
