"""Reads and writes laws and schemes as files; chooses a scheme by law, walk and recipients.

A file holds a law, the walk it was designed for, the number of recipients and the names of the nodes. Readers find its
rows by these names and not by position.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from veilwalk.core.archives import read_archive
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.core.records import write_atomically
from veilwalk.core.support import DistanceSupport
from veilwalk.core.version import __version__
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw, DistanceLaw, LawLike, far_law, law_from_rows, parse_far
from veilwalk.design._registry import LawRequest, default_law, default_support, make_from_request
from veilwalk.design._scheme import Scheme
from veilwalk.graphs import Graph, parse_graph_spec

_FORMAT = "veilwalk-law-1"
_SUFFIX = ".npz"
# Numbers of a scheme that a file may hold, with their defaults.
_NUMBERS: dict[str, float] = {"recipients": 1, "train_probability": 1.0, "most_updates": 0, "key_period": 0}
# Updates of a period of nameless keys, and the walk of an overlay: one that goes straight back shows makers.
_KEY_PERIOD, _STRAIGHT = 300, Walk("non-backtracking")


def save_law(
    path: str | Path,
    law: DistanceLaw | DestinationLaw,
    *,
    walk: Walk | None = None,
    labels: Sequence[str] | None = None,
    **scheme: float,
) -> None:
    """Write ``law`` to an ``.npz`` file, whole or not at all.

    ``walk`` is the walk that it was designed for, ``labels`` are the names of its nodes where they are not numbers;
    ``scheme`` holds numbers of :class:`Scheme` that differ from their defaults, by name.
    """
    path = require_law_file("out", path)
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
    content |= {name: value for name, value in scheme.items() if value != _NUMBERS[name]}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **content)
    write_atomically(path, buffer.getvalue())


def load_law(path: str | Path) -> DistanceLaw | DestinationLaw:
    """Read a law written by :func:`save_law`."""
    return _load_file(Path(path)).law


def save_scheme(path: str | Path, scheme: Scheme) -> None:
    """Write a scheme's law, walk and names of nodes; the graph it belongs to is named by its digest."""
    numbers = {name: getattr(scheme, name) for name in _NUMBERS}
    save_law(path, scheme.law, walk=scheme.walk, labels=scheme.graph.labels, **numbers)


def is_law_file(law: str) -> bool:
    """Return whether ``law`` names a file and not a law."""
    return law.endswith(_SUFFIX)


def require_law_file(parameter: str, path: str | Path) -> Path:
    """Return the path of a file of a law or a scheme; refuse one that is called otherwise."""
    if not is_law_file(str(path)):
        raise InvalidParameterError(parameter, str(path), "an .npz file (.json was removed in version 0.3)")
    return Path(path)


def choose_scheme(
    graph: Graph | str,
    law: LawLike | None = None,
    *,
    support: DistanceSupport | tuple[int, int] | str | None = None,
    walk: Walk | str | None = None,
    recipients: int | None = None,
    train_probability: float | None = None,
    most_updates: int | None = None,
    key_period: int | None = None,
) -> Scheme:
    """Return a scheme by its law, walk and recipients; missing parts are chosen to fit the graph.

    Args:
        graph: the network, or its spec.
        law: a law, its name, a file written by :func:`save_scheme`, a matrix of probabilities or a function of the
            graph that returns one; by default the paper's on regular graphs and uniform-node on others.
        support: distances of a law given by name; by default from 2 to 6, or to as far as all nodes reach.
        walk: how ciphertexts walk; by default that of the file, or the simple walk.
        recipients: number of recipients; by default that of the file, or one.
        train_probability: chance that an opener trains and does not only seal again; by default that of the file, or 1.
        most_updates: updates of a member in a run; by default those of the file, or three times the even share.
        key_period: updates of a period of nameless keys; by default those of the file, or on an overlay 300.

    Example:
        >>> from veilwalk.graphs import barabasi_albert
        >>> scheme = choose_scheme(barabasi_albert(50, 2, seed=1))
        >>> scheme.law.name, str(scheme.law.support), round(scheme.price.hops, 1)
        ('uniform-node', '2:3', 85.3)
    """
    graph = parse_graph_spec(graph)
    law = str(law) if isinstance(law, Path) else law
    chosen_walk = None if walk is None else Walk.parse(walk)
    if graph.is_overlay:
        is_file = isinstance(law, str) and is_law_file(law)
        chosen_walk = chosen_walk if is_file else chosen_walk or _STRAIGHT
        key_period = _KEY_PERIOD if key_period is None and not is_file else key_period
    named = {"recipients": recipients, "train_probability": train_probability, "most_updates": most_updates}
    named["key_period"] = key_period
    numbers: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if isinstance(law, str) and is_law_file(law):
        stored = _load_file(Path(law))
        numbers = stored.numbers | numbers
        placed = stored.place_on(graph).named(law)
        if graph.is_overlay and not abs(placed.matrix - far_law(graph, 2).matrix).sum():
            placed = far_law(graph, 2)
        return Scheme(graph, placed, chosen_walk or stored.walk or SIMPLE, designed_for=stored.walk, **numbers)
    if law is not None and not isinstance(law, str):
        on_graph = law.place_on(graph) if isinstance(law, DistanceLaw) else law_from_rows(graph, law)
        return Scheme(graph, on_graph, chosen_walk or SIMPLE, **numbers)
    name = default_law(graph) if law is None else law
    if parse_far(name) is not None:
        if support is not None:
            raise InvalidParameterError("support", str(support), f"left out: the law {name} has its own distances")
        chosen = DistanceSupport(2, 2)
    elif name == "plain":
        chosen = DistanceSupport(1, 1, allow_neighbours=True)
    else:
        chosen = default_support(graph) if support is None else DistanceSupport.parse(support)
    request = LawRequest(graph=graph, support=chosen, walk=chosen_walk or SIMPLE)
    named_law = make_from_request(name, request).law
    return Scheme(graph, named_law, request.walk, designed_for=chosen_walk, **numbers)


