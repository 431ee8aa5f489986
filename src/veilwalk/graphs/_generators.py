"""Generates lattices and random graphs; a random one is fixed by its parameters and a seed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import sparse

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.core.randomness import task_generator
from veilwalk.graphs._graph import Graph, count_listings, index_type

# A stream of its own: a run that seeds its walks with the same number must not reuse these draws.
_GRAPH_STREAM = 0x6772_6170
# Expected stubs drawn before a pairing is simple; below this, redrawing (exactly uniform) takes < 0.2 s.
_REDRAW_STUBS = 5_000_000
_REDRAWS_WHEN_DISCONNECTED = 1000
# Neighbour lists, the edge list they are sorted from, and one copy in between.
_BYTES_PER_EDGE = 32
_BYTES_LIMIT = 32 * 2**30
_MOST_BITS = 63


def ring(n_nodes: int) -> Graph:
    """Return the cycle of ``n_nodes`` nodes, at least 3."""
    validate.integer(3, nodes=n_nodes)
    return torus(n_nodes).named(f"ring:{n_nodes}")


def torus(*sides: int) -> Graph:
    """Return the periodic lattice with these side lengths, each at least 3; nodes are numbered row by row."""
    if not sides:
        raise InvalidParameterError("sides", sides, "at least one side length")
    for side in sides:
        validate.integer(3, side=side)
    n_nodes = math.prod(sides)
    _refuse_huge(len(sides) * n_nodes)
    grid = np.arange(n_nodes).reshape(sides)
    edges = [np.column_stack((grid.ravel(), np.roll(grid, -1, axis).ravel())) for axis in range(len(sides))]
    return Graph.from_edges(n_nodes, np.concatenate(edges)).named(":".join(["torus", *map(str, sides)]))


def hypercube(dimension: int) -> Graph:
    """Return the graph on the words of ``dimension`` bits; neighbours differ in one bit."""
    validate.integer(1, dimension=dimension)
    if dimension > _MOST_BITS:
        raise InvalidParameterError("dimension", dimension, f"<= {_MOST_BITS}: a node's number has so many bits")
    _refuse_huge(dimension * 2 ** (dimension - 1))
    nodes = np.arange(2**dimension)
    edges = [np.column_stack((nodes, nodes | 1 << bit))[nodes & 1 << bit == 0] for bit in range(dimension)]
    return Graph.from_edges(len(nodes), np.concatenate(edges)).named(f"hypercube:{dimension}")


def complete(n_nodes: int) -> Graph:
    """Return the graph in which each of the ``n_nodes`` nodes, at least 2, neighbours every other."""
    validate.integer(2, nodes=n_nodes)
    _refuse_huge(n_nodes * (n_nodes - 1) // 2)
    return Graph.from_edges(n_nodes, np.column_stack(np.triu_indices(n_nodes, 1))).named(f"complete:{n_nodes}")


def random_regular(n_nodes: int, degree: int, *, seed: int) -> Graph:
    """Return a random connected graph in which every node has ``degree`` neighbours, 3 or more.

    Stubs are paired at random (configuration model). Where it is affordable the pairing is redrawn until it
    is simple, which makes every connected regular graph equally likely; elsewhere its few bad pairs are
    broken by random switches, which is uniform in the limit of many nodes. A disconnected graph is redrawn.
    """
    validate.integer(nodes=n_nodes, degree=degree)
    if degree < 3:
        raise InvalidParameterError("degree", degree, ">= 3 (the connected graph of degree 2 is the ring)")
    if degree >= n_nodes:
        raise InvalidParameterError("degree", degree, f"less than the number of nodes, {n_nodes}")
    if n_nodes * degree % 2:
        raise InvalidParameterError("degree", degree, f"even, since the number of nodes, {n_nodes}, is odd")
    _refuse_huge(n_nodes * degree // 2)
    rng = task_generator(seed, _GRAPH_STREAM)
    name = f"rrg:{n_nodes}:{degree}:seed={seed}"
    if degree > (n_nodes - 1) / 2:
        return _complement_of_regular(n_nodes, n_nodes - 1 - degree, rng).named(name)
    for _ in range(_REDRAWS_WHEN_DISCONNECTED):
        indptr, indices = _regular_lists(n_nodes, degree, rng)
        try:
            return Graph._from_lists(indptr, indices).named(name)  # noqa: SLF001  (lists are simple by construction)
        except GraphError:
            continue
    raise GraphError(f"{_REDRAWS_WHEN_DISCONNECTED} draws gave no connected graph: must be connected")


def overlay(n_nodes: int, degree: int, *, seed: int) -> Graph:
    """Return a random regular graph of which each member knows its own links only: dealt once, and kept.

    A real dealer draws the seed from the OS and forgets it.
    """
    graph = random_regular(n_nodes, degree, seed=seed)
    return replace(graph, name=f"overlay:{n_nodes}:{degree}:seed={seed}", is_overlay=True)


def erdos_renyi(n_nodes: int, mean_degree: float, *, seed: int, largest_component: bool = False) -> Graph:
    """Return a graph in which each pair of nodes is joined independently with one probability, for that mean degree."""
    validate.integer(2, nodes=n_nodes)
    validate.more_than(0, mean_degree=mean_degree)
    if mean_degree > n_nodes - 1:
        raise InvalidParameterError("mean_degree", mean_degree, f"<= nodes - 1 = {n_nodes - 1}")
    _refuse_huge(math.ceil(n_nodes * mean_degree / 2), n_nodes=n_nodes)
    rng = task_generator(seed, _GRAPH_STREAM)
    edges = _binomial_pairs(n_nodes, mean_degree / (n_nodes - 1), rng)
    name = f"er:{n_nodes}:{_format_number(mean_degree)}:seed={seed}"
    return _build_random(n_nodes, edges, name, largest_component=largest_component)


def barabasi_albert(n_nodes: int, attach: int, *, seed: int) -> Graph:
    """Return a graph grown by preferential attachment, ``attach`` edges a node, from a star of as many leaves."""
    from veilwalk.graphs import _kernels

    validate.integer(nodes=n_nodes)
    validate.integer(1, attach=attach)
    if attach >= n_nodes:
        raise InvalidParameterError("attach", attach, f"less than the number of nodes, {n_nodes}")
    _refuse_huge(n_nodes * attach)
    rng = task_generator(seed, _GRAPH_STREAM)
    edges = _kernels.preferential_edges(n_nodes, attach, rng)
    return Graph.from_edges(n_nodes, edges).named(f"ba:{n_nodes}:{attach}:seed={seed}")


def watts_strogatz(n_nodes: int, degree: int, rewire: float, *, seed: int, largest_component: bool = False) -> Graph:
    """Return a small-world graph: a ring of ``degree`` near neighbours, an edge moved by the chance ``rewire``."""
    from veilwalk.graphs import _kernels

    validate.integer(nodes=n_nodes, degree=degree)
    if degree < 2 or degree % 2:
        raise InvalidParameterError("degree", degree, "even and >= 2")
    if degree >= n_nodes:
        raise InvalidParameterError("degree", degree, f"less than the number of nodes, {n_nodes}")
    if not 0.0 <= rewire <= 1.0:
        raise InvalidParameterError("rewire", rewire, "from 0 to 1")
    _refuse_huge(n_nodes * degree // 2)
    rng = task_generator(seed, _GRAPH_STREAM)
    targets = _kernels.rewired_ring(n_nodes, degree // 2, float(rewire), rng)
    owners = np.repeat(np.arange(n_nodes), degree // 2)
    edges = np.column_stack((owners, targets.ravel()))
    name = f"ws:{n_nodes}:{degree}:{_format_number(rewire)}:seed={seed}"
    return _build_random(n_nodes, edges, name, largest_component=largest_component)


def random_geometric(n_nodes: int, radius: float, *, seed: int, largest_component: bool = False) -> Graph:
    """Return a graph of points drawn evenly in the unit square, joined where they are at most ``radius`` apart."""
    from scipy.spatial import cKDTree

    validate.integer(2, nodes=n_nodes)
    validate.more_than(0, radius=radius)
    validate.finite(radius=radius)
    # No two points of the unit square are farther apart.
    reach = min(float(radius), 2.0)
    _refuse_huge(math.ceil(n_nodes**2 * min(math.pi * reach**2, 1.0) / 2), n_nodes=n_nodes)
    rng = task_generator(seed, _GRAPH_STREAM)
    edges = cKDTree(rng.random((n_nodes, 2))).query_pairs(reach, output_type="ndarray")
    name = f"geometric:{n_nodes}:{_format_number(radius)}:seed={seed}"
    return _build_random(n_nodes, edges, name, largest_component=largest_component)


def _refuse_huge(n_edges: int, *, n_nodes: int = 0) -> None:
    """Refuse a graph whose construction would need more memory than a workstation has.

    Where nodes may outnumber edges, they count too: each takes about as much.
    """
    needed = max(n_edges, n_nodes) * _BYTES_PER_EDGE
    if needed > _BYTES_LIMIT:
        what = f"{n_nodes} nodes" if n_nodes > n_edges else f"{n_edges} edges"
        raise ResourceLimitError(f"a graph of {what} needs about {needed} bytes: must be at most {_BYTES_LIMIT}")


def _format_number(number: float) -> str:
    """Return the shortest text that a spec reads back as ``number``."""
    return repr(float(number)).removesuffix(".0")


def _build_random(n_nodes: int, edges: IntArray, name: str, *, largest_component: bool) -> Graph:
    """Return the graph of edges that are simple by construction, under the name that a spec gives it."""
    # Not from_edges: its labels would tell which nodes were kept, which nobody asks of a random graph.
    listed = count_listings(n_nodes, edges.astype(index_type(max(n_nodes, 2 * len(edges)))))
    graph = Graph._from_lists(listed.indptr, listed.indices, largest_component=largest_component)  # noqa: SLF001
    return graph.named(f"{name}:component=largest" if largest_component else name)


def _regular_lists(n_nodes: int, degree: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return sorted neighbour lists of a simple regular graph, connected or not."""
    from veilwalk.graphs import _kernels

    n_stubs = n_nodes * degree
    stubs: IntArray = np.arange(n_stubs, dtype=index_type(n_stubs))
    mate = np.empty_like(stubs)
    # exp(-(degree^2 - 1) / 4) is the limit of the share of pairings that are simple.
    redraw = math.log(n_stubs) + (degree**2 - 1) / 4 <= math.log(_REDRAW_STUBS)
    while True:
        order = rng.permutation(stubs)
        mate[order[::2]], mate[order[1::2]] = order[1::2], order[::2]
        if not redraw:
            _switch_until_simple(mate, degree, rng)
            break
        if not _kernels.bad_stubs(mate, degree, 1).size:
            break
    indptr: IntArray = np.arange(0, n_stubs + 1, degree, dtype=stubs.dtype)
    lists = sparse.csr_array((np.ones(n_stubs, dtype=np.int8), mate // degree, indptr), shape=(n_nodes, n_nodes))
    # The matrix is symmetric, and its columns come out sorted.
    return indptr, lists.tocsc().indices


def _switch_until_simple(mate: IntArray, degree: int, rng: np.random.Generator) -> None:
    from veilwalk.graphs import _kernels

    bad = _kernels.bad_stubs(mate, degree, len(mate))
    finished = not bad.size
    while not finished:
        # At most half of the nodes are neighbours, so a partner serves with probability 1/4 or more.
        partners = rng.integers(len(mate), size=8 * len(bad), dtype=mate.dtype)
        finished = _kernels.switch_bad_pairs(mate, degree, bad, partners)


def _complement_of_regular(n_nodes: int, missing: int, rng: np.random.Generator) -> Graph:
    """Return the graph that lacks the edges of a random regular graph of degree ``missing``."""
    if missing == 0:
        return complete(n_nodes)
    joined = ~np.eye(n_nodes, dtype=np.bool_)
    _, absent = _regular_lists(n_nodes, missing, rng)
    joined[np.repeat(np.arange(n_nodes), missing), absent] = False
    return Graph.from_edges(n_nodes, np.argwhere(np.triu(joined)))


def _binomial_pairs(n_nodes: int, probability: float, rng: np.random.Generator) -> IntArray:
    """Return each of the pairs of nodes independently with ``probability``."""
    if not probability:
        # So small that rounding took it.
        return np.empty((0, 2), dtype=np.int64)
    n_pairs = n_nodes * (n_nodes - 1) // 2
    expected = n_pairs * probability
    chunk = int(expected + 6 * math.sqrt(expected)) + 16
    last, parts = -1, []
    while last < n_pairs:
        # Steps from one chosen pair to the next; the cap keeps a sum of rare ones within int64.
        steps = np.minimum(rng.geometric(probability, size=chunk), n_pairs + 1)
        parts.append(last + np.cumsum(steps))
        last = int(parts[-1][-1])
    chosen = np.concatenate(parts)
    chosen = chosen[: np.searchsorted(chosen, n_pairs)]
    # Pair k joins node v with u < v, where v (v - 1) / 2 + u = k; the root may be off by one.
    v = ((1 + np.sqrt(8.0 * chosen + 1)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > chosen
    v += v * (v + 1) // 2 <= chosen
    return np.column_stack((chosen - v * (v - 1) // 2, v))
