"""Reads graphs from files, and builds them from the objects of other libraries.

GraphML, GML, node-link JSON and adjacency lists are read through NetworkX, an optional library. It trusts what it
reads. So the bytes are checked before NetworkX sees them, each of its errors becomes one line, and the nodes of its
graph are compared with those that the file lists.
"""

from __future__ import annotations

import csv
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn
from xml.parsers import expat

import numpy as np
import numpy.typing as npt
from scipy import io, sparse

from veilwalk.core.archives import read_archive, read_bytes
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.core.rooms import import_extra
from veilwalk.core.tables import is_number
from veilwalk.graphs._graph import Graph

_log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"
_PICKLE = b"\x80"
_PICKLE_NAMES = (".pickle", ".pkl", ".gpickle")
_SEPARATORS = b" \t,;\r\n"
_SEPARATORS_TO_BLANKS = bytes.maketrans(b",;\r", b"   ")
_COMMENT = re.compile(rb"^[ \t\r,;]*[#%].*$", re.MULTILINE)
# Digits behind a zero are a code, since 007 is not 7; more than 18 digits may not fit into an integer.
_DIGITS_OF_A_LABEL = re.compile(rb"(?<![0-9])0[0-9]|[0-9]{19}")
# No zero in front, since 007 is not 7, and no more digits than int() takes.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,999}")
_FIELD = re.compile(r'"([^"]*)"|([^ \t\r,;]+)')
_QUOTED = re.compile(r'"[^"]*"')
_ATTRIBUTES = re.compile(r"[\s,;]\{(?:\}$|['\"])")
_IGNORED = "columns after the second are ignored"
# NetworkX takes some thirty bytes of memory for each byte of GraphML.
_BYTES_LIMIT = 100_000_000
_XML_DEPTH = 100
_SHOWN_CHARACTERS = 120
_XML_ATTRIBUTES = {"node": ("id",), "edge": ("source", "target")}


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
    if path.is_dir():
        raise InputFileError(f"{path}: is a directory, need a file")
    if not path.exists():
        raise InputFileError(f"{path}: no such file")
    data = read_bytes(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    arrays = read_archive(path, content=data) if suffix == ".npz" else {}
    try:
        graph, notices = _read(data, suffix, arrays, largest_component=largest_component)
    except (InputFileError, InvalidParameterError) as error:
        raise InputFileError(f"{path}: {error}") from error
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error
    if notices:
        _log.warning("%s: %s", path, "; ".join(notices))
    return graph.named(f"file:{path}:component=largest" if largest_component else f"file:{path}")


def _read(
    data: bytes, suffix: str, arrays: Mapping[str, npt.NDArray[Any]], *, largest_component: bool
) -> tuple[Graph, Sequence[str]]:
    if suffix == ".mtx":
        matrix = _read_matrix_market(data)
        from_one = [str(number + 1) for number in range(matrix.shape[0])]
        return from_sparse(matrix, largest_component=largest_component, labels=from_one), ()
    if suffix == ".npz":
        return _read_npz(data, arrays, largest_component=largest_component), ()
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
    """Build a graph from any SciPy sparse adjacency matrix: see :meth:`Graph.from_csr`."""
    is_sparse = sparse.issparse(matrix)
    if not is_sparse:
        raise InvalidParameterError("matrix", type(matrix).__name__, "a SciPy sparse matrix or array")
    return Graph.from_csr(sparse.csr_array(matrix), largest_component=largest_component, labels=labels)


def from_networkx(network: Any, *, largest_component: bool = False) -> Graph:
    """Build a graph from an undirected NetworkX graph, in its order, labelled by the text of its nodes."""
    if not all(hasattr(network, name) for name in ("nodes", "edges", "is_directed")):
        raise InvalidParameterError("network", type(network).__name__, "a NetworkX graph")
    if network.is_directed():
        raise GraphError("the NetworkX graph is directed: must be undirected (see its to_undirected)")
    return _build_graph(network, list(network.nodes), largest_component=largest_component)


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


def _read_npz(data: bytes, arrays: Mapping[str, npt.NDArray[Any]], *, largest_component: bool) -> Graph:
    try:
        matrix = sparse.load_npz(BytesIO(data)) if "format" in arrays else None
        labels = arrays["labels"].astype(str).ravel().tolist() if "labels" in arrays else None
    except (ValueError, KeyError, TypeError, AttributeError, NotImplementedError) as error:
        raise InputFileError(f"is not an npz file of plain arrays: {_first_line(error)}") from error
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


class Edges(NamedTuple):
    """What a file says: the two ends of each edge by number, the labels, and what was passed over."""

    pairs: IntArray
    labels: tuple[str, ...] | None = None
    notices: tuple[str, ...] = ()


class _Row(NamedTuple):
    line: int
    text: str
    fields: list[str]

    def refuse(self, need: str) -> NoReturn:
        raise InputFileError(f"line {self.line}: {self.text[:60]!r}: {need}")


def read_edge_list(data: bytes) -> Edges:
    """Read an edge list: as a table where it holds whole numbers only, else by label."""
    body = _COMMENT.sub(b"", data) if b"#" in data or b"%" in data else data
    numbers, notices = _parse_whole_numbers(body), []
    if numbers is None:
        start = len(body) - len(body.lstrip())
        end = body.find(b"\n", start) + 1 or len(body)
        header = _fields(body[start:end].decode("utf-8", "replace").strip(), None)
        if len(header) > 1 and not any(map(_WHOLE.fullmatch, header[:2])):
            numbers = _parse_whole_numbers(body[end:])
            notices.append(_header_notice(body.count(b"\n", 0, start) + 1, header))
    if numbers is None or numbers.shape[1] < 2 or bool(np.any(numbers[:, 0] == numbers[:, 1])):
        # What is wrong there is said with its line.
        return _read_by_label(data)
    if numbers.shape[1] > 2:
        notices.append(_IGNORED)
    used, places = np.unique(numbers[:, :2], return_inverse=True)
    labels = None if used[-1] == len(used) - 1 else tuple(map(str, used.tolist()))
    return Edges(places.reshape(-1, 2), labels, tuple(notices))


def _parse_whole_numbers(text: bytes) -> IntArray | None:
    """Return the table of a text that holds whole numbers only, as many on each line; None for any other text."""
    if (
        not text.strip(_SEPARATORS)
        or text.translate(None, b"0123456789" + _SEPARATORS)
        or _DIGITS_OF_A_LABEL.search(text)
    ):
        return None
    try:
        return np.loadtxt(text.translate(_SEPARATORS_TO_BLANKS).decode().split("\n"), dtype=np.int64, ndmin=2)
    except ValueError:
        # Lines of different lengths.
        return None


def decode_text(data: bytes) -> str:
    """Return ``data`` as text."""
    if b"\0" in data:
        raise InputFileError("is not a text file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputFileError(f"line {line}: is not text in UTF-8") from error


def content_lines(data: bytes) -> Iterable[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    for number, line in enumerate(decode_text(data).split("\n"), 1):
        bare = line.strip()
        if bare and bare[0] not in "#%":
            yield number, bare


def _read_by_label(data: bytes) -> Edges:
    rows, notices = _rows(list(content_lines(data))), []
    if not rows:
        raise InputFileError("has no edges")
    header = rows[0]
    others = {label for row in rows[1:] for label in row.fields[:2]}
    # Both fields nowhere else: as an edge the line would be a component of its own.
    if others and not any(field in others or _WHOLE.fullmatch(field) for field in header.fields[:2]):
        del rows[0]
        notices.append(_header_notice(header.line, header.fields))
    if len(rows[0].fields) > 2:
        notices.append(_IGNORED)
    for row in rows:
        if len(row.fields) != len(rows[0].fields):
            row.refuse(f"has {len(row.fields)} columns, the lines before it {len(rows[0].fields)}")
        if row.fields[0] == row.fields[1]:
            row.refuse("is a self-loop, the graph must be simple")
    labels = {label for row in rows for label in row.fields[:2]}
    words = [label for label in labels if not _WHOLE.fullmatch(label)]
    if 0 < len(words) < len(labels):
        notices.append(f"some labels are whole numbers, others such as {min(words)[:60]!r} are not")
    ordered = sorted(labels) if words else sorted(labels, key=int)
    number = {label: index for index, label in enumerate(ordered)}
    ends = [(number[row.fields[0]], number[row.fields[1]]) for row in rows]
    return Edges(np.array(ends, dtype=np.int64), tuple(ordered), tuple(notices))


def _rows(lines: list[tuple[int, str]]) -> list[_Row]:
    """Split lines at the tab, semicolon or comma that all of them have, else at any of these and at blanks."""
    bare = [_without_attributes(line) for _, line in lines]
    unquoted = [_QUOTED.sub("", line) for line in bare]
    delimiter = next((mark for mark in "\t;," if all(mark in line for line in unquoted)), None)
    rows = []
    for (number, line), content in zip(lines, bare, strict=True):
        row = _Row(number, line, _fields(content, delimiter))
        if len(row.fields) < 2 or not all(row.fields[:2]):
            row.refuse("need two labels")
        if delimiter is None and number != lines[0][0] and not all(map(is_number, row.fields[2:])):
            row.refuse("need two labels, and only numbers after them (labels with blanks need commas or tabs)")
        if content != line:
            row.fields.append(line[len(content) :])
        rows.append(row)
    return rows


def _without_attributes(line: str) -> str:
    """Return ``line`` without the ``{...}`` that NetworkX puts behind an edge."""
    attributes = _ATTRIBUTES.search(line) if line.endswith("}") else None
    return line[: attributes.start()].rstrip(" \t,;") if attributes else line


def _fields(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return [quoted.strip() or plain for quoted, plain in _FIELD.findall(line)]
    try:
        row = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error:
        return []
    return [field.strip() for field in row]


def _header_notice(line: int, fields: list[str]) -> str:
    return f"line {line} ({', '.join(fields)[:60]}) is taken for a header"


def read_through_networkx(data: bytes, suffix: str, *, largest_component: bool) -> Graph:
    """Read the bytes of a file whose name ends in ``suffix``, one of :data:`NETWORKX_FORMATS`."""
    format_name, parse = NETWORKX_FORMATS[suffix]
    nx = import_extra("networkx", "networkx")
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
