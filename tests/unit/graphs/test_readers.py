"""Readers: every format gives the same graph, and every defect is one line with its place."""

from __future__ import annotations

import gzip
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from scipy import io, sparse

from veilwalk import graphs
from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.graphs import Graph
from veilwalk.graphs._distances import diameter

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
        ("old_mac.txt", RING.replace(b"\n", b"\r")),
        ("header.tsv", b"source\ttarget\n" + RING.replace(b" ", b"\t")),
        ("weights.txt", b"0 1 0.5\n1 2 -3\n2 3 1e9\n3 0 nan\n"),
        ("attributes.txt", b"0 1 {}\n1 2 {'a': 1, 'b': 2}\n2 3 {}\n3 0 {}\n"),
        ("negative.txt", b"-7 -3\n-3 0\n0 10\n10 -7\n"),
        (
            "long.txt",
            b"1 2\n2 30000000000000000000\n30000000000000000000 400000000000000000000\n400000000000000000000 1",
        ),
        ("packed.txt.gz", gzip.compress(RING, mtime=0)),
        ("packed.csv.gz", gzip.compress(b"a;b\n" + RING, mtime=0)),
    ],
)
def test_edge_lists(tmp_path: Path, name: str, content: bytes) -> None:
    """All are the ring of four nodes."""
    path = tmp_path / name
    path.write_bytes(content)
    assert graphs.read_graph(path).digest == graphs.ring(4).digest


@pytest.mark.parametrize(
    ("name", "content", "labels", "notice"),
    [
        ("a.txt", b"1035 1000\n1000 1007\n", ("1000", "1007", "1035"), ""),
        ("a.txt", b"10 9\n9 8\n", ("8", "9", "10"), ""),
        ("a.txt", b"20000000000000000000 3\n", ("3", "20000000000000000000"), ""),
        ("a.txt", b"007 12\n12 7\n", ("007", "12", "7"), "others such as '007' are not"),
        ("a.txt", b"0 1\n1 2x\n", ("0", "1", "2x"), "others such as '2x' are not"),
        ("a.csv", b"b,a\na,c\n", ("a", "b", "c"), ""),
        ("a.csv", b"a,b\n", ("a", "b"), ""),
        ("a.csv", b"source,target\na,b\n", ("a", "b"), "line 1 (source, target) is taken for a header"),
        ("a.csv", b"from,to\n5,6\n", ("5", "6"), "line 1 (from, to) is taken for a header"),
        ("a.csv", b"1,b\n2,c\nc,b\n", ("1", "2", "b", "c"), "others such as 'b' are not"),
        ("a.csv", b"a,b,2\nb,c,\n", ("a", "b", "c"), "columns after the second are ignored"),
        ("a.csv", b'x;"St. Ann; north"\nx; y z \n', ("St. Ann; north", "x", "y z"), ""),
        ("a.csv", b'"St. Ann; north",x\n"St. Ann; north",y\n', ("St. Ann; north", "x", "y"), ""),
        ("a.txt", b'"St Mary" "x"\nx, "9"\n', ("9", "St Mary", "x"), "others such as 'St Mary'"),
        ("a.txt", b'"10" "9"\n"9" "8"\n', ("8", "9", "10"), ""),
        ("a.csv", b"a;b;0,5\nb;c;1,5\n", ("a", "b", "c"), "columns after the second are ignored"),
        ("a.tsv", "Köln\tСаратов, A\nKöln\tb c\n".encode(), ("Köln", "b c", "Саратов, A"), ""),
        ("a.txt", b"a b {'weight': 1, 'x': 2}\nb c {}\n", ("a", "b", "c"), "columns after the second are ignored"),
    ],
)
def test_labels_and_what_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, name: str, content: bytes, labels: tuple[str, ...], notice: str
) -> None:
    """Each node keeps its name; a header and further columns are never passed over without a word."""
    path = tmp_path / name
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        graph = graphs.read_graph(path)
    assert graph.labels == labels
    assert graph.name == f"file:{path}"
    assert [notice in message for message in caplog.messages] == [True] * bool(notice)


