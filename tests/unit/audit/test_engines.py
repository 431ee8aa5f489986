"""The engine has no say in an audit: the same record, byte for byte, wherever its parts were done."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from veilwalk.audit import AuditSettings, audit, audit_collusion
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme, choose_scheme
from veilwalk.engine import JobStore, open_engine
from veilwalk.graphs import random_regular

GRAPH = random_regular(30, 3, seed=1)
EXACT = choose_scheme(GRAPH, "uniform-node", support=(2, 3))
NAMED = "prior,window,last-hop,repeated,neighbour,linked-neighbour,first-sight,coalition"
CASES: dict[str, tuple[Scheme, dict[str, Any]]] = {
    "exact": (EXACT, {"observers": NAMED, "scored_by_filter": 40}),
    "rehearsed": (
        choose_scheme(GRAPH, "far:2", recipients=3, walk=Walk("non-backtracking")),
        {"observers": "prior,last-hop,repeated,first-sight,coalition,path", "rehearsed_hops": 3_000}
        | {"scored_by_filter": 20},
    ),
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor | None]:
    """Two processes."""
    with open_engine("process:2") as executor:
        yield executor


def digest(scheme: Scheme, options: dict[str, Any], **engine: Any) -> str:
    """Name a record by its bytes."""
    return sha256(audit(scheme, updates=2_000, **options, **engine).record().to_json().encode()).hexdigest()


@pytest.mark.parametrize("case", CASES)
def test_serial_and_processes_agree_to_the_byte(case: str, pool: Executor, tmp_path: Path) -> None:
    """And what was kept serves another engine: nothing is done twice."""
    scheme, options = CASES[case]
    here = digest(scheme, options)
    assert digest(scheme, options, executor=pool, store=JobStore(tmp_path)) == here
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert len(made) > 4
    assert digest(scheme, options, store=JobStore(tmp_path)) == here
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == made


def test_settings_name_the_files(tmp_path: Path) -> None:
    """An audit with another seed finds nothing of the first."""
    options = {"observers": "prior,last-hop"}
    first = digest(EXACT, options, store=JobStore(tmp_path))
    assert digest(EXACT, options | {"seed": 8}, store=JobStore(tmp_path)) != first


def test_the_curve_over_colluders_agrees_too(pool: Executor) -> None:
    """Each of its audits is jobs."""
    settings = AuditSettings(updates=2_000)
    rows = audit_collusion(EXACT, settings, [2, 10]).result["rows"]
    assert audit_collusion(EXACT, settings, [2, 10], executor=pool).result["rows"] == rows


def test_a_refusal_in_another_process_is_the_same_line(pool: Executor) -> None:
    """With the parameter's name."""
    options: dict[str, Any] = {"observers": ("neighbour",), "updates": 2}
    with pytest.raises(InvalidParameterError) as here:
        audit(EXACT, **options)
    with pytest.raises(InvalidParameterError) as there:
        audit(EXACT, executor=pool, **options)
    assert str(there.value) == str(here.value)
