"""Ray as an executor: on a real cluster of two nodes, one of which is killed in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers import jobs as work

from veilwalk.audit import audit
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.design import choose_scheme
from veilwalk.engine import JobStore, iter_jobs, open_engine, run_jobs
from veilwalk.engine._store import encode_result
from veilwalk.experiments import sweep
from veilwalk.graphs import random_regular

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, of its start and its end
WEIGHTS = np.linspace(0.1, 1.0, 1000)
WHAT = {"kind": "test"}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """Two nodes of one core each; this process is connected to the first."""
    pytest.importorskip("ray", reason="ray is not installed: its engine is not tested")
    import ray
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False, "num_cpus": 1, "object_store_memory": 200_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=quiet)
    try:
        cluster.add_node(num_cpus=1, object_store_memory=200_000_000)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_ray_gives_the_same_bytes_with_one_thread_a_job(ray_cluster: Any) -> None:
    """As in this process; what all jobs share is put once."""
    del ray_cluster
    here = run_jobs(work.weighed, range(12), common=(WEIGHTS,))
    with open_engine("ray") as executor:
        there = run_jobs(work.weighed, range(12), common=(WEIGHTS,), executor=executor)
        assert encode_result(there) == encode_result(here)
        assert run_jobs(work.threads, [0, 1], executor=executor) == [(1, "1")] * 2
        with pytest.raises(InvalidParameterError, match="job = 1: must be even"):
            run_jobs(work.refused, range(4), executor=executor)


def test_an_audit_and_played_updates_are_the_same_on_ray(ray_cluster: Any) -> None:
    """By the bytes of their results."""
    del ray_cluster
    graph = random_regular(30, 3, seed=1)
    scheme = choose_scheme(graph, "uniform-node", support=(2, 3), walk=Walk("non-backtracking"))
    asked: dict[str, Any] = {"updates": 2_000, "observers": "prior,last-hop,first-sight,path", "posterior": "rehearsed"}
    here = audit(scheme, **asked, rehearsed_hops=3_000).record().to_json()
    played: dict[str, Any] = {"updates": 200, "seed": 1, "replicas": 16}
    legs = scheme.run_updates(**played)
    with open_engine("ray") as executor:
        assert audit(scheme, **asked, rehearsed_hops=3_000, executor=executor).record().to_json() == here
        assert np.array_equal(scheme.run_updates(**played, executor=executor), legs)


def test_a_training_sweep_is_the_same_on_ray(ray_cluster: Any) -> None:
    """Row for row."""
    del ray_cluster
    asked: dict[str, Any] = {
        "settings": {
            "graph": "rrg:20:3:seed=1",
            "updates": 20,
            "audit": "none",
            "attack": 0,
            "compare": "none",
            "learner": "softmax",
        },
        "grid": {"partition": ["iid", "dirichlet:0.3"], "seed": [1, 2]},
    }
    with open_engine("ray") as executor:
        assert sweep("train", **asked, executor=executor).rows == sweep("train", **asked).rows


def test_a_lost_node_loses_no_finished_job(ray_cluster: Any, tmp_path: Path) -> None:
    """What it had in hand is done elsewhere; what was finished is not done again."""
    doomed = ray_cluster.list_all_nodes()[-1]
    store, jobs = JobStore(tmp_path / "store"), range(10)
    options: dict[str, Any] = {"common": (str(tmp_path), 0.3), "store": store, "what": WHAT}
    with open_engine("ray") as executor:
        running = iter_jobs(work.noted, jobs, executor=executor, **options)
        found = [next(running) for _ in range(3)]
        finished = [job for job in jobs if store.load(WHAT, job) is not None]
        ray_cluster.remove_node(doomed, allow_graceful=False)
        found += list(running)
    assert found == [job * job for job in jobs]
    assert len(finished) >= 3
    assert [(tmp_path / str(job)).read_text() for job in finished] == ["done\n"] * len(finished)
    files = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    again = JobStore(tmp_path / "serial")
    run_jobs(work.noted, jobs, common=(str(tmp_path), 0.0), store=again, what=WHAT)
    assert {path.name: path.read_bytes() for path in (tmp_path / "serial").iterdir()} == files
