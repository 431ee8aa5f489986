"""Readers: every format gives the same graph, and every defect is one line with its place."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy import io, sparse

from veilwalk import graphs
from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.graphs import Graph

SNAP = Path(__file__).parents[4] / "shared" / "data" / "graphs" / "facebook_combined.txt.gz"
RING = b"0 1\n1 2\n2 3\n3 0\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.txt", RING),
        ("no_last_newline.txt", RING.rstrip()),
        ("commented.txt", b"# SNAP\n% KONECT\n\n  # indented\n" + RING),
        ("windows.txt", RING.replace(b"\n", b"\r\n")),
        ("tabs.tsv", RING.replace(b" ", b"\t")),
        ("semicolons.txt", RING.replace(b" ", b" ; ")),
        ("both_ways.txt", RING + b"1 0\n0 1\n"),
        ("other_numbers.txt", b"7 10\n10 12\n12 900000000000\n900000000000 7\n"),
        ("from_one.txt", b"1 2\n2 3\n3 4\n4 1\n"),
        ("header.csv", b"\xef\xbb\xbf# note\nsource,target\n0,1\n1,2\n2,3\n3,0\n"),
        ("no_header.csv", b"0,1\n1,2\n2,3\n3,0\n"),
        ("packed.txt.gz", gzip.compress(RING, mtime=0)),
        ("packed.csv.gz", gzip.compress(b"a;b\n" + RING, mtime=0)),
    ],
)
def test_edge_lists(tmp_path: Path, name: str, content: bytes) -> None:
    """All are the ring of four nodes."""
    path = tmp_path / name
    path.write_bytes(content)
    assert graphs.read_graph(path).digest == graphs.ring(4).digest


def _write_matrix_market(path: Path, graph: Graph) -> None:
    io.mmwrite(path, graph.adjacency.astype(np.int64), symmetry="symmetric")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.mtx", _write_matrix_market),
        ("sparse.npz", lambda path, graph: sparse.save_npz(path, graph.adjacency)),
        ("csr.npz", lambda path, graph: np.savez(path, indptr=graph.indptr, indices=graph.indices)),
        ("edges.npz", lambda path, graph: np.savez(path, edges=graph.edges())),
    ],
)
def test_array_files(tmp_path: Path, name: str, write: Callable[[Path, Graph], None]) -> None:
    """Matrix Market and the three npz layouts keep the graph."""
    graph = graphs.random_regular(30, 3, seed=2)
    write(tmp_path / name, graph)
    assert graphs.read_graph(tmp_path / name).digest == graph.digest
    if name.endswith(".mtx"):
        packed = tmp_path / "a.mtx.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert graphs.read_graph(packed).digest == graph.digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "has no edges"),
        ("a.txt", b"# only words\n", "has no edges"),
        ("a.txt", b"0 1\n1 x\n", "line 2: '1 x': need two whole numbers"),
        ("a.txt", b"0 1\n1 2x\n", "line 2"),
        ("a.txt", b"0 1\nnan 2\n", "line 2: 'nan 2'"),
        ("a.txt", b"0 1\n1.0 2\n", "line 2"),
        ("a.txt", b"source target\n0 1\n", "line 1"),
        ("a.csv", b"source,target\n0,1\nother,header\n", "line 3"),
        ("a.csv", b"source,target", "has no edges"),
        ("a.txt", b"0 1\n\n# c\n1 -2\n", "line 4: '1 -2': node numbers must not be negative"),
        ("a.txt", b"0 1\n3\n", "line 2: '3': need exactly two columns"),
        ("a.txt", b"0", "line 1: '0': need exactly two columns"),
        ("a.txt", b"0 1 5\n", "line 1: '0 1 5': need exactly two columns"),
        ("a.txt", b"0 1\n2 2\n", "line 2: '2 2': is a self-loop"),
        ("a.txt", b"0 99999999999999999999\n", "line 1: .*at most 18 digits"),
        ("a.txt", b"0 1\n\xff\xfe\n", "line 2"),
        ("a.gz", b"0 1\n", "gzip"),
        ("a.gz", gzip.compress(RING, mtime=0)[:-6], "gzip"),
        ("a.mtx", b"", "Matrix Market"),
        ("a.mtx", b"0 1\n", "Matrix Market"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n", "Matrix Market"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n1 1 0\n", "nodes = 1"),
        ("a.mtx.gz", b"no gzip", "Matrix Market"),
        ("a.npz", b"", "npz"),
        ("a.npz", b"PK\x03\x04 cut short", "npz"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """One line that names the file, the place and what is needed."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=message) as caught:
        graphs.read_graph(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"other": np.zeros(2)}, InputFileError, "holds other: need"),
        ({}, InputFileError, "holds nothing"),
        ({"edges": np.empty((0, 2), dtype=int)}, InputFileError, "no edges"),
        ({"edges": np.zeros((3, 2))}, GraphError, "whole numbers"),
        ({"edges": np.array([[0, 1], [-1, 0]])}, GraphError, "nodes are"),
        ({"edges": np.array([{}], dtype=object)}, InputFileError, "npz"),
        ({"indptr": np.array([0, 1, 2]), "indices": np.array([1, 7])}, GraphError, "malformed"),
        ({"indptr": np.array([0, 5, 2]), "indices": np.array([1, 0])}, GraphError, "malformed"),
        ({"indptr": np.array([0, 1, 9]), "indices": np.array([1, 0])}, GraphError, "indptr"),
        ({"indptr": np.array([0.0, 1.0]), "indices": np.array([1])}, GraphError, "indptr"),
        ({"indptr": np.array([0]), "indices": np.array([], dtype=int)}, VeilwalkError, "a.npz: "),
        ({"format": np.array(b"csr"), "shape": np.array([2, 2])}, InputFileError, "npz"),
    ],
)
def test_bad_archives(tmp_path: Path, arrays: dict[str, np.ndarray], error: type[VeilwalkError], message: str) -> None:
    """Archives are not trusted: neither their layout nor their indices, and never pickles."""
    path = tmp_path / "a.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(error, match=message) as caught:
        graphs.read_graph(path)
    assert "\n" not in str(caught.value)


