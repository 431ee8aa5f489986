"""Which version of this program wrote a database, and how one of an earlier version becomes one of this.

Another format is never damage: whoever wrote it can still read it. One of a newer version is refused and left as it
is; one of an earlier version is brought up to date in one transaction, so that a crash leaves it whole, old or new.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node.spool._tables import FORMAT, make_tables, table_names


def _who_brought_claims(database: sqlite3.Connection) -> None:
    """Until then every claim came from the neighbour that vouched."""
    database.execute("ALTER TABLE claim ADD COLUMN brought_by TEXT NOT NULL DEFAULT ''")
    database.execute("UPDATE claim SET brought_by = peer")


#: What makes a database of each earlier format one of the next, but for tables that are new. What 0.1 stored (it wrote
#: no format) is of runs that nobody can go on with.
STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _who_brought_claims}


def check_format(database: sqlite3.Connection, path: Path) -> None:
    """Refuse the database at ``path`` if it is of a version that this one cannot take over from.

    Raises:
        SpoolError: It is.
    """
    found = _format(database)
    if found is None or found == FORMAT or found in STEPS:
        return
    age, remedy = ("a newer", "upgrade this one") if found > FORMAT else ("an older", "go on with that version")
    raise SpoolError(
        f"{path}: written by {age} version of veilwalk (storage format {found}, this one has {FORMAT}): {remedy}, "
        "or begin with an empty folder"
    )


def bring_up_to_date(database: sqlite3.Connection) -> None:
    """Make a database of an earlier format one of this: as a whole, or not at all."""
    found = _format(database)
    if found is None or found == FORMAT:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        for number in range(found, FORMAT):
            STEPS[number](database)
        make_tables(database)
        database.execute("COMMIT")
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")


def _format(database: sqlite3.Connection) -> int | None:
    """Return the format of a database; None of one that is empty yet, and where it is not certain.

    It is written twice: where only one of the two is another number, it is damage.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if not table_names(database):
        return None
    try:
        noted = database.execute("SELECT data FROM mark WHERE name = 'format'").fetchone()
    except sqlite3.Error as error:
        if "no such" not in str(error):
            raise
        noted = None
    # Those of the first versions had neither.
    return int(version) if (b"0" if noted is None else noted[0]) == b"%d" % version else None
