"""Traces come back as they were written, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veilwalk import walks
from veilwalk.core.errors import InputFileError, RecordError
from veilwalk.core.version import __version__
from veilwalk.graphs import Graph
from veilwalk.walks._protocol import Updates


def chunks_on(graph: Graph) -> Iterator[Updates]:
    """Return a short run."""
    law = (1.0 - np.eye(graph.n_nodes)) / (graph.n_nodes - 1)
    return walks.iter_protocol(graph, law, updates=500, seed=4, chunk_updates=200)


def test_a_trace_comes_back(petersen: Graph, tmp_path: Path) -> None:
    """Header and updates survive the disk, and the file is smaller than the updates."""
    path = tmp_path / "new" / "run.trace"
    written = walks.write_trace(path, chunks_on(petersen), graph=petersen, seed=4, params={"law": "uniform"})
    trace = walks.read_trace(path, graph=petersen)

    assert trace == written
    assert (trace.seed, trace.version, trace.n_updates, trace.complete) == (4, __version__, 500, True)
    assert trace.params == {"law": "uniform"}
    assert np.array_equal(np.concatenate(list(trace.chunks())), np.concatenate(list(chunks_on(petersen))))
    assert path.stat().st_size < 500 * walks.UPDATE_DTYPE.itemsize
    assert [entry.name for entry in path.parent.iterdir()] == ["run.trace"]


def test_an_interrupted_run_is_kept(petersen: Graph, tmp_path: Path) -> None:
    """Ctrl-C leaves a readable trace of what there was, marked incomplete."""

    def interrupted() -> Iterator[Updates]:
        yield next(chunks_on(petersen))
        raise KeyboardInterrupt

    path = tmp_path / "run.trace"
    with pytest.raises(KeyboardInterrupt):
        walks.write_trace(path, interrupted(), graph=petersen, seed=4, params={})
    trace = walks.read_trace(path)

    assert not trace.complete
    assert sum(map(len, trace.chunks())) == trace.n_updates > 0


def test_a_failed_run_leaves_no_file(petersen: Graph, tmp_path: Path) -> None:
    """An error on the way leaves neither half a trace nor a draft of one."""

    def failing() -> Iterator[Updates]:
        yield next(chunks_on(petersen))
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        walks.write_trace(tmp_path / "run.trace", failing(), graph=petersen, seed=4, params={})

    assert not list(tmp_path.iterdir())


def test_bad_files_are_refused(petersen: Graph, tmp_path: Path) -> None:
    """Missing, malformed and foreign traces: one clear line each."""
    with pytest.raises(InputFileError, match=r"cannot read trace .*missing"):
        walks.read_trace(tmp_path / "missing")
    broken = tmp_path / "broken"
    broken.write_bytes(b"not a trace")
    with pytest.raises(InputFileError, match=r"cannot read trace .*broken"):
        walks.read_trace(broken)
    path = tmp_path / "run.trace"
    walks.write_trace(path, chunks_on(petersen), graph=petersen, seed=4, params={})
    triangle = Graph.from_edges(3, np.array([(0, 1), (1, 2), (2, 0)]))
    with pytest.raises(InputFileError, match="is a trace on graph"):
        walks.read_trace(path, graph=triangle)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        walks.write_trace(blocked / "x", chunks_on(petersen), graph=petersen, seed=4, params={})
