"""A database that is no longer what was written is set aside; the node goes on as one with a new disk.

Neighbours know such a node by the new mark of its disk, and give it the finished model, if there is one. Nothing is
taken over: what cannot be proven would lose or double a message without a word.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

from veilwalk.node.spool._tables import FORMAT, TWICE, check_format, make_tables, table_names

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
            return all(_is_sound(database, table, _columns(model, table)) for table in table_names(model))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            return False


def _is_sound(database: sqlite3.Connection, table: str, columns: dict[str, str]) -> bool:
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
