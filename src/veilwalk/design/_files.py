"""Laws and schemes as files: what ``design`` writes and everything else reads.

A file holds a law; the walk it was designed for stands beside it, so that nobody walks another by mistake, and so do
the names of the nodes, so that its rows are found by name and not by place.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from veilwalk.core import validate
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.core.records import plain, write_atomically
from veilwalk.core.support import DistanceSupport
from veilwalk.core.version import __version__
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw, DistanceLaw, far_of
from veilwalk.design._registry import default_law, default_support, make_law
from veilwalk.design._scheme import Scheme
from veilwalk.graphs import Graph, parse_graph_spec

_FORMAT = "veilwalk-law-1"
_SUFFIXES = (".json", ".npz")


def save_law(
    path: str | Path,
    law: DistanceLaw | DestinationLaw,
    *,
    walk: Walk | None = None,
    labels: Sequence[str] | None = None,
    recipients: int = 1,
) -> None:
    """Write ``law`` to a ``.json`` or ``.npz`` file, whole or not at all.

    Args:
        path: the file.
        law: what to write.
        walk: the walk that it was designed for.
        labels: what its nodes are called, where that is not their number.
        recipients: for how many a source seals.
    """
    path = Path(path)
    content: dict[str, Any] = {
        "format": _FORMAT,
        "version": __version__,
        "support": np.array([law.support.lo, law.support.hi]),
    }
    if isinstance(law, DistanceLaw):
        content |= {"kind": "distance", "distance_pmf": law.distance_pmf}
        content |= {"n_nodes": law.n_nodes or 0, "degree": law.degree or 0}
    else:
        matrix = law.matrix
        content |= {"kind": "destination", "graph_digest": law.graph_digest, "name": law.name}
        content |= {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data}
    if walk is not None:
        content["walk"] = str(walk)
    if labels is not None:
        content["labels"] = np.array(labels)
    if recipients != 1:
        content["recipients"] = recipients
    match path.suffix:
        case ".json":
            data = json.dumps(plain(content), allow_nan=False).encode()
        case ".npz":
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **content)
            data = buffer.getvalue()
        case _:
            raise InvalidParameterError("out", str(path), "a .json or .npz file")
    write_atomically(path, data)


def load_law(path: str | Path) -> DistanceLaw | DestinationLaw:
    """Read a law written by :func:`save_law`."""
    return _loaded(Path(path)).law


def save_scheme(path: str | Path, scheme: Scheme) -> None:
    """Write a scheme's law, walk and names of nodes; the graph it belongs to is named by its digest."""
    save_law(path, scheme.law, walk=scheme.walk, labels=scheme.graph.labels, recipients=scheme.recipients)


def choose_scheme(
    graph: Graph | str,
    law: str | Path | DistanceLaw | DestinationLaw | None = None,
    *,
    support: DistanceSupport | tuple[int, int] | str | None = None,
    walk: Walk | str | None = None,
    recipients: int | None = None,
) -> Scheme:
    """Return the scheme that is asked for, with whatever fits the graph where nothing is said.

    Args:
        graph: the network, or its spec.
        law: a law, its name, or a file written by :func:`save_scheme`; by default the paper's on regular graphs and
            uniform-node on others.
        support: distances of a law given by name; by default from 2 to 6, or to as far as all nodes reach.
        walk: how ciphertexts walk; by default as the file says, or the simple walk.
        recipients: for how many a source seals; by default as the file says, or one.

    Example:
        >>> from veilwalk.graphs import barabasi_albert
        >>> scheme = choose_scheme(barabasi_albert(50, 2, seed=1))
        >>> scheme.law.name, str(scheme.law.support), round(scheme.price.hops, 1)
        ('uniform-node', '2:3', 85.3)
    """
    graph = parse_graph_spec(graph)
    wanted = None if walk is None else Walk.parse(walk)
    law = str(law) if isinstance(law, Path) else law
    if isinstance(law, str) and law.endswith(_SUFFIXES):
        found = _loaded(Path(law))
        placed = found.on(graph).named(law)
        several = found.recipients if recipients is None else recipients
        return Scheme(graph, placed, wanted or found.walk or SIMPLE, recipients=several, designed_for=found.walk)
    several = 1 if recipients is None else recipients
    if isinstance(law, DistanceLaw | DestinationLaw):
        on_graph = law.on(graph) if isinstance(law, DistanceLaw) else law
        return Scheme(graph, on_graph, wanted or SIMPLE, recipients=several)
    name = default_law(graph) if law is None else law
    validate.instance(str, "the name of a law, a file of one, a DistanceLaw or a DestinationLaw", law=name)
    if far_of(name) is not None:
        if support is not None:
            raise InvalidParameterError("support", str(support), f"left out: the law {name} says its distances")
        chosen = DistanceSupport(2, 2)
    elif name == "plain":
        chosen = DistanceSupport(1, 1, allow_neighbours=True)
    else:
        chosen = default_support(graph) if support is None else DistanceSupport.parse(support)
    made = make_law(name, graph, chosen, walk=wanted or SIMPLE)
    return Scheme(graph, made, wanted or SIMPLE, recipients=several, designed_for=wanted)


