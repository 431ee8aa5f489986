"""Files that list nodes as well as edges: GraphML, GML, node-link JSON; and adjacency lists."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import ParseError, XMLParser

import numpy as np

from veilwalk.core.errors import GraphError, InputFileError
from veilwalk.graphs._edge_lists import Edges, content_lines, decoded

_GML_TOKEN = re.compile(r'\s+|#[^\n]*|("[^"]*"|[\[\]]|[^\s\[\]"#]+)')


def read_graphml(data: bytes) -> Edges:
    """Read GraphML; nodes are called by their ids."""
    # Its own event handler rather than a tree: nothing grows with what the file says beyond nodes and edges.
    found = _GraphML()
    parser = XMLParser(target=found)  # noqa: S314  (entities are refused with the DOCTYPE that declares them)
    try:
        parser.feed(data)
        parser.close()
    except ParseError as error:
        raise InputFileError(f"is not GraphML: {error}") from error
    except (ValueError, LookupError) as error:
        raise InputFileError("is not GraphML: its encoding is unknown") from error
    if not found.has_graph:
        raise InputFileError("is not GraphML: has no graph")
    return _numbered(found.nodes, found.pairs, directed=found.directed)


class _GraphML:
    """What an XML parser meets, kept as far as it matters."""

    def __init__(self) -> None:
        self.nodes: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        self.directed = False
        self.has_graph = False
        self._default = False

    def doctype(self, *_: object) -> None:
        # Entities are declared there, and a few lines of them expand to gigabytes.
        raise InputFileError("has a DOCTYPE: need GraphML without one")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        kind = tag.rpartition("}")[2]
        if kind == "graph":
            if self.has_graph:
                raise InputFileError("holds several graphs or nested ones: need a single graph")
            self.has_graph = True
            self._default = attributes.get("edgedefault") == "directed"
        elif kind == "node":
            self.nodes.append(_attribute("a node", attributes, "id"))
        elif kind == "edge":
            source, target = (_attribute("an edge", attributes, end) for end in ("source", "target"))
            self.pairs.append((source, target))
            own = attributes.get("directed")
            self.directed |= self._default if own is None else own == "true"
        elif kind == "hyperedge":
            raise InputFileError("has hyperedges: need edges between two nodes")

    def close(self) -> None:
        """Nothing is open; the parser asks for this method."""


def _attribute(kind: str, attributes: dict[str, str], name: str) -> str:
    if name not in attributes:
        raise InputFileError(f"has {kind} without {name}")
    return attributes[name]


def read_gml(data: bytes) -> Edges:
    """Read GML; nodes are called by their labels where each has one, else by their ids."""
    nodes: list[dict[str, str]] = []
    pairs: list[tuple[str, str]] = []
    directed = False
    lists = _gml_lists(decoded(data))
    if sum(path == ["graph"] for path, _ in lists) != 1:
        raise InputFileError("is not GML of one graph")
    for path, values in lists:
        if path == ["graph", "node"]:
            nodes.append(values)
        elif path == ["graph", "edge"]:
            pairs.append((_value(values, "an edge", "source"), _value(values, "an edge", "target")))
        elif path == ["graph"]:
            directed |= values.get("directed", "0") != "0"
    ids = [_value(node, "a node", "id") for node in nodes]
    labels = [html.unescape(node["label"]) for node in nodes if "label" in node]
    return _numbered(ids, pairs, directed=directed, labels=labels if len(labels) == len(ids) else None)


def _gml_lists(text: str) -> list[tuple[list[str], dict[str, str]]]:
    """Return every ``key [...]`` as the keys that lead there and its plain values."""
    found: list[tuple[list[str], dict[str, str]]] = []
    path: list[str] = []
    open_values: list[dict[str, str]] = [{}]
    key, at = "", 0
    while at < len(text):
        match = _GML_TOKEN.match(text, at)
        if match is None:
            raise InputFileError(f"line {text.count(chr(10), 0, at) + 1}: is not GML: a quotation mark is not closed")
        at, word = match.end(), match[1]
        if word is None:
            continue
        if word == "]" and path and not key:
            # Deep nesting means nothing here; its paths would grow with the square of the depth.
            values = open_values.pop()
            if len(path) <= 2:
                found.append((path.copy(), values))
            path.pop()
        elif word == "[" and key:
            path.append(key)
            open_values.append({})
            key = ""
        elif word not in "[]" and key:
            open_values[-1][key] = word.strip('"')
            key = ""
        elif word[0].isalpha():
            key = word
        else:
            line = text.count("\n", 0, match.start()) + 1
            raise InputFileError(f"line {line}: is not GML: {word[:60]!r} is out of place")
    if path or key:
        raise InputFileError("is not GML: ends before its last list does")
    return found


def _value(values: dict[str, str], kind: str, name: str) -> str:
    if name not in values:
        raise InputFileError(f"has {kind} without {name}: need a graph with nodes and edges")
    return values[name]


def read_node_link(data: bytes) -> Edges:
    """Read node-link JSON, as NetworkX writes it."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputFileError(f"is not JSON: {str(error).splitlines()[0]}") from error
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise InputFileError("is not node-link JSON: need an object with a list of nodes")
    links = document.get("links", document.get("edges"))
    if not isinstance(links, list):
        raise InputFileError("is not node-link JSON: need a list of links, or of edges")
    nodes = [_member(node, "a node", "id") for node in document["nodes"]]
    pairs = [(_member(link, "a link", "source"), _member(link, "a link", "target")) for link in links]
    return _numbered(nodes, pairs, directed=bool(document.get("directed")))


def _member(values: Any, kind: str, name: str) -> str:
    found = values.get(name) if isinstance(values, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise InputFileError(f"has {kind} whose {name} is neither text nor a whole number")
    return str(found)


def read_adjacency_list(data: bytes) -> Edges:
    """Read an adjacency list: a node, then its neighbours, separated by blanks."""
    rows = [line.split() for _, line in content_lines(data)]
    nodes = list(dict.fromkeys(label for row in rows for label in row))
    return _numbered(nodes, [(row[0], other) for row in rows for other in row[1:]], directed=False)


def _numbered(
    ids: list[str], pairs: list[tuple[str, str]], *, directed: bool, labels: Sequence[str] | None = None
) -> Edges:
    """Number the nodes in the order of the file."""
    number = {label: index for index, label in enumerate(ids)}
    if len(number) < len(ids):
        raise InputFileError(f"lists node {Counter(ids).most_common(1)[0][0][:60]!r} more than once")
    if not pairs:
        raise InputFileError("has no edges")
    for end in (end for pair in pairs for end in pair):
        if end not in number:
            raise InputFileError(f"an edge names {end[:60]!r}, which is no node")
    if directed:
        one_way = len(set(pairs) - {(target, source) for source, target in pairs})
        if one_way:
            raise GraphError(f"{one_way} directed edges have no reverse: must be undirected")
    ends = [(number[source], number[target]) for source, target in pairs]
    return Edges(np.array(ends, dtype=np.int64), tuple(ids if labels is None else labels))
