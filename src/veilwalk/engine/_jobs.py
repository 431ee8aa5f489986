"""Does the jobs of a long computation: the result of a job depends on the job, never on the worker or the time.

Results come in the order of the jobs, so that a sum over them has the same bits on any engine. Few jobs are pending out
ahead; finished ones are stored at once where there is a store.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from veilwalk.core.errors import ConfigError, InvalidParameterError, VeilwalkError, WorkerError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.version import __version__
from veilwalk.engine._engines import PlainPool, WorkerPool
from veilwalk.engine._store import JobStore

# Results that wait for their turn behind a slow job, for each job pending out ahead.
_BUFFERED = 8
_NO_MORE = object()
# How often workers may die before it is taken for the job's own fault.
_RENEWALS = 5
#: How many threads libraries may take, by the names they ask for.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class JobFailure:
    """What stands in for the result of a job that failed, where failures are kept."""

    error: str


def run_jobs(function: Callable[..., Any], jobs: Sequence[Any], **options: Any) -> list[Any]:
    """Return the results of all jobs, in their order; takes the arguments of :func:`iter_jobs`."""
    return list(iter_jobs(function, jobs, **options))


def iter_jobs(
    function: Callable[..., Any],
    jobs: Sequence[Any],
    *,
    common: tuple[Any, ...] = (),
    executor: Executor | None = None,
    store: JobStore | None = None,
    what: Mapping[str, Any] | None = None,
    keep_failures: bool = False,
    stage: str = "jobs",
    progress: Progress = silent,
) -> Generator[Any, None, None]:
    """Do ``function(*common, job)`` for every job and yield the results in the order of the jobs.

    Args:
        function: What to do, a function that other processes can import; the same job gives the same result again.
        jobs: What tells one job from the others, plain data.
        common: What all jobs need, sent once where the executor can do that.
        executor: Any executor of ``concurrent.futures``; None does the jobs here, one after the other.
        store: Where finished jobs are kept, and found again.
        what: What is computed, as plain data: with the job it names the file. Needed with a store.
        keep_failures: Yield a :class:`JobFailure` for a job that fails, instead of raising its error.
        stage: What ``progress`` calls this.
        progress: Told after each job.

    An error or an interrupt ends it: jobs in hand are given up, finished ones stay in the store.
    """
    if store is not None and what is None:
        raise InvalidParameterError("what", what, "given with a store: it names the files")
    batch = _JobBatch(function, common, store, what or {}, keep_failures)
    if executor is None:
        results = batch.run_here(jobs)
    else:
        results = batch.run_on(executor if isinstance(executor, WorkerPool) else PlainPool(executor), jobs)
    for done, result in enumerate(results, start=1):
        progress(stage, done, len(jobs), "jobs")
        yield result


@dataclass
class _PendingJob:
    """A job with its result, or with the promise of it; a result that is None has a promise."""

    job: Any
    result: Any = None
    promise: Future[Any] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is still to come."""
        return self.promise is not None and not self.promise.done()

    @property
    def is_broken(self) -> bool:
        """Whether its worker died."""
        return self._ended_with(BrokenExecutor)

    @property
    def has_succeeded(self) -> bool:
        """Whether it came without an error."""
        return self._ended_with(type(None))

    def _ended_with(self, error: type) -> bool:
        promise = self.promise
        if promise is None or not promise.done() or promise.cancelled():
            return False
        return isinstance(promise.exception(), error)


def _count_running(pending: deque[_PendingJob]) -> int:
    return sum(entry.is_running for entry in pending)


