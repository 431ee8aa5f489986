"""First-hitting times counted, in memory that does not grow with the walks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._jobs import NOT_REACHED, NOT_WALKED, hitting_times, node_pairs


def hitting_time_histogram(
    graph: Graph,
    sources: npt.ArrayLike,
    targets: npt.ArrayLike,
    *,
    groups: npt.ArrayLike,
    bin_edges: npt.ArrayLike,
    repeats: int,
    seed: int,
    walk: Walk = SIMPLE,
    device: str = "cpu",
    progress: Progress = silent,
) -> IntArray:
    """Count first-hitting times by group of pairs (their distance, say) in memory that does not grow.

    Every pair is walked ``repeats`` times, each walk only up to the last bin edge.

    Args:
        graph: The graph to walk on.
        sources: Start node of every pair.
        targets: Target node of every pair.
        groups: Group of every pair, numbered from 0.
        bin_edges: Ascending whole numbers; bin k counts times in [edge k, edge k+1).
        repeats: Walks per pair.
        seed: Seed of the run.
        walk: The walk.
        device: Where to walk, as for :func:`hitting_times`.
        progress: Told between batches.

    Returns:
        Counts, shape (groups, bins + 2): the first column is below the first edge, the last is at or beyond
        the last edge. An interrupt returns what was counted so far.
    """
    validate.integer(repeats=repeats)
    validate.at_least(1, repeats=repeats)
    from_nodes, to_nodes = node_pairs(graph, sources, targets)
    labels = np.asarray(groups)
    if labels.shape != from_nodes.shape or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise InvalidParameterError(
            "groups", f"array of shape {labels.shape}", f"{len(from_nodes)} whole numbers >= 0, one per pair"
        )
    edges = np.asarray(bin_edges)
    if edges.ndim != 1 or len(edges) < 2 or not np.issubdtype(edges.dtype, np.integer) or np.any(np.diff(edges) <= 0):
        raise InvalidParameterError("bin_edges", bin_edges, "two or more ascending whole numbers")
    counts = np.zeros((int(labels.max()) + 1, len(edges) + 1), dtype=np.int64)
    total = repeats * len(from_nodes)
    for repeat in range(repeats):
        done = repeat * len(from_nodes)
        times = hitting_times(
            graph,
            from_nodes,
            to_nodes,
            seed=seed,
            walk=walk,
            max_steps=max(int(edges[-1]), 1),
            first_job=done,
            device=device,
        )
        times[times == NOT_REACHED] = edges[-1]
        made = times != NOT_WALKED
        np.add.at(counts, (labels[made], np.searchsorted(edges, times[made], side="right")), 1)
        if not made.all():
            break
        progress("walking", done + len(from_nodes), total, "walks")
    return counts
