"""How SQLite's write-ahead log forgets what it no longer needs.

A log that is emptied is only written over from its beginning, so it holds earlier states of every page; here it is
wiped first. A log that damage has cut short is like a disk that was put back: what is pinned is offered once more.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

_FRAME_BYTES = 24
# In the place of a header: all that is in the log is in the database too. SQLite takes it for no log at all.
_WIPED = b"veilwalk has wiped this log     "

_ZEROS = memoryview(bytes(1 << 18))


def wipe_log(path: Path, database: sqlite3.Connection) -> bool:
    """Write what is in the log at ``path`` into the database, and zeros over it; return whether it could be done.

    ``database`` must be the only one that writes. The log keeps its length: to write over what is there needs no
    journal of the file system.
    """
    (patience,) = database.execute("PRAGMA busy_timeout").fetchone()
    (page,) = database.execute("PRAGMA page_size").fetchone()
    # Whoever looks at the database now is not waited for.
    database.execute("PRAGMA busy_timeout=0")
    try:
        busy, frames, _ = database.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    finally:
        database.execute(f"PRAGMA busy_timeout={patience}")
    if busy or frames < 0:
        return False
    if frames:
        with path.open("r+b", buffering=0) as log:
            # Wiped from its end, or half, a log would be one of older pages than those in the database.
            log.write(_WIPED)
            os.fdatasync(log)
            left = frames * (_FRAME_BYTES + page)
            while left:
                left -= log.write(_ZEROS[:left])
            # On the disk, and now: else the next commit, which somebody waits for, would have to write them.
            os.fdatasync(log)
    return True
