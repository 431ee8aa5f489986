"""Workers that are processes of this machine, each with one thread; one that is killed loses no finished job."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from veilwalk.engine._worker import ONE_THREAD, begin


class _OneThread(SpawnProcess):
    """A process whose libraries are told, before they are loaded, to take one thread."""

    def start(self) -> None:
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(ONE_THREAD)
        try:
            super().start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


class _Context(SpawnContext):
    """Processes that are not forked: a process whose threads have begun to work must not be."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **named: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Return a process that is known here."""
        self.started.append(_OneThread(*arguments, **named))
        return self.started[-1]


@dataclass(frozen=True)
class _InFile:
    """What all jobs share, in a file that each worker reads once."""

    path: str

    def open(self) -> tuple[Any, ...]:
        return _read(self.path)


@lru_cache(maxsize=2)
def _read(path: str) -> tuple[Any, ...]:
    return tuple(pickle.loads(Path(path).read_bytes()))  # noqa: S301  see above


class ProcessExecutor(Executor):
    """A pool of ``workers`` processes that begins anew when one of them is killed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._folder = tempfile.TemporaryDirectory(prefix="veilwalk-")
        self._shared = 0
        self._pool = self._begun()

    def _begun(self) -> ProcessPoolExecutor:
        self._context = _Context()
        return ProcessPoolExecutor(self.workers, mp_context=self._context, initializer=begin)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call."""
        return self._pool.submit(fn, *args, **kwargs)

    def share(self, common: tuple[Any, ...]) -> _InFile:
        """Put what all jobs need where every worker reads it once."""
        path = Path(self._folder.name) / str(self._shared)
        self._shared += 1
        path.write_bytes(pickle.dumps(common, protocol=pickle.HIGHEST_PROTOCOL))
        return _InFile(str(path))

    def renew(self) -> None:
        """Begin anew, after a worker was killed."""
        self._end()
        self._pool = self._begun()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End the workers: when they have done what is in hand, or at once where that is cancelled."""
        if cancel_futures:
            self._end()
        self._pool.shutdown(wait=wait)
        self._folder.cleanup()

    def _end(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._context.started:
            if process.is_alive():
                process.terminate()
