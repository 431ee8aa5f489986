"""The disk as the spool sees it: a folder of files and one database, in steps that a power cut may separate.

A file is safe after its own ``sync`` and, where its name is new, ``sync_folder``. A transaction is safe when it is
committed with ``durable``; otherwise it is safe when a later durable one is. Tests put a disk in this place that
forgets whatever was not made safe.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from veilwalk.core.errors import SpoolError
from veilwalk.core.locks import lock_file
from veilwalk.node.members import make_private_directory
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool._salvage import open_or_mend

MESSAGES = "messages"


class Disk(Protocol):
    """What the spool needs of a disk."""

    def write(self, name: str, data: Bytes) -> None:
        """Write a file: a new one, or over one whose content nobody needs any more."""
        ...

    def sync(self, name: str) -> None:
        """Make the content of a file safe."""
        ...

    def sync_folder(self) -> None:
        """Make all names safe."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        ...

    def remove(self, name: str) -> None:
        """Forget a file; it need not be there."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files."""
        ...

    @property
    def database(self) -> sqlite3.Connection:
        """The database, for reading."""
        ...

    @property
    def boot(self) -> bytes:
        """Which start of the machine this is: while it is the same, nothing that was committed is forgotten."""
        ...

    def transaction(self, *, durable: bool = True) -> AbstractContextManager[sqlite3.Connection]:
        """Return a context in which the database changes as a whole or not at all."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


class FolderDisk:
    """A folder of the real disk, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        # Models lie here in plain.
        make_private_directory(folder)
        try:
            self._files = folder / MESSAGES
            self._files.mkdir(mode=0o700, exist_ok=True)
            self._lock = lock_file(folder / "lock")
            self._folder = os.open(self._files, os.O_RDONLY | os.O_DIRECTORY)
            #: Whether the database was damaged, and is a new one with what could be read of the old.
            self.database, self.mended = open_or_mend(folder / "spool.db", _open_database)
        except BlockingIOError:
            raise SpoolError(f"{folder}: another node runs with this folder") from None
        except OSError as error:
            raise SpoolError(f"{folder}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise SpoolError(f"{folder}: the database cannot be opened ({error})") from error
        self._durable = True
        self.boot = _this_boot()

    def write(self, name: str, data: Bytes) -> None:
        """Write a file: a new one, or over one whose content nobody needs any more."""
        with _as_spool_error(name):
            # Not truncated first: a file of the same length keeps its blocks, and its sync needs no journal.
            handle = os.open(self._files / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                if os.fstat(handle).st_size != len(data):
                    os.ftruncate(handle, len(data))
            finally:
                os.close(handle)

    def sync(self, name: str) -> None:
        """Make the content of a file safe."""
        with _as_spool_error(name):
            handle = os.open(self._files / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(handle)
            finally:
                os.close(handle)

    def sync_folder(self) -> None:
        """Make all names safe."""
        with _as_spool_error("folder"):
            os.fsync(self._folder)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with _as_spool_error(name):
            return (self._files / name).read_bytes()

    def remove(self, name: str) -> None:
        """Forget a file; it need not be there."""
        with _as_spool_error(name):
            (self._files / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Return the names of all files."""
        with _as_spool_error("folder"):
            return [path.name for path in self._files.iterdir()]

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Return a context in which the database changes as a whole or not at all."""
        with _as_spool_error("database"):
            if durable != self._durable:
                # NORMAL leaves the write-ahead log to be synced with the next FULL commit: order is kept.
                self.database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            self.database.execute("BEGIN IMMEDIATE")
        try:
            yield self.database
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        with _as_spool_error("database"):
            try:
                self.database.execute("COMMIT")
            except sqlite3.Error:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Let go of database, folder and lock."""
        self.database.close()
        os.close(self._folder)
        os.close(self._lock)


def open_read_only(folder: Path) -> sqlite3.Connection:
    """Return the database of a node's folder for looking at, whether the node runs or not."""
    path = folder / "spool.db"
    if not path.is_file():
        raise SpoolError(f"{folder}: no node has run here yet")
    try:
        return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)
    except sqlite3.Error as error:
        raise SpoolError(f"{path}: cannot be opened ({error})") from error


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
    # What was deleted is overwritten: a stolen disk shows no earlier state.
    database.execute("PRAGMA secure_delete=ON")
    return database


@contextmanager
def _as_spool_error(name: str) -> Iterator[None]:
    try:
        yield
    except SpoolError:
        raise
    except OSError as error:
        raise SpoolError(error.errno, f"storage of {name.partition('.')[0]}: {error.strerror or error}") from error
    except sqlite3.Error as error:
        raise SpoolError(f"storage of {name}: {error}") from error
