"""The whole protocol as a list of jobs: each plays a few lanes, whose draws are counted by their own numbers."""

from __future__ import annotations

import hashlib
from concurrent.futures import Executor
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.core.progress import Progress, silent
from veilwalk.core.walk import SIMPLE
from veilwalk.engine import JobStore, run_jobs
from veilwalk.graphs import Graph
from veilwalk.walks._protocol import Updates, iter_protocol
from veilwalk.walks._sets import FarRows, LawRows

# Lanes of a job: as many as a kernel takes side by side, or half of that where there are few.
_LANES, _FEW = 8, 32


def run_protocol(
    graph: Graph,
    law: LawRows,
    *,
    updates: int,
    seed: int,
    executor: Executor | None = None,
    store: JobStore | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Updates:
    """Play the protocol and return all its updates, ordered by replica, token and time.

    Takes the arguments of :func:`iter_protocol`, and memory for every update. With an ``executor`` or a ``store`` the
    lanes are played as jobs, to the same updates; an interrupt then keeps only what is in the store.
    """
    if executor is None and store is None:
        chunks = list(iter_protocol(graph, law, updates=updates, seed=seed, progress=progress, **options))
        return _in_order(np.concatenate(chunks))
    asked = {"updates": updates, "seed": seed} | options
    n_lanes = min(options.get("tokens", 1) * options.get("replicas", 64), updates)
    size = _LANES if n_lanes > _FEW else _LANES // 2
    parts = run_jobs(
        _play_lanes,
        [[first, min(first + size, n_lanes)] for first in range(0, n_lanes, size)],
        common=(graph, law, asked),
        executor=executor,
        store=store,
        what=None if store is None else _named(graph, law, asked),
        stage="walking",
        progress=progress,
    )
    return np.concatenate(parts)


def _play_lanes(graph: Graph, law: LawRows, asked: dict[str, Any], job: list[int]) -> Updates:
    """Play the lanes of one job."""
    return _in_order(np.concatenate(list(iter_protocol(graph, law, only=range(*job), **asked))))


def _in_order(together: Updates) -> Updates:
    """Return updates in the order of their lanes: chunks interleave them."""
    lanes = together["replica"].astype(np.int64) * (int(together["token"].max()) + 1) + together["token"]
    return together[np.argsort(lanes, kind="stable")]


def _named(graph: Graph, law: LawRows, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what is played, as the names of files have it."""
    walk, colluders = asked.get("walk", SIMPLE), asked.get("colluders")
    plain = {key: value for key, value in asked.items() if key not in {"walk", "colluders"}}
    return {
        "kind": "protocol",
        "graph": graph.digest,
        "law": law_digest(law),
        "walk": walk.kind,
        "colluders": None if colluders is None else np.flatnonzero(colluders),
    } | plain


def law_digest(law: LawRows) -> str:
    """Return what tells one law from another by the bits of its table."""
    if isinstance(law, FarRows):
        arrays: list[npt.NDArray[Any]] = [np.asarray(getattr(law, name)) for name in ("near", "starts")]
    else:
        rows = sparse.csr_array(law)
        arrays = [rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data]
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
