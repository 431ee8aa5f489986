"""Jobs by number on any executor: in this process, in processes, on Ray, on Dask; finished ones kept as files."""

from veilwalk.engine._engines import ENGINES, Engine, WorkerPool, open_engine
from veilwalk.engine._jobs import JobFailure, iter_jobs, run_jobs
from veilwalk.engine._njit import njit
from veilwalk.engine._store import JobStore
from veilwalk.engine._worker import one_blas_thread

__all__ = [
    "ENGINES",
    "Engine",
    "JobFailure",
    "JobStore",
    "WorkerPool",
    "iter_jobs",
    "njit",
    "one_blas_thread",
    "open_engine",
    "run_jobs",
]
