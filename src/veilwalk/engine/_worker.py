"""What runs where the jobs are: one thread a job, one compilation a machine. Imports nothing heavy before it must."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from veilwalk.core.errors import ConfigError
from veilwalk.core.version import __version__

#: How many threads libraries may take, by the names they ask for.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


def here() -> str:
    """Return the name of this process among those of all machines."""
    return f"{socket.gethostname()}:{os.getpid()}"


def call(about: tuple[str, str], function: Callable[..., Any], common: Any, job: Any) -> Any:
    """Do one job; ``about`` is who asked, and with which version: another one would give other results."""
    asker, version = about
    if version != __version__:
        raise ConfigError(f"this worker has veilwalk {__version__}, who asks has {version}: install the same on all")
    if asker != here():
        prepare()
    with one_blas_thread():
        return function(*_opened(common), job)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let linear algebra use one thread for a while: with several its last bits depend on how many there are.

    Kernels of numba are not touched: what they give does not depend on threads.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def prepare() -> None:
    """Let this process use one thread, and not compile what another process of this machine is compiling."""
    import numba

    from veilwalk.engine._compile_once import compile_once

    numba.set_num_threads(1)
    compile_once()


def begin() -> None:
    """Begin as a process of a pool: an interrupt is for whoever hands out the jobs, who then ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()


def _opened(common: Any) -> tuple[Any, ...]:
    """Return what all jobs share; what lies in a file of this machine is read once a process."""
    opened = common.open() if hasattr(common, "open") else common
    return tuple(opened)
