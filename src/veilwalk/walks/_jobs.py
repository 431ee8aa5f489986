"""Independent walks: where they end, when they first hit, when they first return.

Job k of a call has the stream of its number, ``first_job + k``: a long list cut into parts gives the same
numbers as the whole. Streams do not depend on the question asked: the walker of job k goes the same way in
:func:`walk_positions`, :func:`hitting_times` and :func:`return_times`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._device import check_device, open_cuda
from veilwalk.walks._device_jobs import DeviceMoves
from veilwalk.walks._moves import Moves, far_moves, leap_moves, moves_of, ragged_moves

#: What a time is when the walk was stopped before it.
NOT_REACHED = -1
#: What a time is when an interrupt came before the walk was made.
NOT_WALKED = -2

_NO_LIMIT = np.iinfo(np.int64).max
# A kernel call cannot be interrupted: the first batch is what a second or less should do on any graph.
_MAX_FIRST_BATCH = 65_536
_MIN_FIRST_BATCH = 256
_FIRST_BATCH_NODES = 20_000_000
_BATCH_S = 0.5
_CHUNK_JOBS = 512
_TARGET_CHUNK_JOBS = 4096
# A card needs many jobs to be busy; its memory bounds how many it takes at once.
_DEVICE_FIRST_BATCH = 1 << 18
_DEVICE_BATCH = 1 << 27


def walk_positions(
    graph: Graph,
    starts: npt.ArrayLike,
    steps: int,
    *,
    seed: int,
    walk: Walk = SIMPLE,
    first_job: int = 0,
    device: str = "cpu",
) -> IntArray:
    """Return where walkers from ``starts`` are after ``steps`` steps.

    Args:
        graph: The graph to walk on.
        starts: Start node of every walker.
        steps: Number of steps, 0 or more.
        seed: Seed of the run, below 2**64.
        walk: The walk.
        first_job: Number of the first walker's stream.
        device: ``cuda`` walks on the graphics card, to the same nodes.

    Returns:
        The final nodes, int32, one per walker.
    """
    from veilwalk.walks import _kernels, _kernels_ragged

    validate.integer(steps=steps)
    validate.at_least(0, steps=steps)
    nodes = node_array(graph, "starts", starts)
    check_device(device)
    moves = moves_of(graph, walk)
    if device == "cuda":
        return DeviceMoves(open_cuda(), moves).positions_of(nodes, steps, stream_key(seed), job_number(first_job))
    out = np.empty(len(nodes), dtype=np.int32)
    rows, doubtful = ragged_moves(moves)
    if len(rows):
        first = job_number(first_job)
        _kernels_ragged.ragged_positions(rows, moves.offsets, doubtful, nodes, steps, stream_key(seed), first, out)
        return out
    _kernels.final_positions(
        moves.table,
        moves.offsets,
        *leap_moves(moves),
        far_moves(moves, steps * len(nodes)),
        *moves.word_arguments(),
        nodes,
        steps,
        stream_key(seed),
        job_number(first_job),
        out,
    )
    return out


def hitting_times(
    graph: Graph,
    sources: npt.ArrayLike,
    targets: npt.ArrayLike,
    *,
    seed: int,
    walk: Walk = SIMPLE,
    max_steps: int | None = None,
    first_job: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
) -> IntArray:
    """Return the first time from 0 on at which each walk is at its target; 0 where it starts there.

    Args:
        graph: The graph to walk on.
        sources: Start node of every walk; a single node serves all.
        targets: Node that each walk is to hit; a single node serves all.
        seed: Seed of the run, below 2**64.
        walk: The walk; steps in which a lazy walk stays count.
        max_steps: Stop each walk after so many steps; its time is then ``NOT_REACHED``.
        first_job: Number of the first walk's stream.
        device: ``cuda`` walks on the graphics card, with the same times.
        progress: Told between batches.

    Returns:
        The times, int64, one per walk. An interrupt (Ctrl-C) returns those of the walks made so far; the others are
        ``NOT_WALKED``.
    """
    from_nodes, to_nodes = node_pairs(graph, sources, targets)
    times = _first_hits(
        moves_of(graph, walk),
        from_nodes,
        to_nodes,
        seed=seed,
        max_steps=max_steps,
        first_job=first_job,
        device=device,
        progress=progress,
    )
    times[(from_nodes == to_nodes) & (times != NOT_WALKED)] = 0
    return times


def return_times(
    graph: Graph,
    nodes: npt.ArrayLike,
    *,
    seed: int,
    walk: Walk = SIMPLE,
    max_steps: int | None = None,
    first_job: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
) -> IntArray:
    """Return the first time from 1 on at which each walk is back at the node it starts from.

    Takes the arguments of :func:`hitting_times`; a lazy walk that stays has returned after 1 step.
    """
    starts = node_array(graph, "nodes", nodes)
    return _first_hits(
        moves_of(graph, walk),
        starts,
        starts,
        seed=seed,
        max_steps=max_steps,
        first_job=first_job,
        device=device,
        progress=progress,
    )


def node_array(graph: Graph, name: str, nodes: npt.ArrayLike) -> IntArray:
    """Return ``nodes`` as the read-only int32 vector the kernels take, or refuse them."""
    given = np.atleast_1d(np.asarray(nodes))
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise InvalidParameterError(name, f"array of shape {given.shape} and type {given.dtype}", "a list of nodes")
    outside = np.flatnonzero((given < 0) | (given >= graph.n_nodes))
    if outside.size:
        raise InvalidParameterError(name, int(given[outside[0]]), f"nodes 0..{graph.n_nodes - 1}")
    # Read-only like the graph's own arrays, or the kernels would be compiled once more for each mixture; a
    # view, so that the caller's array stays as it is.
    return frozen(np.ascontiguousarray(given, dtype=np.int32).view())


def stream_key(seed: int) -> Any:
    """Return ``seed`` as the kernels take it."""
    validate.integer(seed=seed)
    if not 0 <= seed < 1 << 64:
        raise InvalidParameterError("seed", seed, "between 0 and 2**64 - 1")
    return np.uint64(seed)


def job_number(first_job: int) -> Any:
    """Return the number of a stream as the kernels take it."""
    validate.integer(first_job=first_job)
    validate.at_least(0, first_job=first_job)
    return np.uint64(first_job)


def node_pairs(graph: Graph, sources: npt.ArrayLike, targets: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """Return sources and targets of equal length; a single node on one side serves all of the other."""
    from_nodes = node_array(graph, "sources", sources)
    to_nodes = node_array(graph, "targets", targets)
    if len(from_nodes) != len(to_nodes) and 1 not in (len(from_nodes), len(to_nodes)):
        raise InvalidParameterError(
            "targets", f"list of {len(to_nodes)} nodes", f"one, or as many as sources ({len(from_nodes)})"
        )
    size = max(len(from_nodes), len(to_nodes))
    if len(from_nodes) < size:
        from_nodes = frozen(np.full(size, from_nodes[0]))
    if len(to_nodes) < size:
        to_nodes = frozen(np.full(size, to_nodes[0]))
    return from_nodes, to_nodes


def _first_hits(
    moves: Moves,
    sources: IntArray,
    targets: IntArray,
    *,
    seed: int,
    max_steps: int | None,
    first_job: int,
    device: str = "cpu",
    progress: Progress,
) -> IntArray:
    if max_steps is not None:
        validate.integer(max_steps=max_steps)
        validate.at_least(1, max_steps=max_steps)
    check_device(device)
    key, job = stream_key(seed), job_number(first_job)
    out = np.full(len(sources), NOT_WALKED, dtype=np.int64)
    done = 0
    batch = min(_MAX_FIRST_BATCH, max(_MIN_FIRST_BATCH, _FIRST_BATCH_NODES // moves.n_nodes))
    most, limit = len(sources), _NO_LIMIT if max_steps is None else max_steps
    walked: Callable[[IntArray, IntArray, int, Any, Any], IntArray] = partial(_batch_hits, moves)
    if device == "cuda":
        walked = DeviceMoves(open_cuda(), moves).hits_of
        batch, most = _DEVICE_FIRST_BATCH, _DEVICE_BATCH
    try:
        while done < len(sources):
            part = slice(done, min(done + batch, len(sources)))
            began = time.perf_counter()
            out[part] = walked(sources[part], targets[part], limit, key, job + np.uint64(done))
            done = part.stop
            if time.perf_counter() - began < _BATCH_S:
                batch = min(2 * batch, most)
            progress("walking", done, len(sources), "walks")
    except KeyboardInterrupt:
        # What was walked is worth keeping; with nothing walked there is nothing to return.
        if done == 0:
            raise
    return out


def _batch_hits(  # noqa: PLR0917 - called as a device's own is
    moves: Moves, sources: IntArray, targets: IntArray, max_steps: int, key: Any, first_job: Any
) -> IntArray:
    """Return the times of one batch of jobs, walked in the order that suits the kernel."""
    from veilwalk.walks import _kernels_hits

    order, bounds = _chunks(moves, targets)
    times, out = np.empty(len(order), dtype=np.int64), np.empty(len(order), dtype=np.int64)
    streams = first_job + order.astype(np.uint64)
    _kernels_hits.first_hits(
        moves.table,
        moves.offsets,
        moves.pairs,
        *moves.word_arguments(),
        sources[order],
        targets[order],
        streams,
        bounds,
        max_steps,
        key,
        times,
    )
    out[order] = times
    return out


def _chunks(moves: Moves, targets: IntArray) -> tuple[IntArray, IntArray]:
    """Return an order of the jobs and its bounds of chunks: of one target each where there are double steps."""
    n_jobs = len(targets)
    if len(moves.pairs) == 0:
        return np.arange(n_jobs), np.append(np.arange(0, n_jobs, _CHUNK_JOBS), n_jobs)
    # Few nodes have double steps: 16 bits hold them, and those are sorted by counting.
    order = np.argsort(targets.astype(np.uint16), kind="stable")
    changes = np.flatnonzero(np.diff(targets[order])) + 1
    return order, np.unique(np.concatenate((changes, np.arange(0, n_jobs, _TARGET_CHUNK_JOBS), [n_jobs])))
