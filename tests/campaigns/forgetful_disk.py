"""A disk that loses power: what was not synced may be gone, whole or in part; one that is full; and three that lie."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from veilwalk.core.errors import SpoolError
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import FolderDisk

NEVER = 10**9


class PowerCutError(Exception):
    """The power went."""


@dataclass(slots=True)
class _File:
    content: bytes
    safe: bytes | None = None


class ForgetfulDisk(FolderDisk):
    """A disk in memory that keeps what was synced, and of the rest whatever chance will have it."""

    # No folder is opened: every method that reads or writes is below.
    def __init__(
        self, dice: random.Random, *, image: bytes | None = None, files: dict[str, bytes] | None = None
    ) -> None:
        self._dice = dice
        #: Another one after every cut.
        self.boot = dice.randbytes(8)
        self.steps_left = NEVER
        kept = {name: _File(data, data) for name, data in (files or {}).items()}
        self._names, self._safe_names = dict(kept), dict(kept)
        self.database = sqlite3.connect(":memory:", cached_statements=0, isolation_level=None)
        if image:
            self.database.deserialize(image)
        #: What the database may be after a cut: the last safe state first, then what was committed since.
        self._images = [image or b""]

    def write(self, name: str, data: Bytes) -> None:
        """Write a file; over an older one it is the same file, safe under its name and with what content, who knows."""
        self._step()
        file = self._names.setdefault(name, _File(b""))
        file.content, file.safe = bytes(data), None

    def sync(self, name: str) -> None:
        """Make the content of a file safe."""
        self._step()
        self._names[name].safe = self._names[name].content

    def sync_folder(self) -> None:
        """Make all names safe."""
        self._step()
        self._safe_names = dict(self._names)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        if name not in self._names:
            raise SpoolError(errno.ENOENT, f"storage of {name}: no such file")
        return self._names[name].content

    def remove(self, name: str) -> None:
        """Forget a file."""
        self._step()
        self._names.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all files."""
        return list(self._names)

    def tidy(self) -> None:
        """Do nothing: there are no times here, and no earlier states."""

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Return a context in which the database changes as a whole or not at all."""
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield self.database
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")
        image = self.database.serialize()
        if image != self._images[-1]:
            # Before the sync is over, the new state may or may not have reached the disk.
            self._images.append(image)
        self._step()
        if durable:
            self._images = [image]
        self._step()

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def after_cut(self) -> ForgetfulDisk:
        """Return the disk as it is found when the power is back."""
        files = {}
        for name in sorted({*self._names, *self._safe_names}):
            found = self._dice.choice((self._names.get(name), self._safe_names.get(name)))
            if self._names.get(name) is self._safe_names.get(name):
                found = self._names.get(name)
            if found is not None:
                files[name] = found.safe if found.safe is not None else self._torn(found.content)
        image = self._dice.choice(self._images)
        self.close()
        return type(self)(self._dice, image=image, files=files)

    def _torn(self, content: bytes) -> bytes:
        kept = self._dice.choice((0, len(content) // 2, len(content)))
        return content[:kept] + bytes(self._dice.choice((0, len(content) - kept)))

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise PowerCutError


class FullDisk(ForgetfulDisk):
    """A disk that is full, or fails, for some steps; a commit that failed may yet be found after a power cut."""

    # No folder is opened: every method that reads or writes is below.
    def __init__(
        self, dice: random.Random, *, image: bytes | None = None, files: dict[str, bytes] | None = None
    ) -> None:
        super().__init__(dice, image=image, files=files)
        #: Steps until it fails, and how many fail then.
        self.sound, self.failing = NEVER, 0
        self.code = errno.ENOSPC

    def write(self, name: str, data: Bytes) -> None:
        """Write a file; where there is no room, half of it."""
        try:
            self._step()
        except SpoolError:
            file = self._names.setdefault(name, _File(b""))
            file.content, file.safe = bytes(data[: len(data) // 2]), None
            raise
        file = self._names.setdefault(name, _File(b""))
        file.content, file.safe = bytes(data), None

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Return a context in which the database changes as a whole or not at all."""
        self._step()
        before = self._images[-1]
        try:
            with super().transaction(durable=durable):
                yield self.database
        except SpoolError:
            if not self.database.in_transaction and (failed := self.database.serialize()) != before:
                # The commit failed: it is undone for whoever runs, and may be on the disk all the same.
                self._images = [self._images[0], failed, before]
                self.database.deserialize(before)
            raise

    def _step(self) -> None:
        super()._step()
        self.sound -= 1
        if -self.failing <= self.sound < 0:
            raise SpoolError(self.code, f"storage: {os.strerror(self.code)}")


class UnsyncedDisk(ForgetfulDisk):
    """The mutant: it says that files are safe, and they are not."""

    def sync(self, name: str) -> None:
        """Do nothing."""
        del name
        self._step()


class LazyDisk(ForgetfulDisk):
    """The mutant that commits without waiting for the disk."""

    def transaction(self, *, durable: bool = True) -> Any:
        """Return a context whose end is not safe yet."""
        del durable
        return super().transaction(durable=False)


class BootlessDisk(ForgetfulDisk):
    """The mutant that does not know that the power was gone."""

    def after_cut(self) -> ForgetfulDisk:
        """Return the disk as it is found when the power is back, as if that had never been gone."""
        found = super().after_cut()
        found.boot = self.boot
        return found
