"""A long computation is a list of jobs: what a job gives depends on its number, never on who does it or when.

Results come in the order of the jobs, so that whoever adds them up adds in that order and gets the same bits on any
engine. Few jobs are handed out ahead; finished ones are kept at once where there is a store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from veilwalk.core.errors import InvalidParameterError, VeilwalkError, WorkerError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.version import __version__
from veilwalk.engine._store import JobStore
from veilwalk.engine._worker import call, here, one_blas_thread

# Jobs handed out ahead to an executor that does not say how many workers it has.
_AHEAD = 256
# Results that wait for their turn behind a slow job, for each job handed out ahead.
_BUFFERED = 8
_NO_MORE = object()
# How often workers may die before it is taken for the job's own fault.
_RENEWALS = 5


@dataclass(frozen=True)
class JobFailure:
    """What stands in for the result of a job that failed, where failures are kept."""

    error: str


def run_jobs(function: Callable[..., Any], jobs: Sequence[Any], **options: Any) -> list[Any]:
    """Return the results of all jobs, in their order; takes the arguments of :func:`iter_jobs`.

    Example:
        >>> run_jobs(pow, [1, 2, 3], common=(2,))
        [2, 4, 8]
    """
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
    hand = _Hand(function, common, store, what or {}, keep_failures)
    for done, result in enumerate(hand.here(jobs) if executor is None else hand.at(executor, jobs), start=1):
        progress(stage, done, len(jobs), "jobs")
        yield result


@dataclass
class _Handed:
    """A job with its result, or with the promise of it; a result that is None has a promise."""

    job: Any
    result: Any = None
    promise: Future[Any] | None = None

    @property
    def running(self) -> bool:
        """Whether it is still to come."""
        return self.promise is not None and not self.promise.done()

    @property
    def broken(self) -> bool:
        """Whether its worker died."""
        return self._ended(BrokenExecutor)

    @property
    def succeeded(self) -> bool:
        """Whether it came without an error."""
        return self._ended(type(None))

    def _ended(self, how: type) -> bool:
        promise = self.promise
        return (
            promise is not None and promise.done() and not promise.cancelled() and isinstance(promise.exception(), how)
        )


def _unfinished(handed: deque[_Handed]) -> int:
    return sum(one.running for one in handed)


@dataclass
class _Hand:
    """The jobs of one call, as they are handed out."""

    function: Callable[..., Any]
    common: tuple[Any, ...]
    store: JobStore | None
    what: Mapping[str, Any]
    keep_failures: bool
    renewals: int = field(default=0)

    def here(self, jobs: Sequence[Any]) -> Iterator[Any]:
        """Do the jobs in this process, with all its threads."""
        for job in jobs:
            found = self._kept(job)
            yield self._finished(job, partial(self._do, job)) if found is None else found

    def _do(self, job: Any) -> Any:
        with one_blas_thread():
            return self.function(*self.common, job)

    def at(self, executor: Executor, jobs: Sequence[Any]) -> Iterator[Any]:
        """Let ``executor`` do the jobs."""
        ahead = 2 * int(getattr(executor, "workers", 0)) or _AHEAD
        common = getattr(executor, "share", tuple)(self.common)
        handed: deque[_Handed] = deque()
        coming = iter(jobs)
        try:
            while True:
                while _unfinished(handed) < ahead and len(handed) < _BUFFERED * ahead:
                    job = next(coming, _NO_MORE)
                    if job is _NO_MORE:
                        break
                    handed.append(_Handed(job, self._kept(job)))
                    if handed[-1].result is None:
                        handed[-1].promise = self._submit(executor, common, job)
                if not handed:
                    return
                self._tidy(handed)
                first = handed[0]
                if first.running:
                    wait([one.promise for one in handed if one.promise and one.running], return_when=FIRST_COMPLETED)
                elif first.broken:
                    self._renew(executor, common, handed)
                else:
                    handed.popleft()
                    yield first.result if first.promise is None else self._finished(first.job, first.promise.result)
        finally:
            self._tidy(handed)
            give_up = getattr(executor, "give_up", Future.cancel)
            for one in handed:
                if one.promise is not None:
                    give_up(one.promise)

    def _submit(self, executor: Executor, common: Any, job: Any) -> Future[Any]:
        try:
            return executor.submit(call, (here(), __version__), self.function, common, job)
        except BrokenExecutor as error:
            broken: Future[Any] = Future()
            broken.set_exception(error)
            return broken

    def _tidy(self, handed: deque[_Handed]) -> None:
        """Keep what is finished, though its turn has not come: an interrupt loses none of it."""
        if self.store is None:
            return
        for one in handed:
            if one.promise is not None and one.succeeded:
                one.result, one.promise = one.promise.result(), None
                self.store.keep(self.what, one.job, one.result)

    def _renew(self, executor: Executor, common: Any, handed: deque[_Handed]) -> None:
        """Hand out again what was lost with a worker; an executor that cannot begin anew is given up."""
        self.renewals += 1
        renew = getattr(executor, "renew", None)
        if renew is None or self.renewals > _RENEWALS:
            why = "too little memory, a job that kills them, or a script without if __name__ == '__main__'"
            raise WorkerError(f"workers died {self.renewals} times: {why}")
        renew()
        for one in handed:
            if one.promise is not None and (one.running or one.broken):
                one.promise = self._submit(executor, common, one.job)

    def _kept(self, job: Any) -> Any:
        return None if self.store is None else self.store.found(self.what, job)

    def _finished(self, job: Any, result: Callable[[], Any]) -> Any:
        """Return a result and keep it; or what stands in for it, where failures are kept."""
        try:
            found = result()
        except BrokenExecutor:
            raise
        except Exception as error:
            if not self.keep_failures:
                raise
            told = str(error) if isinstance(error, VeilwalkError) else f"{type(error).__name__}: {error}"
            return JobFailure(" ".join(told.split()))
        if self.store is not None:
            self.store.keep(self.what, job, found)
        return found
