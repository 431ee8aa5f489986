"""Jobs that other processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError


def weighed(weights: FloatArray, job: int) -> dict[str, Any]:
    """A float whose last bits depend on the order of a sum, and an array."""
    random = np.random.default_rng(job)
    return {"mean": float(random.random(1000) @ weights), "draws": random.integers(100, size=3), "job": job}


def noted(folder: str, seconds: float, job: int) -> int:
    """Leave a line for every time that a job is done."""
    time.sleep(seconds)
    with (Path(folder) / str(job)).open("a") as notes:
        notes.write("done\n")
    return job * job


def killed_once(folder: str, job: int) -> int:
    """Kill the worker that does job 2 for the first time."""
    mark = Path(folder) / "killed"
    if job == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return noted(folder, 0.0, job)


def refused(job: int) -> int:
    """Refuse odd jobs."""
    if job % 2:
        raise InvalidParameterError("job", job, "even")
    return job


def threads(_job: int) -> tuple[int, str | None]:
    """How many threads a job may take."""
    import numba

    return numba.get_num_threads(), os.environ.get("OMP_NUM_THREADS")


def compile_kernel(folder: str, job: int) -> tuple[int, int]:
    """Call a kernel; say which process this is, and how often it compiled the kernel.

    All jobs but the first, which is done alone, wait until a second worker has one.
    """
    from tests.helpers.small_kernel import total

    assert total(np.arange(10.0)) == 45.0
    Path(folder, f"worker-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while job and len(list(Path(folder).glob("worker-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return os.getpid(), sum(total.stats.cache_misses.values())


def solved(job: int) -> FloatArray:
    """Linear algebra that libraries divide among threads, which shows in the last bits."""
    random = np.random.default_rng(job)
    return np.asarray(np.linalg.solve(random.random((400, 400)), random.random(400)))


def pause(job: float) -> float:
    """Take as many seconds as the job says."""
    time.sleep(job)
    return job
