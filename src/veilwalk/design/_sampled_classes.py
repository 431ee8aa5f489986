"""Window likelihoods by class, from a sampled walk, for graphs too large for tables of all pairs.

A class is a distance and a class of degrees of the source. What a destination of many neighbours changes, it changes
for all of its sources alike, and an equalised law does not depend on that: it is fitted, and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, balls
from veilwalk.walks import token_paths

# Windows are this share of the mean time wide to each side: so long after the start hits come at all times alike, and
# a window of a few hops would hardly ever be hit.
_HALF_WIDTH = 0.5
# Hits that a class borrows from all sources at its distance: one of which little was seen leans on them.
_BORROWED = 4.0
_FITTING_ROUNDS = 30
# Hops of the walk: so many for each node, within these limits.
_HOPS_PER_NODE, _HOPS = 64, (4_000_000, 64_000_000)
_PAIRS = 400_000
# Sources looked around at a time.
_BLOCK = 20_000
_NEVER = 2**62


@dataclass(frozen=True, eq=False)
class ClassLikelihood:
    """Chance of a hit in a hop of the window, by class of the source's degree (row) and distance (column).

    Pairs were looked up on one long walk. ``relative_error`` is the standard error of each as a share of it. Only the
    ratios of the values count.
    """

    return_time: float
    pairs: int
    values: FloatArray
    relative_error: FloatArray


def degree_classes(degrees: IntArray) -> IntArray:
    """Return the class of each degree; classes double in width: 1, 2-3, 4-7, ..."""
    return np.floor(np.log2(degrees)).astype(np.int64)


def sample_likelihood(
    graph: Graph,
    support: DistanceSupport,
    *,
    walk: Walk,
    tail_probability: float,
    seed: int,
    hops: int = 0,
    pairs: int = _PAIRS,
) -> ClassLikelihood:
    """Sample the window likelihood of pairs at each distance, along one long walk.

    Args:
        graph: the network.
        support: distances a destination may have.
        walk: any kind of walk.
        tail_probability: delta' of the paper's rule for the return time designed for.
        seed: of the sample.
        hops: to walk; 64 for each node, within limits, when 0.
        pairs: how many to look up on the way.

    Cost: one walk and one sort of its hops, 20 bytes each.
    """
    random = task_generator(seed)
    way = _Way(graph, walk, hops or int(np.clip(_HOPS_PER_NODE * graph.n_nodes, *_HOPS)), seed)
    nodes = random.integers(graph.n_nodes, size=pairs // 4)
    returns = way.next_visits(nodes, way.some_visits(nodes, random))
    kappa = _return_time(returns, support, tail_probability)
    sources, targets, apart = _pairs(graph, support, random.integers(graph.n_nodes, size=pairs // support.size), random)
    times = way.next_visits(targets, way.some_visits(sources, random))
    of_source, of_target = (degree_classes(graph.degrees[nodes]) for nodes in (sources, targets))
    hit, width = _in_window(times, times <= kappa, np.stack((apart, of_source, of_target)))
    shape = (int(of_source.max()) + 1, support.size)
    values, error = _fitted(hit, width, (of_source, apart - support.lo), of_target, shape)
    return ClassLikelihood(kappa, len(times), values, error)


class _Way:
    """One long walk, in which the next visit to a node after any time is looked up by bisection."""

    def __init__(self, graph: Graph, walk: Walk, hops: int, seed: int):
        path = token_paths(graph, hops=hops, lanes=1, seed=seed, walk=walk)[0]
        self._length = len(path)
        # Node and time in one number, so that one sort groups the visits of every node.
        self._visits = np.sort(path.astype(np.int64) * self._length + np.arange(self._length))

    def some_visits(self, nodes: IntArray, random: np.random.Generator) -> IntArray:
        """Return the time of some visit to each of ``nodes`` in the first half of the way; -1 where there is none."""
        first = np.searchsorted(self._visits, nodes * self._length)
        last = np.searchsorted(self._visits, nodes * self._length + self._length // 2)
        drawn = self._visits[np.minimum(random.integers(first, np.maximum(last, first + 1)), self._length - 1)]
        return np.where(last > first, drawn - nodes * self._length, -1)

    def next_visits(self, nodes: IntArray, times: IntArray) -> IntArray:
        """Return how long after each time its node is visited; never within half of the way is a very long time."""
        key = nodes * self._length + times
        place = np.searchsorted(self._visits, key, side="right")
        found = self._visits[np.minimum(place, self._length - 1)]
        seen = (times >= 0) & (place < self._length) & (found // self._length == nodes)
        return np.where(seen & (found - key <= self._length // 2), found - key, _NEVER)


def _return_time(times: IntArray, support: DistanceSupport, tail_probability: float) -> float:
    """Return the time that a share of (1 - delta') / 2 of the covered returns takes at least, as the paper rules."""
    covered = times[times >= 2 * support.lo]
    found = float(np.quantile(covered, 1.0 - (1.0 - tail_probability) / 2, method="lower"))
    if found == _NEVER:
        raise InvalidParameterError("hops", "too few", "more: most nodes were not met twice on this walk")
    return max(found, support.hi + 1.0)


def _pairs(
    graph: Graph, support: DistanceSupport, sources: IntArray, random: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Return sources, targets and their distances: from each source one target at each distance it has."""
    parts = []
    for block in np.array_split(sources, -(-len(sources) // _BLOCK)):
        found = balls(graph, support.hi, block)
        # The nodes of a ball come nearest first, so every shell is a stretch.
        place = np.repeat(np.arange(len(block)), np.diff(found.starts)) * (support.hi + 1) + found.hops
        shells = (np.arange(len(block))[:, np.newaxis] * (support.hi + 1) + support.distances).ravel()
        first, last = (np.searchsorted(place, shells, side=side) for side in ("left", "right"))
        has_any = np.flatnonzero(last > first)
        drawn = random.integers(first[has_any], last[has_any])
        parts.append((block[has_any // support.size], found.nodes[drawn], found.hops[drawn]))
    sources, targets, apart = (np.concatenate(column) for column in zip(*parts, strict=True))
    return sources, targets.astype(np.int64), apart


def _in_window(times: IntArray, reached: BoolArray, classes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return whether each time lies within the window of its class, and how many hops that window has."""
    _, label = np.unique(classes, axis=1, return_inverse=True)
    count = np.maximum(np.bincount(label, weights=reached), 1)
    mean = (np.bincount(label, weights=np.where(reached, times, 0)) / count)[label]
    half = np.maximum(_HALF_WIDTH * mean, 1.0)
    hit = reached & (np.abs(times - mean) <= half)
    return hit.astype(np.float64), 2 * half


def _fitted(
    hit: FloatArray, width: FloatArray, where: tuple[IntArray, IntArray], of_target: IntArray, shape: tuple[int, int]
) -> tuple[FloatArray, FloatArray]:
    """Fit ``hits = value[source class, distance] * factor[target class] * hops looked at``: values, errors."""
    label = np.ravel_multi_index(where, shape)
    size = shape[0] * shape[1]
    hits, hits_at = np.bincount(label, hit, size), np.bincount(of_target, hit)
    factor = np.ones(len(hits_at))
    for _ in range(_FITTING_ROUNDS):
        looked = np.bincount(label, width * factor[of_target], size).reshape(shape)
        at_distance = hits.reshape(shape).sum(axis=0) / np.maximum(looked.sum(axis=0), 1)
        borrowed = np.divide(_BORROWED, at_distance, where=at_distance > 0, out=np.ones(shape[1]))
        value = (hits.reshape(shape) + _BORROWED) / (looked + borrowed)
        expected = np.bincount(of_target, width * value.ravel()[label])
        factor = np.where(hits_at > 0, hits_at / np.maximum(expected, 1e-300), 1.0)
    return value, 1.0 / np.sqrt(hits.reshape(shape) + _BORROWED)
