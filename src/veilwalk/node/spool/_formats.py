"""Which version of this program wrote a database.

Another format is never damage: whoever wrote it can still read it. It is refused and left as it is.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node.spool._tables import FORMAT, table_names


def check_format(database: sqlite3.Connection, path: Path) -> None:
    """Refuse the database at ``path`` if another version wrote it.

    Raises:
        SpoolError: It is.
    """
    found = _format(database)
    if found is None or found == FORMAT:
        return
    age, remedy = ("a newer", "upgrade this one") if found > FORMAT else ("an older", "go on with that version")
    raise SpoolError(
        f"{path}: written by {age} version of veilwalk (storage format {found}, this one has {FORMAT}): {remedy}, "
        "or begin with an empty folder"
    )


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
