"""Files and tables of a node together: what is in the tables has its file, what is not has none."""

from __future__ import annotations

import errno
import hashlib
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from veilwalk.core.errors import SpoolError
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._register import Register
from veilwalk.node.spool._tables import ROUNDS, WALKS, Row, Stored, StoredModel, make_tables

_NAME_BYTES = 8
# Measured: below this a row in the write-ahead log is two to three times as fast as a file and a row.
INLINE_BYTES = 256 * 1024
# Files kept for the next messages: to write over one takes half as long as to make a new one and remove the old.
_FREE_FILES = 4
_PLAIN = "model-"


class DamageError(SpoolError):
    """Stored bytes are not those that were written, and never will be again."""


class Spool:
    """A node's custody on disk. Not safe for use by two threads at once."""

    def __init__(self, disk: FolderDisk, *, inline_bytes: int = INLINE_BYTES) -> None:
        self._disk = disk
        self._inline_bytes = inline_bytes
        # Files whose rows are gone, to be removed when that is safe on disk.
        self._trash: list[str] = []
        # Files that were stored, and that no row names yet.
        self._unnamed: set[str] = set()
        # Whether what the tables say is what is on the disk: not after a commit that failed.
        self._settled = True
        # Files that only such a commit names, and those that could not be removed.
        self._doubtful: list[str] = []
        # Files that no row needs and whose names are safe, to be written over.
        self._free: list[str] = []
        # Digests of files are worked out while the disk is busy with them.
        self._digests = ThreadPoolExecutor(1, thread_name_prefix="digest")
        with disk.transaction() as database:
            make_tables(database)
            register = Register(database)
            register.note_boot(disk.boot)
            #: Tells neighbours whether this is the disk that they know.
            self.incarnation = register.mark("incarnation") or secrets.token_bytes(_NAME_BYTES)
            register.set_mark("incarnation", self.incarnation)
        self._remove_orphans()

    @property
    def tables(self) -> Register:
        """The tables, to look at."""
        return Register(self._disk.database)

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Register]:
        """Return the tables in a transaction; without ``durable`` it may be undone by a power cut until a later one.

        Raises:
            SpoolError: Nothing has changed, and no file is left of what was stored for it.
        """
        self.settle()
        before, register, worked = set(self._unnamed), None, False
        try:
            with self._disk.transaction(durable=durable) as database:
                register = Register(database)
                yield register
                worked = True
        except BaseException:
            stored_now = (self._unnamed - before) | (self._unnamed & set(register.named_files if register else ()))
            self._unnamed -= stored_now
            self._settled = self._settled and not worked
            for name in sorted(stored_now):
                # Files that a commit has named which failed stay until there is another.
                self._doubtful.append(name) if worked else self._remove(name)
            raise
        self._unnamed.difference_update(register.named_files)
        self._trash += register.dropped_files
        if durable:
            for name in self._trash:
                self._let_go(name)
            self._trash.clear()

    def store(self, data: Bytes, *, digest: bytes | None = None, plain: bool = False) -> Stored:
        """Make bytes ready for a row: few are kept in it, which takes one sync of the disk; many go into a file.

        No row names that file until it is safe, so that it never shows half-written. Where it cannot be made so,
        nothing is left of it; nor if this is done within a transaction and that fails.

        Where it is known what their digest must be, that is ``digest``. Of ``plain`` bytes, which are not sealed, the
        file is removed, not kept for later, when they are needed no more.

        Raises:
            DamageError: They have another digest; nothing was kept.
            SpoolError: They could not be written; nothing was kept.
        """
        if len(data) <= self._inline_bytes:
            return Stored(digest=_checked(hashlib.sha256(data).digest(), digest), inline=bytes(data))
        self.settle()
        working = self._digests.submit(hashlib.sha256, data)
        known = bool(self._free) and not plain
        name = self._free.pop() if known else (_PLAIN if plain else "") + secrets.token_hex(_NAME_BYTES)
        try:
            self._disk.write(name, data)
            self._disk.sync(name)
            if not known:
                self._disk.sync_folder()
            stored = Stored(digest=_checked(working.result().digest(), digest), file=name)
        except SpoolError:
            self._remove(name)
            raise
        self._unnamed.add(name)
        return stored

    def settle(self) -> None:
        """After a commit that failed, make one that does not, before anything is done or said.

        A power cut may show that it was on the disk all the same: until another has taken its place nobody knows.

        Raises:
            SpoolError: It is still not known.
        """
        if self._settled or self._disk.database.in_transaction:
            return
        with self._disk.transaction() as database:
            database.execute("INSERT OR REPLACE INTO mark VALUES ('settled', randomblob(8))")
        self._settled = True
        doubtful, self._doubtful = self._doubtful, []
        for name in doubtful:
            self._remove(name)

    def discard(self, stored: Stored) -> None:
        """Remove a file that no row came to need."""
        if stored.file in self._unnamed:
            self._unnamed.remove(stored.file)
            self._remove(stored.file)

    def read(self, row: Row | StoredModel) -> bytes:
        """Return the bytes of a row.

        Raises:
            DamageError: They are gone, or are not what was written.
            SpoolError: They cannot be read now.
        """
        data = self.read_unchecked(row)
        _checked(hashlib.sha256(data).digest(), row.digest)
        return data

    def read_unchecked(self, row: Row | StoredModel) -> bytes:
        """Return the bytes of a row for a peer that checks the digest itself."""
        if row.file is None:
            return self.tables.inline(row)
        try:
            return self._disk.read(row.file)
        except SpoolError as error:
            if error.errno == errno.ENOENT:
                raise DamageError("a stored file is gone") from error
            raise

    def note_walks(self, walks: int, rounds: int = 1) -> None:
        """Note how many walks the run has and how often they end, for whoever looks at this disk."""
        if (walks, rounds) != (self.tables.walks_of_run, self.tables.rounds_of_run):
            with self.transaction() as register:
                register.set_mark(WALKS, str(walks).encode())
                register.set_mark(ROUNDS, str(rounds).encode())

    def tidy(self) -> None:
        """Leave nothing on disk that tells of what was, or when."""
        self._disk.tidy()

    def close(self) -> None:
        """Let go of the disk; everything is safe on it already."""
        self._digests.shutdown()
        self._disk.close()

    def _let_go(self, name: str) -> None:
        if len(self._free) < _FREE_FILES and not name.startswith(_PLAIN):
            self._free.append(name)
        else:
            self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove a file that no row needs; where that fails it is tried again, for all else is done already."""
        try:
            self._disk.remove(name)
        except SpoolError:
            self._doubtful.append(name)
            self._settled = False

    def _remove_orphans(self) -> None:
        """Remove what an interrupted write, or one whose row was never committed, has left."""
        with self.transaction() as register:
            needed = register.files()
        for name in self._disk.names():
            if name not in needed:
                self._disk.remove(name)


def _checked(digest: bytes, expected: bytes | None) -> bytes:
    if expected is not None and digest != expected:
        raise DamageError("these are not the bytes that were written, or announced: damaged")
    return digest
