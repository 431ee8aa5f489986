"""Dask as any executor: a scheduler with two workers that are processes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from tests.helpers import jobs as work

from veilwalk.engine import run_jobs
from veilwalk.engine._store import encode_result

WEIGHTS = np.linspace(0.1, 1.0, 1000)


@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_dask_gives_the_same_bytes() -> None:
    """As in this process."""
    pytest.importorskip("distributed", reason="dask is not installed")
    from distributed import Client, LocalCluster

    local, client_of = cast(Any, LocalCluster), cast(Any, Client)
    here = run_jobs(work.weighed, range(12), common=(WEIGHTS,))
    with (
        local(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as cluster,
        client_of(cluster) as client,
    ):
        executor = client.get_executor(pure=False)
        there = run_jobs(work.weighed, range(12), common=(WEIGHTS,), executor=executor)
        assert encode_result(there) == encode_result(here)
