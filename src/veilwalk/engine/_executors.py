"""Pools of workers: processes of this machine with one thread each, and the clusters of Ray.

A process that is killed loses no finished job. A cluster schedules, retries and moves data by itself.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from veilwalk.core.errors import TransportError
from veilwalk.core.rooms import import_extra
from veilwalk.engine._engines import WorkerPool
from veilwalk.engine._jobs import ONE_THREAD, SharedFile, call_job, use_one_thread

# A first job that takes longer than its kernels could is no longer waited for.
_COMPILING_S = 60.0
# How often a job is begun again whose worker or machine was lost: any number of times is right, for ever is not.
_RETRIES = 10


class _OneThread(SpawnProcess):
    """A process whose libraries are told, before they are loaded, to take one thread.

    It never hears Ctrl-C, not even while it starts: the process that hands out the jobs ends it.
    """

    def start(self) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(ONE_THREAD)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
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
        return ProcessPoolExecutor(self._workers, mp_context=self._context, initializer=use_one_thread)

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

    def give_up(self, promise: Future[Any]) -> None:
        """Drop a job, and with it the processes, one of which may be at it.

        Alone it is not cancelled: Python's pool fails in a thread of its own if a process dies after that.
        """
        if not promise.done():
            self.renew()

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


class RayExecutor(WorkerPool, Executor):
    """Jobs on a Ray cluster: the one at ``address``, the one that runs here, or one made for this purpose.

    A cluster that this process is already connected to is used as it is, and left as it was.
    """

    def __init__(self, address: str | None = None) -> None:
        self._ray = ray = import_extra("ray", "ray")
        self._is_own = not ray.is_initialized()
        if self._is_own:
            try:
                ray.init(
                    address=address,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    runtime_env={"env_vars": ONE_THREAD},
                )
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise TransportError(f"no Ray cluster at {address or 'this machine'}: {reason}") from error
        self._remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)
        self._refs: dict[Future[Any], Any] = {}

    @property
    def workers(self) -> int:
        """How many jobs the cluster does at a time, as far as it is known now."""
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call; what was shared is fetched by the worker."""
        ref = self._remote.remote(fn, *args, **kwargs)
        promise: Future[Any] = Future()
        self._refs[promise] = ref
        promise.set_running_or_notify_cancel()
        ref.future().add_done_callback(lambda remote: self._pass_on(promise, remote))
        return promise

    def _pass_on(self, promise: Future[Any], remote: Future[Any]) -> None:
        self._refs.pop(promise, None)
        error = remote.exception()
        if error is None:
            promise.set_result(remote.result())
        else:
            # What the job itself raised, without Ray's wrapping of it.
            promise.set_exception(getattr(error, "cause", None) or error)

    def give_up(self, promise: Future[Any]) -> None:
        """Let the cluster drop a job that nobody waits for any more."""
        ref = self._refs.get(promise)
        if ref is not None:
            self._ray.cancel(ref, force=True)

    def share(self, common: tuple[Any, ...]) -> Any:
        """Put what all jobs need into the cluster, once."""
        return self._ray.put(common)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Leave the cluster; jobs in hand are given up."""
        del wait, cancel_futures
        if self._is_own:
            self._ray.shutdown()


def _call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)