def test_missing_and_directory(tmp_path: Path) -> None:
    """No file, or no file but a folder."""
    with pytest.raises(InputFileError, match="no such file"):
        graphs.read_graph(tmp_path / "none.txt")
    with pytest.raises(InputFileError, match="is a directory"):
        graphs.read_graph(tmp_path)


def test_disconnected_file_names_the_file_and_the_way_out(tmp_path: Path) -> None:
    """The graph error says where it comes from and how to go on."""
    path = tmp_path / "two.txt"
    path.write_text("0 1\n1 2\n2 0\n5 6\n")
    with pytest.raises(GraphError, match=r"two.txt: .*2 components of 3, 2 nodes.*component=largest"):
        graphs.read_graph(path)
    assert graphs.read_graph(path, largest_component=True).digest == graphs.ring(3).digest


def test_networkx_objects() -> None:
    """Labels of any kind are numbered in the graph's own order; unfit graphs are refused."""
    network = nx.Graph([("b", "a"), ("a", "c"), ("c", "b"), ("c", "d")])
    expected = Graph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)])
    assert graphs.from_networkx(network).digest == expected.digest
    with pytest.raises(GraphError, match="directed"):
        graphs.from_networkx(nx.DiGraph([(0, 1)]))
    with pytest.raises(GraphError, match="more than once"):
        graphs.from_networkx(nx.MultiGraph([(0, 1), (0, 1)]))
    with pytest.raises(InvalidParameterError, match="network = 'list'"):
        graphs.from_networkx([])


@pytest.mark.parametrize("kind", [sparse.coo_array, sparse.csc_matrix, sparse.lil_array])
def test_sparse_objects(kind: Callable[[object], object]) -> None:
    """Any SciPy format will do, dense arrays will not."""
    graph = graphs.ring(5)
    assert graphs.from_sparse(kind(graph.adjacency)).digest == graph.digest
    with pytest.raises(InvalidParameterError, match="matrix = 'ndarray'"):
        graphs.from_sparse(np.eye(3))


@pytest.mark.shared_data
@pytest.mark.skipif(not SNAP.exists(), reason="the shared data folder is not beside this checkout")
def test_snap_facebook() -> None:
    """The published figures of ego-Facebook: 4,039 nodes, 88,234 edges, diameter 8."""
    graph = graphs.read_graph(SNAP)
    assert (graph.n_nodes, graph.n_edges) == (4039, 88234)
    assert graphs.diameter(graph) == graphs.Diameter(lower=8, upper=8)
