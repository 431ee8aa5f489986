"""Opens engines by name, and says what an engine offers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.validate import refuse_removed

#: How an engine is written.
ENGINES = "serial, process, process:N, ray or ray://HOST:PORT"
#: What ``executor=`` takes: any executor, the name of an engine, or None for this process with all its threads.
Engine = Executor | str | None


# Workers supposed of an executor that does not say how many it has.
_SUPPOSED_WORKERS = 128


@runtime_checkable
class WorkerPool(Protocol):
    """What an engine offers beyond an executor of ``concurrent.futures``; an executor without it counts as plain."""

    @property
    def workers(self) -> int:
        """How many jobs are done at a time, as far as it is known now."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call."""

    def share(self, common: tuple[Any, ...]) -> Any:
        """Send what all jobs need to the workers, once; return what stands for it in a call."""
        return common

    def renew(self) -> bool:
        """Begin anew after a worker was killed; False where that cannot be."""
        return False

    def give_up(self, promise: Future[Any]) -> None:
        """Drop a job whose result is not needed any more."""
        promise.cancel()


class PlainPool(WorkerPool):
    """Any executor as a pool: what all jobs need goes along with each, and lost workers stay lost."""

    workers = _SUPPOSED_WORKERS

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call."""
        return self._executor.submit(fn, *args, **kwargs)


@contextmanager
def open_engine(engine: Engine) -> Iterator[Executor | None]:
    """Yield an executor for the time of a computation; one that was given is passed on, and left open."""
    if not isinstance(engine, str):
        if engine is not None and not hasattr(engine, "submit"):
            raise InvalidParameterError("executor", engine, "an executor, or the name of an engine")
        yield engine
        return
    executor = _create_executor(engine)
    try:
        yield executor
    except BaseException:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        raise
    if executor is not None:
        executor.shutdown()


def _create_executor(text: str) -> Executor | None:
    from veilwalk.engine import _executors

    match re.fullmatch(r"(serial|process|ray)|process:(\d+)|(ray)://\S+:\d+", text):
        case None:
            refuse_removed("engine", text.partition(":")[0])
            raise InvalidParameterError("engine", text, ENGINES)
        case parts if parts[1] == "serial":
            return None
        case parts if parts[1] == "process" or parts[2]:
            workers = int(parts[2]) if parts[2] else len(os.sched_getaffinity(0))
            if workers < 1:
                raise InvalidParameterError("engine", text, "process:N with N >= 1")
            return _executors.ProcessExecutor(workers)
        case parts:
            return _executors.RayExecutor(text if parts[3] else None)
