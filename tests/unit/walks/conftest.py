"""Graphs of every layout the kernels know."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from veilwalk.graphs import Graph
from veilwalk.walks._tables import digits_per_word


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Return Philox4x32-10 in plain integers."""
    mask = (1 << 32) - 1
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high, low = 0xCD9E8D57 * c2, 0xD2511F53 * c0
        c0, c1, c2, c3 = (high >> 32) ^ c1 ^ k0, high & mask, (low >> 32) ^ c3 ^ k1, low & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return [c0, c1, c2, c3]


def word(seed: int, job: int, number: int, span: int) -> int:
    """Return word ``number`` of a walk's stream, or the replacement of a rejected one."""
    mask, limit = (1 << 32) - 1, (1 << 32) % span
    tail = [job & mask, job >> 32]
    key = [seed & mask, seed >> 32]
    found = philox([number >> 2, 0, *tail], key)[number & 3]
    attempt = 0
    while (found * span) & mask < limit:
        found = philox([number, (1 << 24) | (attempt << 16), *tail], key)[0]
        attempt += 1
    return found


def _slow_path(graph: Graph, walk: str, start: int, steps: int, *, seed: int, job: int) -> list[int]:
    """Walk in plain Python, from the documented rule: step s uses digit s % digits of word s // digits."""
    path = [start]
    for step in range(steps):
        row = [int(node) for node in graph.neighbours(path[-1])]
        if walk == "lazy":
            row += [path[-1]] * len(row)
        digits = digits_per_word(len(row)) if graph.is_regular else 1
        value = word(seed, job, step // digits, len(row) ** digits) * len(row) ** (step % digits + 1)
        path.append(row[(value >> 32) % len(row)])
    return path


def circulant(n_nodes: int, offsets: tuple[int, ...]) -> Graph:
    """Return the graph in which i and i + offset are joined."""
    edges = [(i, (i + offset) % n_nodes) for i in range(n_nodes) for offset in offsets]
    return Graph.from_edges(n_nodes, np.array(edges))


def wheel(n_spokes: int) -> Graph:
    """Return a hub joined to every node of a cycle: degrees 3 and ``n_spokes``."""
    rim = [(i, 1 + i % n_spokes) for i in range(1, n_spokes + 1)]
    return Graph.from_edges(n_spokes + 1, np.array(rim + [(0, i) for i in range(1, n_spokes + 1)]))


@pytest.fixture(scope="session")
def petersen() -> Graph:
    """Return the Petersen graph: 10 nodes of degree 3."""
    pairs = list(itertools.combinations(range(5), 2))
    edges = [(i, j) for i, j in itertools.combinations(range(10), 2) if not set(pairs[i]) & set(pairs[j])]
    return Graph.from_edges(10, np.array(edges))


@pytest.fixture(
    scope="session",
    params=["tiny-3", "tiny-4", "plain-4", "plain-6", "irregular", "edge"],
)
def any_graph(request: pytest.FixtureRequest, petersen: Graph) -> Graph:
    """Return graphs for double-step tables, single-step tables, ragged rows, and the smallest of all."""
    match request.param:
        case "tiny-3":
            return petersen
        case "tiny-4":
            return circulant(25, (1, 7))
        case "plain-4":
            return circulant(700, (1, 30))
        case "plain-6":
            return circulant(500, (1, 20, 57))
        case "irregular":
            return wheel(12)
        case _:
            return Graph.from_edges(2, np.array([(0, 1)]))


@pytest.fixture(scope="session")
def slow_path() -> Callable[..., list[int]]:
    """Return the plain Python walker."""
    return _slow_path
