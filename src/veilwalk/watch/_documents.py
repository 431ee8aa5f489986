"""Documents for a page: small plain data, the same live, in a replay and in a file that stands alone.

A document is a mapping with a ``kind``. A page needs all of them in order. A document with the state of something
(``about``, ``points``, ``state``, ``result``, ``status``) replaces the one before.

================  ==================================================================================================
``about``         Title and facts of the run, and what the page must say besides
``network``       Places of the nodes, from 0 to 1000, edges as a flat list of pairs, labels where there are any
``deliveries``    Columns of updates in the order in which they happened, with the last hops of each leg
``points``        Evaluations of one algorithm
``state``         How far each algorithm is, and whether all is done
``posterior``     An observer's posterior of one delivery
``price``         Predicted hops of an update
``result``        Means over the whole run, once it has ended
``event``         Something that happened: kill, lost walk, fork, merge, end
``status``        A real node's own state
================  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.graphs import Graph, distances

Document = Mapping[str, Any]

# Nodes beyond which no map is drawn.
_MOST_NODES = 5_000
_PIVOTS = 40
# Pairs that are pushed apart in all: some seconds on a graph of 2,000 nodes.
_PUSHES = 60_000_000
_MOST_STEPS, _FEWEST_STEPS = 150, 20
_SIZE = 1000
MAP = (
    "A map of where the token is, is the very observer that the scheme gives no protection against. Only a simulation, "
    "and a cluster on your own machine, has one; nothing in a real network draws it, and no node could."
)


class Source:
    """A run, a cluster or a node that documents are read from; ``finished`` where no more of them will come."""

    finished = False

    def __init__(self, *first: Document) -> None:
        self._first = first

    def read_news(self) -> Iterator[Document]:
        """Yield what is new since the last call; what is known from the start comes first."""
        first, self._first = self._first, ()
        yield from first
        yield from self._read()

    def _read(self) -> Iterable[Document]:
        raise NotImplementedError

    def compute(self) -> Iterable[Document] | None:
        """Return what takes long to compute; None where that cannot begin yet."""
        return ()


def note(text: str) -> Document:
    """Return a remark as an event."""
    return {"kind": "event", "at": 0, "what": "note", "text": text}


def draw_network(graph: Graph, labels: Iterable[str] | None = None) -> Document:
    """Return the map of a network; of too large a network only its size."""
    names = graph.labels if labels is None else tuple(labels)
    about = {"kind": "network", "nodes": graph.n_nodes, "labels": None if names is None else list(names)}
    if graph.n_nodes > _MOST_NODES:
        return about | {"x": [], "y": [], "edges": []}
    places = layout(graph)
    return about | {"x": places[:, 0].tolist(), "y": places[:, 1].tolist(), "edges": graph.edges().ravel().tolist()}


def layout(graph: Graph) -> IntArray:
    """Return a place for every node (row), from 0 to 1000 each way; the same graph has the same places.

    First by the principal axes of the distances to a few pivots; then springs along edges and a repulsion between all
    pairs, with smaller and smaller steps.
    """
    if graph.n_nodes == 1:
        return np.full((1, 2), _SIZE // 2)
    places = _spring_layout(graph, _pivot_layout(graph))
    low, high = places.min(axis=0), places.max(axis=0)
    span = float((high - low).max()) or 1.0
    return np.asarray(np.rint(((places - (low + high) / 2) / span + 0.5) * _SIZE), dtype=np.int64)


def _pivot_layout(graph: Graph) -> FloatArray:
    """Return places by pivot distances; nodes that have the same ones differ by their number."""
    pivots = np.unique(np.linspace(0, graph.n_nodes - 1, _PIVOTS).astype(np.int64))
    table = distances(graph, pivots).T.astype(np.float64) ** 2
    table -= table.mean(axis=0)
    table -= table.mean(axis=1, keepdims=True)
    _, _, axes = np.linalg.svd(table, full_matrices=False)
    places = table @ axes[:2].T
    places /= np.abs(places).max() or 1.0
    turn = np.arange(graph.n_nodes) * 2.399963
    return np.asarray(places + 0.02 * np.column_stack((np.cos(turn), np.sin(turn))))


def _spring_layout(graph: Graph, start: FloatArray) -> FloatArray:
    """Return places by Fruchterman and Reingold's forces; repulsion is summed over all other nodes."""
    places = start.astype(np.float32)
    ideal = 2.0 / np.sqrt(graph.n_nodes)
    steps = int(np.clip(_PUSHES // graph.n_nodes**2, _FEWEST_STEPS, _MOST_STEPS))
    tail, head = graph.edges().T
    for step in range(steps):
        # Away from every other node, by the square of the ideal length over the distance.
        gaps = [column[:, np.newaxis] - column for column in np.ascontiguousarray(places.T)]
        weight = np.float32(ideal**2) / np.maximum(gaps[0] * gaps[0] + gaps[1] * gaps[1], np.float32(1e-6))
        move = np.stack([np.einsum("ij,ij->i", offset, weight) for offset in gaps], axis=1)
        gap = places[tail] - places[head]
        pull = gap * (np.linalg.norm(gap, axis=1, keepdims=True) / ideal)
        np.add.at(move, head, pull)
        np.subtract.at(move, tail, pull)
        # A weak pull to the middle: else parts that hang on one edge leave the picture.
        move -= 0.6 * places
        length = np.maximum(np.linalg.norm(move, axis=1, keepdims=True), 1e-9)
        places += move * np.minimum(1.0, (0.25 * (1.0 - step / steps) + 0.002) / length)
    return places.astype(np.float64)
