"""Where nodes are drawn: near their neighbours, apart from the others. The same graph is always drawn alike."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.graphs import Graph, distances

_PIVOTS = 40
# Pairs that are pushed apart in all: some seconds on a graph of 2,000 nodes.
_PUSHES = 60_000_000
_MOST_STEPS, _FEWEST_STEPS = 150, 20
_SIZE = 1000
_Short = npt.NDArray[np.float32]


def layout(graph: Graph) -> IntArray:
    """Return a place for every node (row), from 0 to 1000 each way.

    First by the principal axes of the distances to a few pivots; then springs along
    edges and a push between all pairs, with smaller and smaller steps.
    """
    if graph.n_nodes == 1:
        return np.full((1, 2), _SIZE // 2)
    return _scaled(_sprung(graph, _by_pivots(graph)))


def _by_pivots(graph: Graph) -> FloatArray:
    """Places by pivot distances; nodes that have the same ones are told apart by their number."""
    pivots = np.unique(np.linspace(0, graph.n_nodes - 1, _PIVOTS).astype(np.int64))
    table = distances(graph, pivots).T.astype(np.float64) ** 2
    table -= table.mean(axis=0)
    table -= table.mean(axis=1, keepdims=True)
    _, _, axes = np.linalg.svd(table, full_matrices=False)
    found = table @ axes[:2].T
    if found.shape[1] < 2:
        found = np.column_stack((found, np.zeros(graph.n_nodes)))
    found /= np.abs(found).max() or 1.0
    turn = np.arange(graph.n_nodes) * 2.399963
    return np.asarray(found + 0.02 * np.column_stack((np.cos(turn), np.sin(turn))))


def _sprung(graph: Graph, places: FloatArray) -> FloatArray:
    """Fruchterman and Reingold's forces; what a node is pushed by is summed over all others."""
    n_nodes = graph.n_nodes
    ideal = 2.0 / np.sqrt(n_nodes)
    steps = int(np.clip(_PUSHES // n_nodes**2, _FEWEST_STEPS, _MOST_STEPS))
    tail, head = graph.edges().T
    x, y = (np.ascontiguousarray(places[:, k], dtype=np.float32) for k in (0, 1))
    for step in range(steps):
        move = np.stack(_pushed(x, y, np.float32(ideal**2)), axis=1).astype(np.float64)
        apart = np.stack((x[tail] - x[head], y[tail] - y[head]), axis=1).astype(np.float64)
        pull = apart * (np.hypot(apart[:, 0], apart[:, 1]) / ideal)[:, np.newaxis]
        for k in (0, 1):
            move[:, k] += np.bincount(head, pull[:, k], n_nodes) - np.bincount(tail, pull[:, k], n_nodes)
        # What drifts off is drawn back a little, or parts that hang on one edge leave the picture.
        move -= 0.6 * np.stack((x, y), axis=1)
        far = np.maximum(np.hypot(move[:, 0], move[:, 1]), 1e-9)
        limit = 0.25 * (1.0 - step / steps) + 0.002
        move *= (np.minimum(far, limit) / far)[:, np.newaxis]
        x += move[:, 0].astype(np.float32)
        y += move[:, 1].astype(np.float32)
    return np.stack((x, y), axis=1).astype(np.float64)


def _pushed(x: _Short, y: _Short, strength: np.float32) -> tuple[_Short, _Short]:
    """Sum over all others of strength / distance, away from them."""
    across, down = x[:, np.newaxis] - x, y[:, np.newaxis] - y
    weight = strength / np.maximum(across * across + down * down, np.float32(1e-6))
    return np.einsum("ij,ij->i", across, weight), np.einsum("ij,ij->i", down, weight)


def _scaled(places: FloatArray) -> IntArray:
    low = places.min(axis=0)
    span = float((places.max(axis=0) - low).max()) or 1.0
    centred = (places - low) + (span - (places.max(axis=0) - low)) / 2
    return np.asarray(np.rint(centred / span * _SIZE), dtype=np.int64)