@dataclass(frozen=True, eq=False)
class _LawFile:
    """The contents of a law file."""

    law: DistanceLaw | DestinationLaw
    walk: Walk | None
    labels: tuple[str, ...] | None
    numbers: dict[str, Any]

    def place_on(self, graph: Graph) -> DestinationLaw:
        """Return the law on ``graph``, whose nodes may stand in another order than when it was designed."""
        if isinstance(self.law, DistanceLaw):
            return self.law.place_on(graph)
        if self.law.matrix.shape[0] != graph.n_nodes:
            raise InvalidParameterError(
                "graph", f"{graph.n_nodes} nodes", f"of {self.law.matrix.shape[0]}, as the law is for"
            )
        places = _places_by_label(self.labels, graph.labels, graph.n_nodes)
        if places is None:
            return self.law
        positions = np.argsort(places)
        as_designed = Graph.from_edges(graph.n_nodes, np.asarray(places)[graph.edges()])
        self.law.check_graph(as_designed)
        matrix = sparse.csr_array(self.law.matrix[places])
        matrix = sparse.csr_array((matrix.data, positions[matrix.indices], matrix.indptr), shape=matrix.shape)
        matrix.sort_indices()
        return replace(self.law, rows=matrix, graph_digest=graph.digest)


def _places_by_label(own: Sequence[str] | None, other: Sequence[str] | None, n_nodes: int) -> list[int] | None:
    """Return the position in ``own`` of each label of ``other``; None where position decides.

    Without labels a node is called by its number. Position decides between nodes that have labels and nodes that have
    only numbers, for there is nothing else; two lists of different labels are of different networks.
    """
    numbers = tuple(map(str, range(n_nodes)))
    own_names, other_names = (numbers if labels is None else tuple(labels) for labels in (own, other))
    if own_names == other_names:
        return None
    if set(own_names) == set(other_names):
        place = {label: index for index, label in enumerate(own_names)}
        return [place[label] for label in other_names]
    if own is None or other is None:
        return None
    stranger = min(set(other_names) - set(own_names))[:60]
    raise InvalidParameterError(
        "graph", f"a node called {stranger}", "the one the law was designed for, which has none"
    )


def _load_file(path: Path) -> _LawFile:
    content = read_archive(require_law_file("law", path))
    if str(content.get("format")) != _FORMAT:
        raise InputFileError(f"law {path}: not a law file (its format is not {_FORMAT})")
    try:
        walk = Walk.parse(str(content["walk"])) if "walk" in content else None
        labels = tuple(map(str, content["labels"])) if "labels" in content else None
        numbers = {name: type(usual)(content[name]) for name, usual in _NUMBERS.items() if name in content}
        lo, hi = (int(value) for value in content["support"])
        support = DistanceSupport(lo, hi, allow_neighbours=lo < 2)
        if str(content["kind"]) == "distance":
            pmf = np.asarray(content["distance_pmf"], dtype=np.float64)
            sizes = (int(content.get(name, 0)) or None for name in ("n_nodes", "degree"))
            return _LawFile(DistanceLaw(support, pmf, *sizes), walk, labels, numbers)
        indptr, indices = np.asarray(content["indptr"]), np.asarray(content["indices"])
        size = len(indptr) - 1
        data = np.asarray(content["data"], dtype=np.float64)
        matrix = sparse.csr_array((data, indices, indptr), shape=(size, size))
        # SciPy trusts index arrays by default and reads out of bounds where they are wrong.
        matrix.check_format(full_check=True)
        law = DestinationLaw(support, str(content["graph_digest"]), matrix, str(content.get("name", "")))
        return _LawFile(law, walk, labels, numbers)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputFileError(f"law {path}: not a law file ({error})") from error
