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


def lock_file(path: Path) -> int:
    """Return a handle that holds ``path`` until it is closed, or its process ends; BlockingIOError if another holds it.

    The file stays when the lock is let go: removing it would let in two who wait for it.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def is_locked(path: Path) -> bool:
    """Return whether some process holds ``path``; raises as :func:`lock_file` where that cannot be seen."""
    if not path.exists():
        return False
    try:
        os.close(lock_file(path))
    except BlockingIOError:
        return True
    return False
