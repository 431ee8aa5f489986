"""Workers that are processes of this machine, each with one thread; one that is killed loses no finished job."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from veilwalk.engine._engines import WorkerPool
from veilwalk.engine._worker import ONE_THREAD, SharedFile, call_job, start_worker

# A first job that takes longer than its kernels could is no longer waited for.
_COMPILING_S = 60.0


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


class ProcessExecutor(WorkerPool, Executor):
    """A pool of ``workers`` processes that begins anew when one of them is killed."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._folder = tempfile.TemporaryDirectory(prefix="veilwalk-")
        self._shared = 0
        self._compiled: set[Callable[..., Any]] = set()
        self._pool = self._start_pool()

    @property
    def workers(self) -> int:
        """How many processes there are."""
        return self._workers

    def _start_pool(self) -> ProcessPoolExecutor:
        self._context = _Context()
        return ProcessPoolExecutor(self._workers, mp_context=self._context, initializer=start_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call; the first job of a function is done alone, so that one process compiles its kernels."""
        promise = self._pool.submit(fn, *args, **kwargs)
        function = args[1] if fn is call_job else fn
        if self._workers > 1 and function not in self._compiled:
            self._compiled.add(function)
            wait_for([promise], timeout=_COMPILING_S)
        return promise

    def share(self, common: tuple[Any, ...]) -> SharedFile:
        """Put what all jobs need where every worker reads it once."""
        path = Path(self._folder.name) / str(self._shared)
        self._shared += 1
        path.write_bytes(pickle.dumps(common, protocol=pickle.HIGHEST_PROTOCOL))
        return SharedFile(str(path))

    def renew(self) -> bool:
        """Begin anew, after a worker was killed."""
        self._terminate()
        self._pool = self._start_pool()
        return True

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End the workers: when they have done what is in hand, or at once where that is cancelled."""
        if cancel_futures:
            self._terminate()
        self._pool.shutdown(wait=wait)
        self._folder.cleanup()

    def _terminate(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._context.started:
            if process.is_alive():
                process.terminate()
