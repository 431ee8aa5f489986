"""Engines by name: where jobs are done, in one word on a command line or in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from veilwalk.core.errors import InvalidParameterError

#: How an engine is written.
ENGINES = "serial, process, process:N, ray, ray://HOST:PORT or dask://HOST:PORT"
#: What ``executor=`` takes: any executor, the name of an engine, or None for this process with all its threads.
Engine = Executor | str | None


@contextmanager
def open_engine(engine: Engine) -> Iterator[Executor | None]:
    """Yield an executor for the time of a computation; one that was given is passed on, and left open.

    Example:
        >>> with open_engine("serial") as executor:
        ...     print(executor)
        None
    """
    if not isinstance(engine, str):
        yield engine
        return
    executor = _made(engine)
    try:
        yield executor
    except BaseException:
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        raise
    if executor is not None:
        executor.shutdown()


def _made(text: str) -> Executor | None:
    match re.fullmatch(r"(serial|process|ray)|process:(\d+)|(ray|dask)://(\S+:\d+)", text):
        case None:
            raise InvalidParameterError("engine", text, ENGINES)
        case found if found[1] == "serial":
            return None
        case found if found[1] == "process" or found[2]:
            from veilwalk.engine._process import ProcessExecutor

            workers = int(found[2]) if found[2] else len(os.sched_getaffinity(0))
            if workers < 1:
                raise InvalidParameterError("engine", text, "process:N with N >= 1")
            return ProcessExecutor(workers)
        case found if found[3] == "dask":
            from veilwalk.engine._dask import DaskExecutor

            return DaskExecutor(found[4])
        case found:
            from veilwalk.engine._ray import RayExecutor

            return RayExecutor(text if found[3] else None)
