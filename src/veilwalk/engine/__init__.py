"""Jobs by number on any executor: in this process, in processes, on Ray; finished ones kept as files."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.engine._engines import Engine, open_engine
    from veilwalk.engine._jobs import JobFailure, iter_jobs, one_blas_thread, run_jobs
    from veilwalk.engine._njit import njit, source_stamp
    from veilwalk.engine._store import JobStore
else:
    __getattr__, __all__ = open_room(__name__)
