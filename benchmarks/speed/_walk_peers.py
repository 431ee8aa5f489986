"""What walks on random 4-regular graphs without us: the contenders of :mod:`benchmarks.speed.walks`.

Each does some work and says how many units (steps, hits, reads) it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from veilwalk.graphs import Graph
from veilwalk.walks._compile import prefetch

Contender = Callable[[], int]
DEGREE = 4
SEED = 1


def numpy_walk(graph: Graph, n_walkers: int, steps: int) -> Contender:
    rng = np.random.default_rng(SEED)
    flat = np.ascontiguousarray(graph.neighbour_table).reshape(-1)
    starts = rng.integers(0, graph.n_nodes, n_walkers).astype(np.int32)

    def run() -> int:
        nodes = starts
        for _ in range(steps):
            nodes = np.take(flat, nodes * DEGREE + rng.integers(0, DEGREE, n_walkers, dtype=np.uint8))
        return n_walkers * steps

    return run


@numba.njit(parallel=True)
def _user_kernel(table: Any, starts: Any, steps: int, out: Any) -> None:
    for walker in numba.prange(starts.shape[0]):
        node = starts[walker]
        for _ in range(steps):
            node = table[node, np.random.randint(0, table.shape[1])]  # noqa: NPY002 - what a user writes
        out[walker] = node


def numba_walk(graph: Graph, n_walkers: int, steps: int) -> Contender:
    starts = np.random.default_rng(SEED).integers(0, graph.n_nodes, n_walkers)
    out = np.empty(n_walkers, dtype=np.int64)

    def run() -> int:
        _user_kernel(graph.neighbour_table, starts, steps, out)
        return n_walkers * steps

    return run


def torch_walk(torch: Any, graph: Graph, n_walkers: int, steps: int) -> Contender:
    torch.set_num_threads(1)
    table = torch.from_numpy(graph.neighbour_table.astype(np.int64))
    starts = torch.randint(0, graph.n_nodes, (n_walkers,))

    def run() -> int:
        nodes = starts
        for _ in range(steps):
            nodes = table[nodes, torch.randint(0, DEGREE, (n_walkers,))]
        return n_walkers * steps

    return run


def torch_cluster_walk(torch: Any, cluster: Any, graph: Graph, n_walkers: int, steps: int) -> Contender:
    torch.set_num_threads(1)
    heads = torch.arange(graph.n_nodes).repeat_interleave(DEGREE)
    tails = torch.from_numpy(graph.indices.astype(np.int64))
    starts = torch.randint(0, graph.n_nodes, (n_walkers,))

    def run() -> int:
        cluster.random_walk(heads, tails, starts, steps, num_nodes=graph.n_nodes)
        return n_walkers * steps

    return run


def igraph_walk(igraph: Any, graph: Graph, steps: int) -> Contender:
    network = igraph.Graph(n=graph.n_nodes, edges=graph.edges())

    def run() -> int:
        network.random_walk(0, steps)
        return steps

    return run


@numba.njit(parallel=True)
def user_hits(table: Any, sources: Any, targets: Any, out: Any) -> None:
    for job in numba.prange(sources.shape[0]):
        node, time_now = sources[job], 0
        while node != targets[job]:
            node = table[node, np.random.randint(0, table.shape[1])]  # noqa: NPY002 - what a user writes
            time_now += 1
        out[job] = time_now


def numpy_hits(graph: Graph, sources: Any, targets: Any) -> Contender:
    rng = np.random.default_rng(SEED)
    flat = np.ascontiguousarray(graph.neighbour_table).reshape(-1)

    def run() -> int:
        times = np.where(sources == targets, 0, -1)
        jobs = np.flatnonzero(times)
        nodes, goals = sources[jobs].astype(np.int32), targets[jobs].astype(np.int32)
        step, gone = 0, 0
        while gone < len(jobs):
            step += 1
            nodes = np.take(flat, nodes * DEGREE + rng.integers(0, DEGREE, len(nodes), dtype=np.uint8))
            hits = np.flatnonzero(nodes == goals)
            times[jobs[hits]] = step
            # A walk that has hit walks on for nothing until a quarter of all have, and the rest close up.
            goals[hits] = -1
            gone += len(hits)
            if 4 * gone > len(jobs):
                left = goals >= 0
                nodes, goals, jobs, gone = nodes[left], goals[left], jobs[left], 0
        return len(sources)

    return run


def list_hits(rows: list[list[int]], pairs: list[tuple[int, int]]) -> Contender:
    def run() -> int:
        for source, target in pairs:
            node = source
            while node != target:
                node = random.choice(rows[node])  # noqa: S311
        return len(pairs)

    return run


def networkx_hits(network: Any, pairs: list[tuple[int, int]]) -> Contender:
    def run() -> int:
        for source, target in pairs:
            node = source
            while node != target:
                node = random.choice(list(network.neighbors(node)))  # noqa: S311
        return len(pairs)

    return run


@numba.njit
def gather(table: Any, n_reads: int) -> int:
    """Read entries in an order no cache can guess, 64 of them under way at a time."""
    size, mask, ahead = np.uint64(table.shape[0]), np.uint64(0xFFFFFFFF), np.uint64(64)
    half, factor, total = np.uint64(32), np.uint64(0x9E3779B97F4A7C15), 0
    for number in range(n_reads):
        index = np.uint64(number)
        prefetch(table, ((((index + ahead) * factor) >> half) & mask) * size >> half)
        total += table[(((index * factor) >> half) & mask) * size >> half]
    return total