def test_the_first_line_is_an_edge_where_it_can_be_one(tmp_path: Path) -> None:
    """A CSV of names without a header loses nothing."""
    path = tmp_path / "named.csv"
    path.write_text("hospital-a,hospital-b\nhospital-b,hospital-c\n")
    assert graphs.read_graph(path).n_edges == 2


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
    found = graphs.read_graph(tmp_path / name)
    assert found.digest == graph.digest
    assert found.label(0) == ("1" if name == "a.mtx" else "0")
    if name.endswith(".mtx"):
        packed = tmp_path / "a.mtx.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        assert graphs.read_graph(packed).digest == graph.digest


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "has no edges"),
        ("a.txt", b"# only words\n", "has no edges"),
        ("a.txt", "\u00a0\n".encode(), "has no edges"),
        ("a.txt", b"0 1\n\n# c\n3\n", "line 4: '3': need two labels"),
        ("a.txt", b"0", "line 1: '0': need two labels"),
        ("a.csv", b"a,b\nb,\n", "line 2: 'b,': need two labels"),
        ("a.txt", b'a b\nb ""\n', "line 2: .*need two labels"),
        ("a.csv", b'a,b\n"b,c\n', "line 2: '\"b,c': need two labels"),
        ("a.txt", b"0 1 5\n1 2\n", "line 2: '1 2': has 2 columns, the lines before it 3"),
        ("a.txt", b"0 1 2\n1 0 2 3\n", "line 2: '1 0 2 3': has 4 columns"),
        ("a.txt", b"St Mary St John\nSt John St Luke\n", "line 2: 'St John St Luke': .*blanks need commas"),
        ("a.csv", b"a,b\nb,b\n", "line 2: 'b,b': is a self-loop"),
        ("a.csv", "a,b\nb,c\u2028d".encode(), "texts of one line"),
        ("a.txt", b"0 1\n2 2\n", "line 2: '2 2': is a self-loop"),
        ("a.txt", b"0 1\n\xff\xfe\n", "line 2: is not text in UTF-8"),
        ("a.txt", b"0 1\n\x00 2\n", "is not a text file"),
        ("a.txt", pickle.dumps({0: [1]}), "is a pickle"),
        ("a.pkl", b"(dp0\nI0\n", "is a pickle"),
        ("a.gz", b"0 1\n", "gzip"),
        ("a.gz", gzip.compress(RING, mtime=0)[:-6], "gzip"),
        ("a.mtx", b"", "Matrix Market"),
        ("a.mtx", b"0 1\n", "Matrix Market"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n", "Matrix Market"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n1 1 0\n", "nodes = 1"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 \0", "Matrix Market"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 999999999999\n2 1\n", "room for"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n999999999999 999999999999 1\n2 1\n", "room"),
        ("a.mtx.gz", b"no gzip", "gzip"),
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
        ({"edges": np.array([[0, 1]]), "labels": np.array(["a", "a"])}, InputFileError, "labels = 'a': .*different"),
        ({"edges": np.array([[0, 1], [1, 2]]), "labels": np.array(["a", "b"])}, GraphError, "nodes are"),
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
    with pytest.raises(GraphError, match=r"two\.txt: .*component=largest"):
        graphs.read_graph(path)
    kept = graphs.read_graph(path, largest_component=True)
    assert kept.digest == graphs.ring(3).digest
    assert kept.name == f"file:{path}:component=largest"


def test_networkx_objects() -> None:
    """Labels of any kind are numbered in the graph's own order; unfit graphs are refused."""
    network = nx.Graph([("b", "a"), ("a", "c"), ("c", "b"), ("c", "d")])
    expected = Graph.from_edges(4, [(0, 1), (1, 2), (2, 0), (2, 3)])
    graph = graphs.from_networkx(network)
    assert graph.digest == expected.digest
    assert graph.labels == ("b", "a", "c", "d")
    with pytest.raises(InvalidParameterError, match=r"^labels = '1'"):
        graphs.from_networkx(nx.Graph([(1, "1")]))
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
    assert (diameter(graph).lower, diameter(graph).upper) == (8, 8)