@dataclass(frozen=True, eq=False)
class _Loaded:
    """What a file holds."""

    law: DistanceLaw | DestinationLaw
    walk: Walk | None
    labels: tuple[str, ...] | None
    recipients: int = 1

    def on(self, graph: Graph) -> DestinationLaw:
        """Return the law on ``graph``, whose nodes may stand in another order than when it was designed."""
        if isinstance(self.law, DistanceLaw):
            return self.law.on(graph)
        if self.law.matrix.shape[0] != graph.n_nodes:
            raise InvalidParameterError(
                "graph", f"{graph.n_nodes} nodes", f"of {self.law.matrix.shape[0]}, as the law is for"
            )
        places = _places_by_label(self.labels, graph.labels, graph.n_nodes)
        if places is None:
            return self.law
        there = np.argsort(places)
        as_designed = Graph.from_edges(graph.n_nodes, np.asarray(places)[graph.edges()])
        self.law.check_graph(as_designed)
        matrix = sparse.csr_array(self.law.matrix[places])
        matrix = sparse.csr_array((matrix.data, there[matrix.indices], matrix.indptr), shape=matrix.shape)
        matrix.sort_indices()
        return replace(self.law, rows=matrix, graph_digest=graph.digest)


def _places_by_label(own: Sequence[str] | None, wanted: Sequence[str] | None, n_nodes: int) -> list[int] | None:
    """Return where each of ``wanted`` stands in ``own``; None where position decides.

    Without labels a node is called by its number. Position decides between nodes that have labels and nodes that have
    only numbers, for there is nothing else; two lists of different labels are of different networks.
    """
    numbers = tuple(map(str, range(n_nodes)))
    here, there = (numbers if labels is None else tuple(labels) for labels in (own, wanted))
    if here == there:
        return None
    if set(here) == set(there):
        place = {label: index for index, label in enumerate(here)}
        return [place[label] for label in there]
    if own is None or wanted is None:
        return None
    stranger = min(set(there) - set(here))[:60]
    raise InvalidParameterError(
        "graph", f"a node called {stranger}", "the one the law was designed for, which has none"
    )


def _loaded(path: Path) -> _Loaded:
    try:
        content = _read(path)
        if str(content["format"]) != _FORMAT:
            raise InputFileError(f"law {path}: format {content['format']} is not {_FORMAT}")
        walk = Walk.parse(str(content["walk"])) if "walk" in content else None
        labels = tuple(map(str, content["labels"])) if "labels" in content else None
        several = int(content.get("recipients", 1))
        lo, hi = (int(value) for value in content["support"])
        support = DistanceSupport(lo, hi, allow_neighbours=lo < 2)
        if str(content["kind"]) == "distance":
            pmf = np.asarray(content["distance_pmf"], dtype=np.float64)
            sizes = (int(content.get(name, 0)) or None for name in ("n_nodes", "degree"))
            return _Loaded(DistanceLaw(support, pmf, *sizes), walk, labels, several)
        indptr, indices = np.asarray(content["indptr"]), np.asarray(content["indices"])
        size = len(indptr) - 1
        data = np.asarray(content["data"], dtype=np.float64)
        matrix = sparse.csr_array((data, indices, indptr), shape=(size, size))
        # SciPy trusts index arrays by default and reads out of bounds where they are wrong.
        matrix.check_format(full_check=True)
        law = DestinationLaw(support, str(content["graph_digest"]), matrix, str(content.get("name", "")))
        return _Loaded(law, walk, labels, several)
    except OSError as error:
        raise InputFileError(f"law {path}: {error.strerror or error}") from error
    except (KeyError, ValueError, TypeError, OverflowError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"law {path}: not a law file ({error})") from error


def _read(path: Path) -> Mapping[str, Any]:
    match path.suffix:
        case ".json":
            content = json.loads(path.read_text())
            if not isinstance(content, dict):
                raise InputFileError(f"law {path}: not a law file (no object)")
            return content
        case ".npz":
            # From memory: NumPy leaves a file open that turns out not to be an archive.
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        case _:
            raise InvalidParameterError("law", str(path), "a .json or .npz file")
