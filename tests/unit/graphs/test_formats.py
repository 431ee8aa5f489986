"""Formats people have: what NetworkX writes is what is read, and hostile files end in one line."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import pytest

from veilwalk import graphs
from veilwalk.core.errors import ConfigError, GraphError, InputFileError

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
    with pytest.raises(GraphError, match="directed"):
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
    """Another encoding, a prefix, data and ports; neither data nor ports are looked at."""
    path = tmp_path / "a.graphml"
    path.write_text(
        '<?xml version="1.0" encoding="UTF-16"?><g:graphml xmlns:g="http://graphml.graphdrawing.org/xmlns">'
        '<g:key id="d" for="node" attr.name="color"/><g:graph edgedefault="undirected">'
        '<g:node id="n0"><g:data key="d">x</g:data><g:port name="p"/></g:node><g:node id="n1"/>'
        '<g:edge source="n0" target="n1"/></g:graph></g:graphml>',
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
        ("a.graphml", b"<graphml/>", "is not GraphML"),
        ("a.graphml", (_GRAPHML % b"<node id='a'/>")[:-4], "is not GraphML"),
        ("a.graphml", _GRAPHML % b"<node/>", "node without id"),
        ("a.graphml", _GRAPHML % b"<node id='a'/><edge source='a'/>", "edge without target"),
        ("a.graphml", _GRAPHML % b"<node id='a'/><node id='a'/>", "more than once"),
        ("a.graphml", _GRAPHML % b"<node id='a'/>", "has no edges"),
        ("a.graphml", _GRAPHML % b"<node id='a'/><edge source='a' target='b'/>", "names 'b', which is no node"),
        ("a.graphml", _GRAPHML % b"<node id='a'><graph/></node>", "nested"),
        ("a.graphml", _GRAPHML % b"<hyperedge/>", "hyperedges"),
        ("a.graphml", _GRAPHML % b"<node id=''/><node id='b'/><edge source='' target='b'/>", "none of them empty"),
        ("a.gml", b"", "is not GML"),
        ("a.gml", b"graph [ node [ id 1 ]", "is not GML"),
        ("a.gml", b"graph [ node ]", "is not GML"),
        ("a.gml", b"graph [\n] ]", "is not GML"),
        ("a.gml", b'graph [\n node [ label "x ]', "is not GML"),
        ("a.gml", b"graph [ ] graph [ ]", "one graph"),
        ("a.gml", b"graph [ node [ ] ]", "id"),
        ("a.gml", b"graph [ node [ id 1 ] edge [ source 1 ] ]", "target"),
        ("a.gml", b"graph " + b"[ a " * 300_000, "is not GML"),
        ("a.gml", b'graph [ node [ id 1 label "a" ] node [ id 2 label "a" ] edge [ source 1 target 2 ] ]', "different"),
        ("a.gml", b"\xff", "line 1: is not text in UTF-8"),
        ("a.json", b"", "is not node-link JSON"),
        ("a.json", b"[" * 300_000, "is not node-link JSON"),
        ("a.json", b"[1, 2]", "is not node-link JSON"),
        ("a.json", b'{"nodes": 5}', "is not node-link JSON"),
        ("a.json", b'{"nodes": []}', "is not node-link JSON"),
        ("a.json", b'{"nodes": [5], "links": []}', "is not node-link JSON"),
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


_DIGITS = b"9" * 5_000
_KEYED = (
    b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="node" attr.name="k" attr.type="%s"/>'
    b"<graph>%s</graph></graphml>"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.graphml", b"<a>" * 300_000),
        ("a.graphml", b"<!DOCTYPE g [<!ENTITY % x SYSTEM 'http://127.0.0.1/x'> %x;]><graphml/>"),
        (
            "a.graphml",
            _KEYED % (b"int", b'<node id="a"><data key="k">%s</data></node>' % _DIGITS),
        ),
        ("a.graphml", _KEYED % (b"moon", b"")),
        (
            "a.graphml",
            _KEYED % (b"int", "<node id='\x9b31m'/><node id='b'/><edge source='b' target='b'/>".encode()),
        ),
        (
            "a.graphml",
            _KEYED % (b"int", b'<node id="a"><data key="&#x9b;31m&#10;&#10;x"/></node>'),
        ),
        ("a.gml", b"graph [ node [ id %s ] ]" % _DIGITS),
        ("a.gml", "graph [ \x1b[31m\x9b€ ]".encode()),
        ("a.gml", b'graph [ node [ id 1 label "\x1b[31m" ] node [ id 2 label "b" ] edge [ source 1 target 2 ] ]'),
        ("a.gml", b"graph [ node [ id 1 node_for_adding 2 ] ]"),
        ("a.gml", b"graph [ node [ id 1 label [ a 1 ] ] node [ id 2 label 2 ] edge [ source 1 target 2 ] ]"),
        ("a.gml", b"graph [ node 5 ]"),
        ("a.json", b'{"a":' * 300_000),
        ("a.json", b'{"nodes": [{"id": %s}], "links": []}' % _DIGITS),
        ("a.json", b'{"nodes": [{"id": "\\u001b[31m"}, {"id": 2}], "links": [{"source": 2, "target": "\\u001b[31m"}]}'),
        ("a.json", b'{"nodes": [{"id": 2}], "links": [{"source": 2, "target": "\\u001b[31m"}]}'),
        ("a.json", b'{"nodes": [{"id": 1}, {"id": "1"}], "links": [{"source": 1, "target": "1"}]}'),
        ("a.json", b'{"nodes": [{"id": 1.5}, {"id": 1}], "links": [{"source": 1, "target": 1.5}]}'),
        ("a.adjlist", b"\x1b[31m a\n"),
    ],
)
def test_no_file_harms_through_networkx(tmp_path: Path, name: str, content: bytes) -> None:
    """Depth, long numbers, terminal escapes, names of NetworkX's own arguments: one line that a terminal can show."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        graphs.read_graph(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("attribute", [b"<node id='a' x='%s'/>", b"<node id='a'><data key='k'>%s</data></node>"])
def test_a_long_attribute_takes_no_quadratic_time(tmp_path: Path, attribute: bytes) -> None:
    """In many pieces 20 MB took a parser ten seconds."""
    path = tmp_path / "a.graphml"
    nodes = attribute % (b"x" * 20_000_000) + b"<node id='b'/><edge source='a' target='b'/>"
    path.write_bytes(_KEYED % (b"string", nodes))
    started = time.process_time()
    assert graphs.read_graph(path).labels == ("a", "b")
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["a.graphml", "a.gml", "a.json", "a.adjlist"])
def test_large_files_and_a_missing_networkx_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    with path.open("wb") as file:
        file.truncate(100_000_001)
    with pytest.raises(InputFileError, match="need at most"):
        graphs.read_graph(path)
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ConfigError, match=r"veilwalk\[networkx\]"):
        graphs.read_graph(path)
