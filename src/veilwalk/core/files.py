"""Files of the user's own: locks that one process holds, the cache folder, and errors of the system in one line."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilwalk.core.errors import VeilwalkError


@contextmanager
def name_os_errors(kind: type[VeilwalkError], what: object) -> Iterator[None]:
    """Raise errors of the system as ``kind``, in one line that begins with ``what``; errors of our own pass."""
    try:
        yield
    except VeilwalkError:
        raise
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}") from None


def cache_folder() -> Path | None:
    """Return the user's cache folder, which need not exist; None for a user whom the machine does not know."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(home) / "veilwalk"


def lock_file(path: Path, *, wait: bool = False) -> int:
    """Return a handle that holds ``path`` until it is closed, or its process ends.

    Where another process holds it, wait, or raise BlockingIOError. The file stays when the lock is let go: removing it
    would let in two who wait for it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(handle)
        raise
    return handle


@contextmanager
def hold_file(path: Path) -> Iterator[None]:
    """Hold ``path`` while what is inside goes on, once no other process does; the file is removed afterwards.

    A process that comes between may go on at once: only for work that may be done twice.
    """
    handle = lock_file(path, wait=True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Return whether some process holds ``path``; raises as :func:`lock_file` where that cannot be seen."""
    if not path.exists():
        return False
    try:
        os.close(lock_file(path))
    except BlockingIOError:
        return True
    return False
