"""Graphs from files and from other libraries' objects."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from scipy import io, sparse

from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError
from veilwalk.graphs._graph import Graph

_BOM = b"\xef\xbb\xbf"
# A table indexed by node number pays while it is not much larger than the edge list itself.
_SPARSE_NUMBERS = 8


def read_graph(path: str | Path, *, largest_component: bool = False) -> Graph:
    """Read a graph from an edge list, a Matrix Market file or an npz archive, told apart by name.

    ``*.mtx``, ``*.mtx.gz``
        Matrix Market, symmetric, unweighted.
    ``*.npz``
        What ``scipy.sparse.save_npz`` writes, or arrays ``indptr`` and ``indices``, or an array ``edges``
        with each edge once.
    anything else
        An edge list: two whole numbers a line, separated by blanks, a tab, a comma or a semicolon; lines
        that begin with ``#`` or ``%`` are comments; ``*.csv`` may have a header; ``*.gz`` is decompressed.
        Repeated edges and both directions of one edge count once. Nodes are numbered 0, 1, ... in the
        ascending order of the numbers used.

    Args:
        path: The file.
        largest_component: Keep the largest component instead of refusing a disconnected graph.
    """
    path = Path(path)
    if path.is_dir():
        raise InputFileError(f"{path}: is a directory, need a file")
    if not path.exists():
        raise InputFileError(f"{path}: no such file")
    name = path.name.lower()
    try:
        if name.endswith((".mtx", ".mtx.gz")):
            return from_sparse(_read_matrix_market(path), largest_component=largest_component)
        if name.endswith(".npz"):
            return _read_npz(path, largest_component=largest_component)
        n_nodes, edges = _read_edge_list(path)
        return Graph.from_edges(n_nodes, edges, merge_repeats=True, largest_component=largest_component)
    except InvalidParameterError as error:
        raise InputFileError(f"{path}: {error}") from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def from_sparse(matrix: Any, *, largest_component: bool = False) -> Graph:
    """Build a graph from any SciPy sparse adjacency matrix, symmetric with entries 0 and 1.

    Args:
        matrix: The matrix, of any SciPy sparse format.
        largest_component: Keep the largest component instead of refusing a disconnected graph.
    """
    is_sparse = sparse.issparse(matrix)
    if not is_sparse:
        raise InvalidParameterError("matrix", type(matrix).__name__, "a SciPy sparse matrix or array")
    return Graph.from_csr(sparse.csr_array(matrix), largest_component=largest_component)


def from_networkx(network: Any, *, largest_component: bool = False) -> Graph:
    """Build a graph from an undirected NetworkX graph; nodes are numbered in its own order.

    Args:
        network: The NetworkX graph; edge attributes are not looked at.
        largest_component: Keep the largest component instead of refusing a disconnected graph.
    """
    if not all(hasattr(network, name) for name in ("nodes", "edges", "is_directed")):
        raise InvalidParameterError("network", type(network).__name__, "a NetworkX graph")
    if network.is_directed():
        raise GraphError("the NetworkX graph is directed: must be undirected (see its to_undirected)")
    number = {node: index for index, node in enumerate(network.nodes)}
    ends = [(number[edge[0]], number[edge[1]]) for edge in network.edges]
    edges = np.array(ends, dtype=np.int64).reshape(-1, 2)
    return Graph.from_edges(len(number), edges, largest_component=largest_component)


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputFileError(f"{path}: is not a complete gzip file") from error
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror}") from error


def _read_edge_list(path: Path) -> tuple[int, IntArray]:
    """Return the number of nodes and the edges, nodes renumbered from 0."""
    from veilwalk.graphs import _kernels

    data = _read_bytes(path).removeprefix(_BOM)
    has_header = path.name.lower().removesuffix(".gz").endswith(".csv")
    text = np.frombuffer(data, dtype=np.uint8)
    pairs = np.empty((data.count(b"\n") + 1, 2), dtype=np.int64)
    size, status, line = _kernels.parse_pairs(text, 1, pairs)
    if status == _kernels.BAD_NUMBER and has_header and size == 0:
        skipped = _end_of_line(data, line)
        size, status, line = _kernels.parse_pairs(text[skipped:], line + 1, pairs)
    if status != _kernels.PARSED:
        _refuse_line(path, data, status, line)
    if size == 0:
        raise InputFileError(f"{path}: has no edges")
    return _renumbered(pairs[:size])


def _end_of_line(data: bytes, line: int) -> int:
    end = 0
    for _ in range(line):
        end = data.find(b"\n", end) + 1 or len(data)
    return end


def _refuse_line(path: Path, data: bytes, status: int, line: int) -> NoReturn:
    from veilwalk.graphs import _kernels

    needs = {
        _kernels.BAD_NUMBER: "need two whole numbers",
        _kernels.NEGATIVE: "node numbers must not be negative",
        _kernels.TOO_LARGE: "node numbers must have at most 18 digits",
        _kernels.WRONG_COLUMNS: "need exactly two columns",
        _kernels.SELF_LOOP: "is a self-loop, the graph must be simple",
    }
    content = data[_end_of_line(data, line - 1) : _end_of_line(data, line)].decode("utf-8", "replace")
    raise InputFileError(f"{path}, line {line}: {content.strip()[:60]!r}: {needs[status]}")


def _renumbered(pairs: IntArray) -> tuple[int, IntArray]:
    highest = int(pairs.max())
    if highest > _SPARSE_NUMBERS * pairs.size + 1024:
        numbers, inverse = np.unique(pairs, return_inverse=True)
        return len(numbers), inverse.reshape(pairs.shape)
    used = np.zeros(highest + 1, dtype=np.bool_)
    used[pairs.ravel()] = True
    if used.all():
        return highest + 1, pairs
    return int(used.sum()), (np.cumsum(used) - 1)[pairs]


def _read_matrix_market(path: Path) -> sparse.coo_array:
    try:
        return sparse.coo_array(io.mmread(path, spmatrix=False))
    except (ValueError, EOFError, OSError, OverflowError, zlib.error) as error:
        raise InputFileError(f"{path}: is not a Matrix Market file: {_first_line(error)}") from error


def _read_npz(path: Path, *, largest_component: bool) -> Graph:
    # From memory: NumPy leaves a file open that turns out not to be an archive.
    stream = BytesIO(_read_bytes(path))
    try:
        with np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if "format" in arrays:
            return from_sparse(sparse.load_npz(BytesIO(stream.getvalue())), largest_component=largest_component)
    except (GraphError, InvalidParameterError):
        raise
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError) as error:
        raise InputFileError(f"{path}: is not an npz file of plain arrays: {_first_line(error)}") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise InputFileError(f"{path}: is not a complete npz file: {_first_line(error)}") from error
    if {"indptr", "indices"} <= arrays.keys():
        return _from_index_arrays(arrays["indptr"], arrays["indices"], largest_component=largest_component)
    if "edges" in arrays:
        edges = arrays["edges"]
        if not edges.size:
            raise InputFileError(f"{path}: has no edges")
        n_nodes = int(edges.max()) + 1 if np.issubdtype(edges.dtype, np.integer) else 2
        return Graph.from_edges(n_nodes, edges, largest_component=largest_component)
    held = ", ".join(sorted(arrays)) or "nothing"
    raise InputFileError(f"{path}: holds {held}: need a SciPy matrix, or indptr and indices, or edges")


def _from_index_arrays(indptr: npt.NDArray[Any], indices: npt.NDArray[Any], *, largest_component: bool) -> Graph:
    for name, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise GraphError(f"{name} has shape {array.shape} and type {array.dtype}: need whole numbers")
    n_nodes = len(indptr) - 1
    try:
        matrix = sparse.csr_array((np.ones(len(indices), dtype=np.int32), indices, indptr), shape=(n_nodes, n_nodes))
    except ValueError as error:
        raise GraphError(f"indptr and indices do not fit together: {_first_line(error)}") from error
    return Graph.from_csr(matrix, largest_component=largest_component)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
