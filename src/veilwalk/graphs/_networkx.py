"""Builds graphs from NetworkX objects, and reads through NetworkX the formats that list nodes.

These formats are GraphML, GML, node-link JSON and adjacency lists; NetworkX is an optional library. It trusts what it
reads. So the bytes are checked before NetworkX sees them, each of its errors becomes one line, and the nodes of its
graph are compared with those that the file lists.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from types import MappingProxyType
from typing import Any
from xml.parsers import expat

import numpy as np

from veilwalk.core.errors import ConfigError, GraphError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.graphs._edge_lists import content_lines, decode_text
from veilwalk.graphs._graph import Graph

# NetworkX takes some thirty bytes of memory for each byte of GraphML.
_BYTES_LIMIT = 100_000_000
_XML_DEPTH = 100
_SHOWN_CHARACTERS = 120
_XML_ATTRIBUTES = {"node": ("id",), "edge": ("source", "target")}


def from_networkx(network: Any, *, largest_component: bool = False) -> Graph:
    """Build a graph from an undirected NetworkX graph; nodes are numbered in its own order, labelled by their text.

    Args:
        network: The NetworkX graph; edge attributes are not looked at.
        largest_component: Keep the largest component instead of refusing a disconnected graph.
    """
    if not all(hasattr(network, name) for name in ("nodes", "edges", "is_directed")):
        raise InvalidParameterError("network", type(network).__name__, "a NetworkX graph")
    if network.is_directed():
        raise GraphError("the NetworkX graph is directed: must be undirected (see its to_undirected)")
    return _build_graph(network, list(network.nodes), largest_component=largest_component)


def read_through_networkx(data: bytes, suffix: str, *, largest_component: bool) -> Graph:
    """Read the bytes of a file whose name ends in ``suffix``, one of :data:`NETWORKX_FORMATS`."""
    format_name, parse = NETWORKX_FORMATS[suffix]
    try:
        import networkx as nx
    except ModuleNotFoundError as error:
        if error.name != "networkx":
            raise
        raise ConfigError(f"{format_name} is read by NetworkX: pip install 'veilwalk[networkx]' brings it") from error
    if len(data) > _BYTES_LIMIT:
        raise InputFileError(f"has {len(data)} bytes: need at most {_BYTES_LIMIT}, or an edge list")
    try:
        with warnings.catch_warnings():
            # NetworkX warns of attributes, which nobody looks at here.
            warnings.simplefilter("ignore")
            network, labels = parse(nx, data)
    except VeilwalkError:
        raise
    except Exception as error:
        raise InputFileError(f"is not {format_name} that NetworkX reads: {_summarise_error(error)}") from error
    if not network.number_of_edges():
        raise InputFileError("has no edges")
    if network.is_directed():
        arcs = set(network.edges())
        one_way = sum((target, source) not in arcs for source, target in arcs)
        if one_way:
            raise GraphError(f"{one_way} directed edges have no reverse: must be undirected")
    return _build_graph(network, labels, merge_repeats=True, largest_component=largest_component)


def _build_graph(
    network: Any, labels: Sequence[Any], *, merge_repeats: bool = False, largest_component: bool = False
) -> Graph:
    number = {node: index for index, node in enumerate(network.nodes)}
    ends = [(number[edge[0]], number[edge[1]]) for edge in network.edges]
    return Graph.from_edges(
        len(number),
        np.array(ends, dtype=np.int64).reshape(-1, 2),
        merge_repeats=merge_repeats,
        largest_component=largest_component,
        labels=list(map(str, labels)),
    )


def _parse_graphml(nx: Any, data: bytes) -> tuple[Any, list[Any]]:
    """Return the NetworkX graph and the label of each node, as all parsers do."""
    ids = _check_graphml(data)
    network = nx.read_graphml(_WholeFile(data))
    return _require_listed(network, ids), ids


def _parse_gml(nx: Any, data: bytes) -> tuple[Any, list[Any]]:
    """Nodes are called by their labels where each has one, else by their ids."""
    network = nx.parse_gml(decode_text(data).replace("\r\n", "\n").split("\n"), label="id")
    labels = [attributes.get("label") for _, attributes in network.nodes(data=True)]
    labels = list(network) if None in labels else labels
    _require_names(labels)
    return network, labels


def _parse_node_link(nx: Any, data: bytes) -> tuple[Any, list[Any]]:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise InputFileError("is not node-link JSON: need an object with a list of nodes")
    ids = [node["id"] for node in document["nodes"]]
    _require_names(ids)
    network = nx.node_link_graph(document, edges="links" if "links" in document else "edges")
    return _require_listed(network, ids), ids


def _parse_adjacency_list(nx: Any, data: bytes) -> tuple[Any, list[Any]]:
    # Comments are gone by now; behind a label the mark belongs to it.
    network = nx.parse_adjlist([line for _, line in content_lines(data)], comments="\n")
    return network, list(network)


class _WholeFile(BytesIO):
    """A file that is read in one piece: a long attribute in many pieces takes a parser quadratic time."""

    def read(self, _size: int | None = -1) -> bytes:
        return super().read()


def _check_graphml(data: bytes) -> list[str]:
    """Return the ids of the nodes; refuse XML that would expand, nest deeply or hold more than one graph."""
    ids: list[str] = []
    depth = graphs = 0

    def refuse_doctype(*_: object) -> None:
        # Entities are declared there, and a few lines of them expand to gigabytes.
        raise InputFileError("has a DOCTYPE: need GraphML without one")

    def open_element(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth, graphs
        kind = tag.rpartition(":")[2]
        depth += 1
        graphs += kind == "graph"
        if depth > _XML_DEPTH:
            raise InputFileError(f"is nested more than {_XML_DEPTH} levels deep")
        if graphs > 1:
            raise InputFileError("holds several graphs or nested ones: need a single graph")
        for name in _XML_ATTRIBUTES.get(kind, ()):
            if name not in attributes:
                raise InputFileError(f"has {kind} without {name}")
        if kind == "node":
            ids.append(attributes["id"])

    def close_element(_tag: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse_doctype
    parser.StartElementHandler = open_element
    parser.EndElementHandler = close_element
    parser.Parse(data, True)  # noqa: FBT003  (it takes no name)
    return ids


def _require_names(labels: list[Any]) -> None:
    if any(isinstance(label, bool) or not isinstance(label, str | int) for label in labels):
        raise InputFileError("has a node whose name is neither text nor a whole number")


def _require_listed(network: Any, ids: list[Any]) -> Any:
    """Return ``network`` if its nodes are those of the file: NetworkX adds a node that only an edge names."""
    if list(network) == ids:
        return network
    unlisted = set(network) - set(ids)
    if unlisted:
        raise InputFileError(f"an edge names {str(min(unlisted, key=str))[:60]!r}, which is no node")
    raise InputFileError("lists a node more than once")


def _summarise_error(error: Exception) -> str:
    """Return an error on one line that a terminal can show: it may quote the file."""
    text = f"{type(error).__name__}: {str(error)[:_SHOWN_CHARACTERS]}"
    return "".join(char if char.isprintable() else " " for char in text)


#: The formats that NetworkX reads, by the end of a file's name: what each is called, and what parses it.
NETWORKX_FORMATS: Mapping[str, tuple[str, Callable[[Any, bytes], tuple[Any, list[Any]]]]] = MappingProxyType(
    {
        ".graphml": ("GraphML", _parse_graphml),
        ".gml": ("GML", _parse_gml),
        ".json": ("node-link JSON", _parse_node_link),
        ".adjlist": ("an adjacency list", _parse_adjacency_list),
    }
)
