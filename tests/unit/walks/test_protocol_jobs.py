"""The protocol as jobs: whatever lanes are played where, the updates are those of the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import choose_scheme
from veilwalk.engine import JobStore, open_engine
from veilwalk.graphs import random_regular
from veilwalk.walks import ExcludedRows, iter_protocol, run_protocol

GRAPH = random_regular(24, 3, seed=5)
LAW = choose_scheme(GRAPH, "uniform-node", support=DistanceSupport(2, 3)).law.matrix
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "simple": (LAW, {}),
    "tokens": (LAW, {"tokens": 3, "replicas": 5, "burn_in": 2}),
    "non-backtracking": (LAW, {"walk": Walk("non-backtracking")}),
    "metropolis": (LAW, {"walk": Walk("metropolis"), "replicas": 9}),
    "far for three": (ExcludedRows.nearer_than(GRAPH, 3), {"recipients": 3, "walk": Walk("lazy")}),
    "watched": (LAW, {"colluders": np.arange(24) % 5 == 0, "replicas": 20}),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor | None]:
    """Two processes."""
    with open_engine("process:2") as executor:
        yield executor


@pytest.mark.parametrize("case", CASES)
def test_lanes_played_alone_are_those_of_the_whole_run(case: str) -> None:
    """One by one: also the last, which has an update less."""
    law, options = CASES[case]
    whole = run_protocol(GRAPH, law, updates=190, seed=3, **options)
    n_lanes = options.get("tokens", 1) * options.get("replicas", 64)
    lanes = [
        np.concatenate(list(iter_protocol(GRAPH, law, updates=190, seed=3, only=range(lane, lane + 1), **options)))
        for lane in range(n_lanes)
    ]
    assert np.concatenate(lanes).tobytes() == whole.tobytes()


@pytest.mark.parametrize("case", CASES)
def test_jobs_give_the_same_updates(case: str, pool: Executor, tmp_path: Path) -> None:
    """In two processes, and again from the store without them."""
    law, options = CASES[case]
    whole = run_protocol(GRAPH, law, updates=190, seed=3, **options)
    store = JobStore(tmp_path)
    found = run_protocol(GRAPH, law, updates=190, seed=3, executor=pool, store=store, **options)
    assert found.tobytes() == whole.tobytes()
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert run_protocol(GRAPH, law, updates=190, seed=3, store=store, **options).tobytes() == whole.tobytes()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == made


def test_files_are_of_this_run_only(tmp_path: Path) -> None:
    """Another seed, law or graph has other files."""
    store = JobStore(tmp_path)
    other = random_regular(24, 3, seed=6)
    for graph, law, seed in ((GRAPH, LAW, 3), (GRAPH, LAW, 4), (other, ExcludedRows.nearer_than(other, 3), 3)):
        before = len(list(tmp_path.iterdir()))
        run_protocol(graph, law, updates=16, seed=seed, replicas=4, store=store)
        assert len(list(tmp_path.iterdir())) > before


@pytest.mark.parametrize("only", [range(2, 2), range(65), range(0, 4, 2)])
def test_lanes_that_are_not_there_are_refused(only: range) -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match="only"):
        iter_protocol(GRAPH, LAW, updates=100, seed=1, only=only)
