"""Graphs from files and from other libraries' objects."""

from __future__ import annotations

import gzip
import logging
import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import io, sparse

from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError
from veilwalk.graphs._edge_lists import read_edge_list
from veilwalk.graphs._graph import Graph
from veilwalk.graphs._networkx import NETWORKX_FORMATS, read_through_networkx

_log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"
_PICKLE = b"\x80"
_PICKLE_NAMES = (".pickle", ".pkl", ".gpickle")


def read_graph(path: str | Path, *, largest_component: bool = False) -> Graph:
    """Read a graph from a file, its format told by its name; ``*.gz`` is decompressed.

    ``*.graphml``, ``*.gml``, ``*.json``, ``*.adjlist``
        GraphML without a DOCTYPE, GML, node-link JSON and adjacency lists, as NetworkX reads them: it must be
        installed, and such a file has at most 100 MB. Nodes are numbered in the order of the file.
    ``*.mtx``
        Matrix Market, symmetric, unweighted; nodes are labelled from 1, as there.
    ``*.npz``
        What ``scipy.sparse.save_npz`` writes, or arrays ``indptr`` and ``indices``, or an array ``edges``
        with each edge once; and ``labels``, if there are any.
    anything else
        An edge list: two labels a line, separated by the tab, semicolon or comma that every line has, else by
        any of these and blanks; a label in quotation marks may hold them. Lines that begin with ``#`` or ``%``
        are comments. Further columns, the same number in each line, and attributes in braces are ignored.
        The first line is taken for a header if neither of its labels is a whole number or stands in any
        other line: as an edge it would be cut off from the rest. Nodes are numbered in the ascending order of
        their labels, as numbers where all of them are whole numbers, else as text.

    Repeated edges and both directions of one edge count once in text files; a directed graph is refused
    unless it has both directions of every edge. What is passed over (a header, columns) is said in one
    warning to the log, which shows on stderr unless logging is set up otherwise.

    Args:
        path: The file.
        largest_component: Keep the largest component instead of refusing a disconnected graph.
    """
    path = Path(path)
    try:
        graph, notices = _read(path, largest_component=largest_component)
    except (InputFileError, InvalidParameterError) as error:
        raise InputFileError(f"{path}: {error}") from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    if notices:
        _log.warning("%s: %s", path, "; ".join(notices))
    return graph.named(f"file:{path}:component=largest" if largest_component else f"file:{path}")


def _read(path: Path, *, largest_component: bool) -> tuple[Graph, Sequence[str]]:
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    data = _read_bytes(path)
    if suffix == ".mtx":
        matrix = _read_matrix_market(data)
        from_one = [str(number + 1) for number in range(matrix.shape[0])]
        return from_sparse(matrix, largest_component=largest_component, labels=from_one), ()
    if suffix == ".npz":
        return _read_npz(data, largest_component=largest_component), ()
    if suffix in _PICKLE_NAMES or data.startswith(_PICKLE):
        raise InputFileError("is a pickle, which may run code when read: need GraphML, GML, JSON or an edge list")
    if suffix != ".graphml":
        # XML has its own rules for both.
        data = data.removeprefix(_BOM)
        data = data if b"\n" in data else data.replace(b"\r", b"\n")
    if suffix in NETWORKX_FORMATS:
        return read_through_networkx(data, suffix, largest_component=largest_component), ()
    edges = read_edge_list(data)
    n_nodes = int(edges.pairs.max()) + 1 if edges.labels is None else len(edges.labels)
    graph = Graph.from_edges(
        n_nodes, edges.pairs, merge_repeats=True, largest_component=largest_component, labels=edges.labels
    )
    return graph, edges.notices


def from_sparse(matrix: Any, *, largest_component: bool = False, labels: Sequence[str] | None = None) -> Graph:
    """Build a graph from any SciPy sparse adjacency matrix, symmetric with entries 0 and 1.

    Args:
        matrix: The matrix, of any SciPy sparse format.
        largest_component: Keep the largest component instead of refusing a disconnected graph.
        labels: What to call each node.
    """
    is_sparse = sparse.issparse(matrix)
    if not is_sparse:
        raise InvalidParameterError("matrix", type(matrix).__name__, "a SciPy sparse matrix or array")
    return Graph.from_csr(sparse.csr_array(matrix), largest_component=largest_component, labels=labels)


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise InputFileError("is a directory, need a file")
    if not path.exists():
        raise InputFileError("no such file")
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputFileError("is not a complete gzip file") from error
    except OSError as error:
        raise InputFileError(f"cannot be read: {error.strerror}") from error


def _read_matrix_market(data: bytes) -> sparse.coo_array:
    # SciPy reads past the end of a file that stops within a line, and makes arrays as large as the file claims.
    text = data.replace(b"\0", b"?") + b"\n"
    try:
        rows, columns, entries, *_ = io.mminfo(BytesIO(text))
        fits = max(rows, columns, entries) <= len(data)
        matrix = sparse.coo_array(io.mmread(BytesIO(text), spmatrix=False)) if fits else None
    except (ValueError, EOFError, OSError, OverflowError) as error:
        raise InputFileError(f"is not a Matrix Market file: {_first_line(error)}") from error
    if matrix is None:
        raise InputFileError(f"claims {rows} rows and {entries} entries: need as many as it has room for")
    return matrix


def _read_npz(data: bytes, *, largest_component: bool) -> Graph:
    try:
        # From memory: NumPy leaves a file open that turns out not to be an archive.
        with np.load(BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        matrix = sparse.load_npz(BytesIO(data)) if "format" in arrays else None
        labels = arrays["labels"].astype(str).ravel().tolist() if "labels" in arrays else None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError) as error:
        raise InputFileError(f"is not an npz file of plain arrays: {_first_line(error)}") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputFileError(f"is not a complete npz file: {_first_line(error)}") from error
    if matrix is not None:
        return from_sparse(matrix, largest_component=largest_component, labels=labels)
    if {"indptr", "indices"} <= arrays.keys():
        matrix = _from_index_arrays(arrays["indptr"], arrays["indices"])
        return Graph.from_csr(matrix, largest_component=largest_component, labels=labels)
    if "edges" in arrays:
        edges = arrays["edges"]
        if not edges.size:
            raise InputFileError("has no edges")
        highest = int(edges.max()) if np.issubdtype(edges.dtype, np.integer) else 1
        n_nodes = highest + 1 if labels is None else len(labels)
        return Graph.from_edges(n_nodes, edges, largest_component=largest_component, labels=labels)
    held = ", ".join(sorted(arrays)) or "nothing"
    raise InputFileError(f"holds {held}: need a SciPy matrix, or indptr and indices, or edges")


def _from_index_arrays(indptr: npt.NDArray[Any], indices: npt.NDArray[Any]) -> sparse.csr_array:
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise GraphError(f"{name} has shape {array.shape} and type {array.dtype}: need whole numbers")
    n_nodes = len(indptr) - 1
    try:
        return sparse.csr_array((np.ones(len(indices), dtype=np.int32), indices, indptr), shape=(n_nodes, n_nodes))
    except ValueError as error:
        raise GraphError(f"indptr and indices do not fit together: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
