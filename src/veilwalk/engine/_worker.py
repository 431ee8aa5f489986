"""Runs where the jobs are done: one thread a job. Imports nothing heavy before it must."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from veilwalk.core.errors import ConfigError
from veilwalk.core.version import __version__

#: How many threads libraries may take, by the names they ask for.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


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


def start_worker() -> None:
    """Begin as a process of a pool; an interrupt is for the process that hands out the jobs, which ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_one_thread()


@dataclass(frozen=True)
class SharedFile:
    """What all jobs share, in a file of this machine that each worker reads once."""

    path: str


@lru_cache(maxsize=2)
def _read_shared(path: str) -> tuple[Any, ...]:
    return tuple(pickle.loads(Path(path).read_bytes()))  # noqa: S301  (the process that hands out the jobs wrote it)
