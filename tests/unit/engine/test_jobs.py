"""Jobs on any executor: the same results in the same order, none that was finished is lost."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers import jobs as work

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.engine import JobFailure, JobStore, iter_jobs, open_engine, run_jobs
from veilwalk.engine._engines import WorkerPool
from veilwalk.engine._jobs import call_job
from veilwalk.engine._store import encode_result

WEIGHTS = np.linspace(0.1, 1.0, 1000)
WHAT = {"kind": "test"}


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor | None]:
    """Two processes."""
    with open_engine("process:2") as executor:
        yield executor


def test_the_engine_has_no_say_in_the_result(pool: Executor) -> None:
    """Here, in threads of somebody's own executor, in processes: the same bytes."""
    here = run_jobs(work.weighed, range(20), common=(WEIGHTS,))
    with ThreadPoolExecutor(3) as threads:
        there = run_jobs(work.weighed, range(20), common=(WEIGHTS,), executor=threads)
        assert encode_result(there) == encode_result(here)
    there = run_jobs(work.weighed, range(20), common=(WEIGHTS,), executor=pool)
    assert encode_result(there) == encode_result(here)
    assert [one["job"] for one in here] == list(range(20))


def test_linear_algebra_has_the_same_bits_here_and_there(pool: Executor) -> None:
    """With all threads here and one there the last bits would differ, on any machine of several cores."""
    here, there = (run_jobs(work.solved, range(3), executor=executor) for executor in (None, pool))
    assert encode_result(there) == encode_result(here)


def test_a_process_has_one_thread(pool: Executor) -> None:
    """Of numba and of BLAS, while this process has all."""
    assert run_jobs(work.threads, [0, 1], executor=pool) == [(1, "1")] * 2


def test_a_kernel_is_compiled_once_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job is done alone and compiles; the other worker takes the kernel from the cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    with open_engine("process:2") as executor:
        misses_by_worker = dict(run_jobs(work.compile_kernel, range(6), common=(str(tmp_path),), executor=executor))
    assert sorted(misses_by_worker.values()) == [0, 1]


def test_finished_jobs_are_found_again_on_another_engine(pool: Executor, tmp_path: Path) -> None:
    """A run that stopped in the middle goes on; what was done is not done again."""
    store = JobStore(tmp_path / "store")
    options: dict[str, Any] = {"common": (str(tmp_path), 0.0), "store": store, "what": WHAT}
    running = iter_jobs(work.noted, range(10), **options)
    assert [next(running) for _ in range(4)] == [0, 1, 4, 9]
    running.close()
    assert run_jobs(work.noted, range(10), executor=pool, **options) == [job * job for job in range(10)]
    assert [(tmp_path / str(job)).read_text() for job in range(10)] == ["done\n"] * 10


def test_a_killed_worker_loses_no_finished_job(tmp_path: Path) -> None:
    """The pool begins anew, and hands out only what was lost."""
    store = JobStore(tmp_path / "store")
    with open_engine("process:1") as executor:
        found = run_jobs(work.killed_once, range(5), common=(str(tmp_path),), executor=executor, store=store, what=WHAT)
    assert found == [job * job for job in range(5)]
    assert (tmp_path / "killed").exists()
    assert [(tmp_path / str(job)).read_text() for job in range(5)] == ["done\n"] * 5


def test_an_interrupt_keeps_what_is_finished_out_of_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job 0 is slow; those behind it are done, and in the store, when somebody stops waiting."""
    store, gate = JobStore(tmp_path), threading.Event()

    def slow_first(job: int) -> int:
        return job if job or gate.wait(10) else -1

    def interrupted(promises: list[Future[int]], **_: object) -> None:
        while sum(not promise.done() for promise in promises) > 1:
            time.sleep(0.01)
        gate.set()
        raise KeyboardInterrupt

    monkeypatch.setattr("veilwalk.engine._jobs.wait", interrupted)
    with ThreadPoolExecutor(2) as threads, pytest.raises(KeyboardInterrupt):
        run_jobs(slow_first, [0, 1, 2], executor=threads, store=store, what=WHAT)
    assert [store.load(WHAT, job) for job in (1, 2)] == [1, 2]


def test_few_jobs_are_handed_out_ahead() -> None:
    """A long list is not copied into the executor at once."""
    asked: list[int] = []

    def coming() -> list[int]:
        class Watched(list[int]):
            def __iter__(self) -> Iterator[int]:
                for number in range(10_000):
                    asked.append(number)
                    yield number

        return Watched(range(10_000))

    class TwoThreads(ThreadPoolExecutor):
        workers = 2

        def share(self, common: tuple[Any, ...]) -> tuple[Any, ...]:
            return common

        def renew(self) -> bool:
            return False

        def give_up(self, promise: Future[Any]) -> None:
            promise.cancel()

    with TwoThreads(2) as threads:
        assert isinstance(threads, WorkerPool)
        running = iter_jobs(abs, coming(), executor=threads)
        assert next(running) == 0
        assert len(asked) <= 2 * 2 * 8 + 1
        running.close()


@pytest.mark.parametrize("engine", [None, "pool"])
def test_a_failed_job_is_raised_or_kept(pool: Executor, engine: str | None) -> None:
    """With its own error, whole, also from another process."""
    executor = pool if engine else None
    with pytest.raises(InvalidParameterError, match="job = 1: must be even"):
        run_jobs(work.refused, range(4), executor=executor)
    kept = run_jobs(work.refused, range(4), executor=executor, keep_failures=True)
    assert kept == [0, JobFailure("job = 1: must be even"), 2, JobFailure("job = 3: must be even")]


def test_workers_of_another_version_are_refused() -> None:
    """They would give other results."""
    with pytest.raises(ConfigError, match="install the same"):
        call_job(("elsewhere:1", "0.0.0"), work.refused, (), 0)


def test_a_store_needs_a_name_for_what_is_computed(tmp_path: Path) -> None:
    """Else two computations would find each other's jobs."""
    with pytest.raises(InvalidParameterError, match="what"):
        run_jobs(work.refused, [0], store=JobStore(tmp_path))


@pytest.mark.parametrize("text", ["", "procces", "process:", "process:0", "process:-1", "ray:1", "dask", "dask://a:1"])
def test_unknown_engines_are_refused(text: str) -> None:
    """In one line that lists those there are."""
    with pytest.raises(InvalidParameterError, match="engine"), open_engine(text):
        pass


@pytest.mark.parametrize(("engine", "module"), [("ray", "ray")])
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, engine: str, module: str) -> None:
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'veilwalk\["), open_engine(engine):
        pass


def test_jobs_that_are_given_up_end_with_their_processes() -> None:
    """No thread of the pool fails, which pytest would tell, and the pool does the next jobs."""
    with open_engine("process:2") as executor:
        running = iter_jobs(work.pause, [0.0, 600.0, 600.0, 600.0, 600.0, 600.0], executor=executor)
        assert next(running) == 0.0
        begin = time.monotonic()
        running.close()
        assert run_jobs(work.pause, [0.0, 0.0], executor=executor) == [0.0, 0.0]
    assert time.monotonic() - begin < 60
