"""SQLite's write-ahead log: whether damage has cut it short, and how it forgets what it no longer needs.

A log cut short by damage drops what was committed after, without a word.
From the first frame with a wrong checksum on, SQLite ignores the log, as it must after a power cut. A node that has
forgotten what it committed would give numbers out twice, and its neighbours would take the second for the first. A
damaged frame differs from a write that was cut off in what follows it: further commits of the same generation.

A log that is emptied is only written over from its beginning, so it holds earlier states of every page; here it is
wiped first.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER_BYTES, _FRAME_BYTES = 32, 24
# File header: magic, version, page size, generation, two salts. Frame: page, size after a commit or 0, two salts.
_HEADER, _FRAME = struct.Struct(">IIII8s"), struct.Struct(">II8s")
# In the place of a header: all that is in the log is in the database too. SQLite takes it for no log at all.
_WIPED = b"veilwalk has wiped this log     "

_ZEROS = memoryview(bytes(1 << 18))


@dataclass(frozen=True, slots=True)
class LogFrames:
    """The frames of a log by number from 1 on: those that end a commit, and the last, of one generation."""

    commits: tuple[int, ...]
    last: int

    def is_cut(self, database: sqlite3.Connection) -> bool:
        """Return whether ``database``, just opened, has left out a commit that others were written after."""
        _, read, _ = database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return any(max(read, 0) < commit < self.last for commit in self.commits)


def log_frames(path: Path) -> LogFrames:
    """Return the frames of the log at ``path``, before the database is opened; none where there is no log."""
    commits: list[int] = []
    last = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as log:
        header = log.read(_HEADER_BYTES)
        size = path.stat().st_size
        if len(header) < _HEADER_BYTES or size < _HEADER_BYTES + _FRAME_BYTES:
            return LogFrames((), 0)
        if header == _WIPED:
            return LogFrames((), 0)
        if not _is_sound(header):
            # Nothing of the log is read.
            return LogFrames((1,), 2)
        _, _, page, _, salts = _HEADER.unpack_from(header)
        for number, at in enumerate(range(_HEADER_BYTES, size - _FRAME_BYTES - page + 1, _FRAME_BYTES + page), 1):
            log.seek(at)
            _, committed, mine = _FRAME.unpack(log.read(_FRAME.size))
            if mine == salts:
                last = number
                if committed:
                    commits.append(number)
    return LogFrames(tuple(commits), last)


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


def _is_sound(header: bytes) -> bool:
    """Return whether the checksum of the file's header is right; its magic number says in which byte order."""
    order = ">" if header[3] & 1 else "<"
    first, second = 0, 0
    words = struct.unpack_from(f"{order}6I", header)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack_from(">2I", header, 24)
