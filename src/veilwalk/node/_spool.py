"""Files and tables of a node together: what is in the tables has its file, what is not has none."""

from __future__ import annotations

import errno
import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from veilwalk.core.errors import SpoolError
from veilwalk.node._disk import Bytes, Disk, write_safely
from veilwalk.node._ledger import Ledger
from veilwalk.node._tables import SCHEMA, Row, Stored, StoredModel

_NAME_BYTES = 8
# Measured: below this a row in the write-ahead log is two to three times as fast as a file and a row.
INLINE_BYTES = 256 * 1024


class DamageError(SpoolError):
    """What is stored is not what was written, and never will be again."""


class Spool:
    """A node's custody on disk. Not safe for use by two threads at once."""

    def __init__(self, disk: Disk, *, inline_bytes: int = INLINE_BYTES) -> None:
        self._disk = disk
        self._inline_bytes = inline_bytes
        # Files whose rows are gone, to be removed when that is safe on disk.
        self._trash: list[str] = []
        with disk.transaction() as database:
            for statement in SCHEMA.split(";"):
                database.execute(statement)
            #: Tells neighbours whether this disk still knows what it sent them.
            self.incarnation = Ledger(database).incarnation(secrets.token_bytes(_NAME_BYTES))
        self._remove_orphans()

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Ledger]:
        """Return the tables in a transaction; without ``durable`` it may be undone by a power cut until a later one."""
        with self._disk.transaction(durable=durable) as database:
            ledger = Ledger(database)
            yield ledger
        self._trash += ledger.dropped_files
        if durable:
            for name in self._trash:
                self._disk.remove(name)
            self._trash.clear()

    def store(self, data: Bytes, *, digest: bytes | None = None) -> Stored:
        """Make bytes ready for a row: few are kept in it, which takes one sync of the disk; many go into a file.

        ``digest`` is theirs, where the caller has checked it already.
        """
        digest = hashlib.sha256(data).digest() if digest is None else digest
        if len(data) <= self._inline_bytes:
            return Stored(digest=digest, inline=bytes(data))
        name = secrets.token_hex(_NAME_BYTES)
        write_safely(self._disk, name, data)
        return Stored(digest=digest, file=name)

    def discard(self, stored: Stored) -> None:
        """Remove a file that no row came to need."""
        if stored.file is not None:
            self._disk.remove(stored.file)

    def read(self, row: Row | StoredModel) -> bytes:
        """Return the bytes of a row.

        Raises:
            DamageError: They are gone, or are not what was written.
            SpoolError: They cannot be read now.
        """
        data = self.read_unchecked(row)
        if hashlib.sha256(data).digest() != row.digest:
            raise DamageError("what is stored is not what was written: damaged")
        return data

    def read_unchecked(self, row: Row | StoredModel) -> bytes:
        """Return the bytes of a row for a peer that checks the digest itself."""
        if row.file is None:
            return Ledger(self._disk.database).inline(row)
        try:
            return self._disk.read(row.file)
        except SpoolError as error:
            if error.errno == errno.ENOENT:
                raise DamageError("a stored file is gone") from error
            raise

    def close(self) -> None:
        """Let go of the disk; everything is safe on it already."""
        self._disk.close()

    def _remove_orphans(self) -> None:
        """Remove what an interrupted write, or one whose row was never committed, has left."""
        with self.transaction() as ledger:
            needed = ledger.files()
        for name in self._disk.names():
            if name not in needed:
                self._disk.remove(name)
