"""Formats people have: what NetworkX writes is what is read, and hostile files end in one line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from veilwalk import graphs
from veilwalk.core.errors import GraphError, InputFileError

LABELS = ("St. Mary's", "Köln", "100", '"quoted"', "a & b <c>", "東京 病院", "{x}")


def _node_link(key: str) -> Callable[[nx.Graph, Path], None]:
    def write(network: nx.Graph, path: Path) -> None:
        path.write_text(json.dumps(nx.node_link_data(network, edges=key)))

    return write


# Each with whether it may hold any label at all: NetworkX does not quote labels in lists separated by blanks.
WRITERS: dict[str, tuple[Callable[[nx.Graph, Path], None], bool]] = {
    "a.graphml": (nx.write_graphml_xml, True),
    "a.gml": (nx.write_gml, True),
    "links.json": (_node_link("links"), True),
    "edges.json": (_node_link("edges"), True),
    "a.adjlist": (nx.write_adjlist, False),
    "a.edgelist": (nx.write_edgelist, False),
    "plain.txt": (lambda network, path: nx.write_edgelist(network, path, data=False), False),
    "weights.txt": (nx.write_weighted_edgelist, False),
    "a.tsv": (lambda network, path: nx.write_edgelist(network, path, delimiter="\t", data=["weight"]), False),
    "a.csv": (lambda network, path: nx.write_edgelist(network, path, delimiter=",", data=True), False),
}


def _network(labels: tuple[str, ...]) -> nx.Graph:
    """A wheel with a tail, with a weight at each edge."""
    network = nx.Graph()
    network.add_nodes_from(labels)
    rim = labels[1:-1]
    network.add_edges_from((labels[0], end) for end in rim)
    network.add_edges_from(zip(rim, rim[1:] + rim[:1], strict=True))
    network.add_edge(labels[0], labels[-1])
    nx.set_edge_attributes(network, 1.5, "weight")
    return network


def _edges_by_label(graph: graphs.Graph) -> set[frozenset[str]]:
    return {frozenset((graph.label(a), graph.label(b))) for a, b in graph.edges()}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("packed", [False, True])
def test_what_networkx_writes_is_read(tmp_path: Path, name: str, packed: bool) -> None:
    """The same edges between the same labels; files that list nodes keep their order too."""
    write, any_label = WRITERS[name]
    network = _network(LABELS if any_label else tuple("fgabc"))
    path = tmp_path / name
    write(network, path)
    if packed:
        data = path.read_bytes()
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(data))
    graph = graphs.read_graph(path)
    assert _edges_by_label(graph) == {frozenset(edge) for edge in network.edges}
    if any_label:
        assert graph.labels == tuple(network.nodes)
        assert graph.digest == graphs.from_networkx(network).digest


@pytest.mark.parametrize("name", ["a.graphml", "a.gml", "links.json", "a.adjlist", "a.edgelist"])
def test_numbered_nodes_need_no_labels(tmp_path: Path, name: str) -> None:
    """0, 1, ... in order are the numbers themselves."""
    WRITERS[name][0](nx.path_graph(5), tmp_path / name)
    graph = graphs.read_graph(tmp_path / name)
    assert graph.labels is None
    assert graph.edges().tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize("name", ["a.graphml", "a.gml", "links.json"])
def test_directed_files(tmp_path: Path, name: str) -> None:
    """Both directions of every edge are an undirected graph; one alone is not."""
    network = nx.DiGraph([("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")])
    WRITERS[name][0](network, tmp_path / name)
    assert graphs.read_graph(tmp_path / name).n_edges == 2
    network.remove_edge("c", "b")
    WRITERS[name][0](network, tmp_path / name)
    with pytest.raises(GraphError, match="1 directed edges have no reverse"):
        graphs.read_graph(tmp_path / name)


def test_gml_by_others(tmp_path: Path) -> None:
    """Comments, a creator, nested lists, brackets on lines of their own, ids for want of labels."""
    path = tmp_path / "karate.gml"
    path.write_text(
        'Creator "Mark # Newman"\n# a comment ]\ngraph\n[\n  node\n  [\n    id 7\n    graphics [ fill "#ff" ]\n  ]\n'
        "  node [ id 9 ]\n  edge [ source 9 target 7 value 3 ]\n]\n"
    )
    assert graphs.read_graph(path).labels == ("7", "9")


def test_graphml_by_others(tmp_path: Path) -> None:
    """Edges may say themselves that they are undirected; data and ports are passed over."""
    path = tmp_path / "a.graphml"
    path.write_text(
        '<?xml version="1.0" encoding="UTF-16"?><graphml><key id="d" for="node"/><graph edgedefault="directed">'
        '<node id="n0"><data key="d">x</data><port name="p"/></node><node id="n1"/>'
        '<edge source="n0" target="n1" directed="false"/></graph></graphml>',
        encoding="utf-16",
    )
    assert graphs.read_graph(path).labels == ("n0", "n1")


_BOMB = b'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
_GRAPHML = b'<graphml><graph edgedefault="undirected">%s</graph></graphml>'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.graphml", b"", "is not GraphML"),
        ("a.graphml", b"0 1\n", "is not GraphML"),
        ("a.graphml", _BOMB + b"<graphml>&b;</graphml>", "has a DOCTYPE"),
        ("a.graphml", (_BOMB + b"<graphml>&b;</graphml>").decode().encode("utf-16"), "has a DOCTYPE"),
        ("a.graphml", b'<!DOCTYPE g SYSTEM "file:///etc/passwd"><graphml/>', "has a DOCTYPE"),
        ("a.graphml", b'<?xml version="1.0" encoding="moon"?><graphml/>', "encoding"),
        ("a.graphml", b"<graphml/>", "has no graph"),
        ("a.graphml", (_GRAPHML % b"<node id='a'/>")[:-4], "is not GraphML"),
        ("a.graphml", _GRAPHML % b"<node/>", "has a node without id"),
        ("a.graphml", _GRAPHML % b"<node id='a'/><edge source='a'/>", "has an edge without target"),
        ("a.graphml", _GRAPHML % b"<node id='a'/><node id='a'/>", "lists node 'a' more than once"),
        ("a.graphml", _GRAPHML % b"<node id='a'/>", "has no edges"),
        ("a.graphml", _GRAPHML % b"<node id='a'/><edge source='a' target='b'/>", "names 'b', which is no node"),
        ("a.graphml", _GRAPHML % b"<node id='a'><graph/></node>", "nested"),
        ("a.graphml", _GRAPHML % b"<hyperedge/>", "hyperedges"),
        ("a.graphml", _GRAPHML % b"<node id=''/><node id='b'/><edge source='' target='b'/>", "none of them empty"),
        ("a.gml", b"", "is not GML"),
        ("a.gml", b"graph [ node [ id 1 ]", "ends before"),
        ("a.gml", b"graph [ node ]", "line 1: is not GML: ']' is out of place"),
        ("a.gml", b"graph [\n] ]", "line 2: is not GML: ']' is out of place"),
        ("a.gml", b'graph [\n node [ label "x ]', "line 2: is not GML: a quotation mark"),
        ("a.gml", b"graph [ ] graph [ ]", "one graph"),
        ("a.gml", b"graph [ node [ ] ]", "has a node without id"),
        ("a.gml", b"graph [ node [ id 1 ] edge [ source 1 ] ]", "has an edge without target"),
        ("a.gml", b"graph " + b"[ a " * 100_000, "is not GML"),
        ("a.gml", b'graph [ node [ id 1 label "a" ] node [ id 2 label "a" ] edge [ source 1 target 2 ] ]', "different"),
        ("a.gml", b"\xff", "line 1: is not text in UTF-8"),
        ("a.json", b"", "is not JSON"),
        ("a.json", b"[" * 100_000, "is not JSON"),
        ("a.json", b"[1, 2]", "is not node-link JSON"),
        ("a.json", b'{"nodes": 5}', "is not node-link JSON"),
        ("a.json", b'{"nodes": []}', "need a list of links"),
        ("a.json", b'{"nodes": [5], "links": []}', "has a node whose id"),
        ("a.json", b'{"nodes": [{"id": [1]}], "links": []}', "neither text nor a whole number"),
        ("a.json", b'{"nodes": [{"id": true}], "links": []}', "neither text nor a whole number"),
        ("a.json", b'{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}', "names '2', which is no node"),
        ("a.json", b'{"nodes": [{"id": "\\ud800"}, {"id": 1}], "links": [{"source": 1, "target": 1}]}', "one line"),
        ("a.adjlist", b"", "has no edges"),
        ("a.adjlist", b"\xff 1", "line 1: is not text in UTF-8"),
    ],
)
def test_hostile_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """One line that names the file, whatever is in it."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputFileError, match=message) as caught:
        graphs.read_graph(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1
