"""Traces come back as they were written, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilwalk import walks
from veilwalk.core.errors import InputFileError, RecordError
from veilwalk.graphs import Graph
from veilwalk.walks._protocol import Updates


def played_on(graph: Graph) -> Updates:
    """Return a short run."""
    law = (1.0 - np.eye(graph.n_nodes)) / (graph.n_nodes - 1)
    return np.concatenate(list(walks.iter_protocol(graph, law, updates=500, seed=4, chunk_updates=200)))


def test_a_trace_comes_back(petersen: Graph, tmp_path: Path) -> None:
    """Updates survive the disk, and the file is smaller than they are."""
    path = tmp_path / "new" / "run.npz"
    walks.write_trace(path, played_on(petersen), graph=petersen)
    assert np.array_equal(walks.read_trace(path, graph=petersen), played_on(petersen))
    assert path.stat().st_size < 500 * walks.UPDATE_DTYPE.itemsize
    assert [entry.name for entry in path.parent.iterdir()] == ["run.npz"]


def test_bad_files_are_refused(petersen: Graph, tmp_path: Path) -> None:
    """Missing, malformed and foreign traces: one clear line each."""
    with pytest.raises(InputFileError, match=r"missing: cannot be read"):
        walks.read_trace(tmp_path / "missing", graph=petersen)
    broken = tmp_path / "broken"
    broken.write_bytes(b"not a trace")
    with pytest.raises(InputFileError, match=r"broken: is not an npz archive"):
        walks.read_trace(broken, graph=petersen)
    path = tmp_path / "run.npz"
    np.savez(path, updates=np.zeros(3), graph_digest=np.array(petersen.digest))
    with pytest.raises(InputFileError, match="is not a trace that this version reads"):
        walks.read_trace(path, graph=petersen)
    walks.write_trace(path, played_on(petersen), graph=petersen)
    triangle = Graph.from_edges(3, np.array([(0, 1), (1, 2), (2, 0)]))
    with pytest.raises(InputFileError, match="is a trace on graph"):
        walks.read_trace(path, graph=triangle)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        walks.write_trace(blocked / "x", played_on(petersen), graph=petersen)
