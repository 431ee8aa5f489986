"""Kernels are compiled once a machine: of workers that need the same one, the first compiles and the others wait.

Numba keeps compiled kernels in files, but does not keep two processes from compiling the same one at the same time;
with as many workers as cores all of them would compile everything. Only workers do this, never a user's own process.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

# A worker that died lets go by itself; one that failed to compile, or was stopped, is not waited for any longer.
_PATIENCE_S = 120.0
_LOOK_S = 0.05


@cache
def compile_once() -> None:
    """From now on let whoever finds a kernel missing hold its lock until it is there."""
    from numba.core import caching, dispatcher

    cached: Any = caching.FunctionCache
    kernels: Any = dispatcher.Dispatcher
    load, save, compiled = cached.load_overload, cached.save_overload, kernels.compile
    held: dict[str, int] = {}

    def locked_load(self: Any, signature: Any, context: Any) -> Any:
        found = load(self, signature, context)
        place = _lock_of(self, signature)
        if found is not None or place in held:
            return found
        held[place] = _locked(place)
        # Whoever held it may have compiled just this.
        found = load(self, signature, context)
        if found is not None:
            os.close(held.pop(place))
        return found

    def releasing_save(self: Any, signature: Any, data: Any) -> None:
        try:
            save(self, signature, data)
        finally:
            release(self, signature)

    def release(kernel: Any, signature: Any) -> None:
        handle = held.pop(_lock_of(kernel, signature), None)
        if handle is not None:
            os.close(handle)

    def compile_or_release(self: Any, signature: Any) -> Any:
        try:
            return compiled(self, signature)
        except BaseException:
            # Numba tries types that do not fit before those that do: such a try saves nothing.
            if isinstance(self._cache, cached):
                release(self._cache, signature)
            raise

    cached.load_overload, cached.save_overload = locked_load, releasing_save
    kernels.compile = compile_or_release


def _locked(place: str) -> int:
    """Return a handle that holds the lock, or that gave up waiting for it: compiling twice does no harm."""
    handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
        else:
            break
    return handle


def _lock_of(kernel: Any, signature: Any) -> str:
    """Return the lock file of one kernel with one signature, in this user's own folder."""
    folder = Path(tempfile.gettempdir()) / f"veilwalk-compiling-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    function = kernel._py_func  # noqa: SLF001  it has no public name
    name = f"{kernel.cache_path}:{function.__module__}:{function.__qualname__}:{signature}"
    return str(folder / sha256(name.encode()).hexdigest()[:24])