@dataclass
class _JobBatch:
    """The jobs of one call, and where their results are stored."""

    function: Callable[..., Any]
    common: tuple[Any, ...]
    store: JobStore | None
    what: Mapping[str, Any]
    keep_failures: bool
    renewals: int = field(default=0)

    def run_here(self, jobs: Sequence[Any]) -> Iterator[Any]:
        """Do the jobs in this process, with all its threads."""
        for job in jobs:
            stored = self._load(job)
            yield self._take(job, partial(self._call, job)) if stored is None else stored

    def _call(self, job: Any) -> Any:
        with one_blas_thread():
            return self.function(*self.common, job)

    def run_on(self, pool: WorkerPool, jobs: Sequence[Any]) -> Iterator[Any]:
        """Let the workers of ``pool`` do the jobs."""
        ahead = 2 * pool.workers
        common = pool.share(self.common)
        pending: deque[_PendingJob] = deque()
        coming = iter(jobs)
        try:
            while True:
                while _count_running(pending) < ahead and len(pending) < _BUFFERED * ahead:
                    job = next(coming, _NO_MORE)
                    if job is _NO_MORE:
                        break
                    pending.append(_PendingJob(job, self._load(job)))
                    if pending[-1].result is None:
                        pending[-1].promise = self._submit(pool, common, job)
                if not pending:
                    return
                self._store_finished(pending)
                first = pending[0]
                if first.is_running:
                    promises = [entry.promise for entry in pending if entry.promise and entry.is_running]
                    wait(promises, return_when=FIRST_COMPLETED)
                elif first.is_broken:
                    self._renew(pool, common, pending)
                else:
                    pending.popleft()
                    yield first.result if first.promise is None else self._take(first.job, first.promise.result)
        finally:
            self._store_finished(pending)
            for entry in pending:
                if entry.promise is not None:
                    pool.give_up(entry.promise)

    def _submit(self, pool: WorkerPool, common: Any, job: Any) -> Future[Any]:
        try:
            return pool.submit(call_job, (process_name(), __version__), self.function, common, job)
        except BrokenExecutor as error:
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken

    def _store_finished(self, pending: deque[_PendingJob]) -> None:
        """Store what is finished, though its turn has not come: an interrupt loses none of it."""
        if self.store is None:
            return
        for entry in pending:
            if entry.promise is not None and entry.has_succeeded:
                entry.result, entry.promise = entry.promise.result(), None
                self.store.save(self.what, entry.job, entry.result)

    def _renew(self, pool: WorkerPool, common: Any, pending: deque[_PendingJob]) -> None:
        """Hand out again what was lost with a worker; a pool that cannot begin anew is given up."""
        self.renewals += 1
        if self.renewals > _RENEWALS or not pool.renew():
            why = "too little memory, a job that kills them, or a script without if __name__ == '__main__'"
            raise WorkerError(f"workers died {self.renewals} times: {why}")
        for entry in pending:
            if entry.promise is not None and (entry.is_running or entry.is_broken):
                entry.promise = self._submit(pool, common, entry.job)

    def _load(self, job: Any) -> Any:
        return None if self.store is None else self.store.load(self.what, job)

    def _take(self, job: Any, get_result: Callable[[], Any]) -> Any:
        """Return a result and store it; or what stands in for it, where failures are kept."""
        try:
            result = get_result()
        except BrokenExecutor:
            raise
        except Exception as error:
            if not self.keep_failures:
                raise
            message = str(error) if isinstance(error, VeilwalkError) else f"{type(error).__name__}: {error}"
            return JobFailure(" ".join(message.split()))
        if self.store is not None:
            self.store.save(self.what, job, result)
        return result


def process_name() -> str:
    """Return the name of this process among those of all machines."""
    return f"{socket.gethostname()}:{os.getpid()}"


def call_job(about: tuple[str, str], function: Callable[..., Any], common: Any, job: Any) -> Any:
    """Do one job; ``about`` names the process that asks and its version: another version would give other results."""
    asker, version = about
    if version != __version__:
        raise ConfigError(f"this worker has veilwalk {__version__}, its caller {version}: install the same on all")
    if asker != process_name():
        use_one_thread()
    with one_blas_thread():
        return function(*(_read_shared(common.path) if isinstance(common, SharedFile) else common), job)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let linear algebra use one thread for a while: with several its last bits depend on how many there are.

    Kernels of numba are not touched: what they give does not depend on threads.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def use_one_thread() -> None:
    """Let the kernels of this process use one thread."""
    import numba

    numba.set_num_threads(1)


@dataclass(frozen=True)
class SharedFile:
    """What all jobs share, in a file of this machine that each worker reads once."""

    path: str


@lru_cache(maxsize=2)
def _read_shared(path: str) -> tuple[Any, ...]:
    return tuple(pickle.loads(Path(path).read_bytes()))  # noqa: S301  (the process that hands out the jobs wrote it)
