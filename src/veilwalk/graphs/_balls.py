"""Everything within a few hops of many nodes: what a law of near destinations needs of a graph of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import ResourceLimitError
from veilwalk.graphs._distances import _checked_sources
from veilwalk.graphs._graph import Graph

_ARRAY_BYTES = 4 * 2**30
_ENTRY_BYTES = 4 + 2


@dataclass(frozen=True, slots=True, eq=False)
class Balls:
    """The nodes within some distance of each center: ``nodes[starts[k]:starts[k + 1]]``, nearest first.

    ``hops`` says how far each is. The center itself comes first.
    """

    centers: IntArray
    starts: IntArray
    nodes: IntArray
    hops: IntArray

    def of(self, row: int) -> tuple[IntArray, IntArray]:
        """Return nodes and hops of the center in ``row``."""
        part = slice(self.starts[row], self.starts[row + 1])
        return self.nodes[part], self.hops[part]


def balls(
    graph: Graph, radius: int, centers: npt.ArrayLike | None = None, *, memory_bytes: int = _ARRAY_BYTES
) -> Balls:
    """Return the nodes within ``radius`` hops of each center, all nodes when None.

    Cost: two searches a center that stop at ``radius``, whatever the size of the graph.

    Args:
        graph: The graph.
        radius: Largest distance, 0 or more.
        centers: Node numbers.
        memory_bytes: Refuse rather than return more.
    """
    from veilwalk.graphs import _kernels_balls

    validate.integer(radius=radius, memory_bytes=memory_bytes)
    validate.at_least(0, radius=radius)
    chosen = _checked_sources(graph, centers)
    sizes = np.empty(len(chosen), np.int64)
    _kernels_balls.ball_sizes(graph.indptr, graph.indices, chosen, radius, sizes)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    needed = int(starts[-1]) * _ENTRY_BYTES
    if needed > memory_bytes:
        raise ResourceLimitError(
            f"nodes within {radius} hops need {needed} bytes: must be within memory_bytes = {memory_bytes}"
        )
    nodes, hops = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int16)
    _kernels_balls.fill_balls(graph.indptr, graph.indices, chosen, radius, starts, nodes, hops)
    return Balls(chosen, starts, nodes, hops)
