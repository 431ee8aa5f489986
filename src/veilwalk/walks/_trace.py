"""Traces: the updates of a run in one compact file, to be replayed: an npz archive, which NumPy alone can read."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from veilwalk.core.archives import read_archive
from veilwalk.core.errors import InputFileError
from veilwalk.core.records import write_atomically
from veilwalk.graphs import Graph
from veilwalk.walks._protocol import UPDATE_DTYPE, Updates


def write_trace(path: Path, updates: Updates, *, graph: Graph) -> None:
    """Write the updates of a whole run on ``graph``."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, updates=updates, graph_digest=np.array(graph.digest))
    write_atomically(path, buffer.getbuffer())


def read_trace(path: Path, *, graph: Graph) -> Updates:
    """Return the updates of a trace; refuse one that was made on another graph."""
    arrays = read_archive(path)
    if arrays.keys() != {"updates", "graph_digest"} or arrays["updates"].dtype != UPDATE_DTYPE:
        raise InputFileError(f"{path} is not a trace that this version reads")
    if (digest := str(arrays["graph_digest"])) != graph.digest:
        raise InputFileError(f"{path} is a trace on graph {digest[:12]}: not on {graph.digest[:12]} as asked")
    return arrays["updates"]
