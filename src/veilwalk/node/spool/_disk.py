"""The disk as the spool sees it: a folder of files and one database, in steps that a power cut may separate.

A file is safe after its own ``sync`` and, where its name is new, ``sync_folder``. A transaction is safe when it is
committed with ``durable``; otherwise it is safe when a later durable one is. Tests put a disk in this place that
forgets whatever was not made safe.

Whoever steals the disk must not read from it what happened when: files have no times, and the database keeps no
earlier states, neither in pages that are free again nor in its log. A log that SQLite empties is only written over from
its beginning; here it is wiped first. One that damage has cut short is like a disk that was put back: what is pinned is
offered once more.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from veilwalk.core.errors import SpoolError, VeilwalkError
from veilwalk.core.files import lock_file
from veilwalk.node.members import make_private_directory
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool._tables import check_format, open_or_set_aside

MESSAGES = "messages"
#: The times of every file of a node: of reading and of writing.
NO_TIME = (0.0, 0.0)
# Where the system has it: reading leaves no time either.
_NO_ATIME = getattr(os, "O_NOATIME", 0)
# About forty hops: to wipe the log takes four syncs of the disk, and a longer one holds more of what was.
_MOST_COMMITS = 128
# From here on it is wiped after a commit that nobody waits for, as of a message that is gone: else one would, at a hop.
_ENOUGH_COMMITS = 120


class FolderDisk:
    """A folder of the real disk, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        # Models lie here in plain.
        make_private_directory(folder)
        self._files = folder / MESSAGES
        self._log = folder / "spool.db-wal"
        self._timeless = [folder / "spool.db", self._log, folder / "spool.db-shm"]
        # Let go of again where the rest fails: a process of several runs tries once more.
        with ExitStack() as held:
            try:
                self._files.mkdir(mode=0o700, exist_ok=True)
                held.callback(os.close, lock_file(folder / "lock"))
                self._folder = os.open(self._files, os.O_RDONLY | os.O_DIRECTORY)
                held.callback(os.close, self._folder)
                #: Whether the database was damaged and set aside, and this is a new one.
                self.database, self.mended = open_or_set_aside(folder / "spool.db", _open_database)
            except BlockingIOError:
                raise SpoolError(f"{folder}: a node runs with this folder: stop it first") from None
            except OSError as error:
                raise SpoolError(f"{folder}: {error.strerror or error}") from error
            except sqlite3.Error as error:
                raise SpoolError(f"{folder}: the database cannot be opened ({error})") from error
            held.callback(self.database.close)
            self._held = held.pop_all()
        self._durable = True
        # Since the log was wiped.
        self._commits = 0
        #: Which start of the machine this is: while it is the same, nothing that was committed is forgotten.
        self.boot = _this_boot()

    def write(self, name: str, data: Bytes) -> None:
        """Write a file: a new one, or over one whose content nobody needs any more."""
        # Not truncated first: a file of the same length keeps its blocks, and its sync needs no journal.
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        with _as_spool_error(), os.fdopen(os.open(self._files / name, flags, 0o600), "wb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[os.write(file.fileno(), view) :]
            if os.fstat(file.fileno()).st_size != len(data):
                file.truncate()
            os.utime(file.fileno(), NO_TIME)

    def sync(self, name: str) -> None:
        """Make the content of a file safe."""
        with _as_spool_error(), (self._files / name).open("rb", buffering=0) as file:
            os.fdatasync(file.fileno())

    def sync_folder(self) -> None:
        """Make all names safe."""
        with _as_spool_error():
            os.fsync(self._folder)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        flags = os.O_RDONLY | os.O_CLOEXEC | _NO_ATIME
        with _as_spool_error(), os.fdopen(os.open(self._files / name, flags), "rb") as file:
            return file.read()

    def remove(self, name: str) -> None:
        """Forget a file; it need not be there."""
        with _as_spool_error():
            (self._files / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files."""
        with _as_spool_error():
            return [path.name for path in self._files.iterdir()]

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Return a context in which the database changes as a whole or not at all.

        Raises:
            SpoolError: It did not change, though after a power cut it may turn out to have.
        """
        with _as_spool_error():
            if durable != self._durable:
                # NORMAL leaves the write-ahead log to be synced with the next FULL commit: order is kept.
                self.database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            self.database.execute("BEGIN IMMEDIATE")
            try:
                yield self.database
                self._commits += 1
                self.database.execute("COMMIT")
            except BaseException:
                # Its remains in the log would look like damage: the next transaction wipes them.
                self._commits = _MOST_COMMITS
                # A disk that is full may have ended it already.
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise
        # The commit holds, whatever goes wrong from here on.
        with contextlib.suppress(OSError):
            if self._commits >= (_MOST_COMMITS if durable else _ENOUGH_COMMITS):
                self._wipe()
            os.utime(self._log, NO_TIME)

    def tidy(self) -> None:
        """Leave no earlier state of the database, and no times of files; what cannot be done now is done next time.

        The time of the last change of a file's entry cannot be set, only moved: it tells when this was called last.
        """
        self._wipe()
        with contextlib.suppress(OSError):
            for path in [*self._timeless, *self._files.iterdir(), self._files]:
                os.utime(path, NO_TIME)

    def _wipe(self) -> None:
        with contextlib.suppress(OSError, sqlite3.Error):
            self._wipe_free_pages()
            if wipe_log(self._log, self.database):
                self._commits = 0

    def _wipe_free_pages(self) -> None:
        """Write zeros over all pages that are free: those of messages that are gone."""
        (free,) = self.database.execute("PRAGMA freelist_count").fetchone()
        (page,) = self.database.execute("PRAGMA page_size").fetchone()
        if free:
            # All of so many pages, and a row of the least length that SQLite leaves out of them.
            zeros = free * (page - 4) + (page - 12) * 32 // 255 + 100
            self.database.execute("BEGIN IMMEDIATE")
            try:
                self.database.execute("INSERT INTO mark VALUES ('wiped', zeroblob(?))", (zeros,))
                self.database.execute("DELETE FROM mark WHERE name = 'wiped'")
                self.database.execute("COMMIT")
            finally:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")

    def close(self) -> None:
        """Let go of database, folder and lock."""
        with self._held:
            self.tidy()


def open_read_only(folder: Path) -> sqlite3.Connection:
    """Return the database of a node's folder for looking at, whether the node runs or not.

    Raises:
        SpoolError: There is none, or another version wrote it; a damaged one is set aside when a node starts.
    """
    path = folder / "spool.db"
    if not path.is_file():
        raise SpoolError(f"{folder}: no node has run here yet")
    try:
        database = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)
    except sqlite3.Error as error:
        raise SpoolError(f"{path}: cannot be opened ({error})") from error
    try:
        with contextlib.suppress(sqlite3.Error):
            check_format(database, path)
    except SpoolError:
        database.close()
        raise
    return database


def check_storage(folder: Path) -> None:
    """Refuse a node's folder of another version."""
    if (folder / "spool.db").is_file():
        open_read_only(folder).close()


def _this_boot() -> bytes:
    """Return the kernel's mark of this start; where there is none, every start of a node may follow a power cut."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return secrets.token_bytes(16)


def _open_database(path: Path) -> sqlite3.Connection:
    # Transactions are ours to begin and end; threads take turns (one thread of the service does all storage).
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    path.chmod(0o600)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    # When the log is emptied it is also wiped, which SQLite does not do.
    database.execute("PRAGMA wal_autocheckpoint=0")
    # Deleted rows are overwritten: a stolen disk shows no earlier state. Whole pages are when the log is wiped.
    database.execute("PRAGMA secure_delete=FAST")
    return database


@contextmanager
def _as_spool_error() -> Iterator[None]:
    # Without the name of the file: that of a model, in a log with the time, would tell that this node has trained.
    try:
        yield
    except VeilwalkError:
        raise
    except OSError as error:
        raise SpoolError(error.errno, f"storage: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise SpoolError(f"storage: {error}") from error


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
    # A reader of the database is not waited for.
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
