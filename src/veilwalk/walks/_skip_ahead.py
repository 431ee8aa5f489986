"""First-hitting times without walking most of the way.

The survival P(T > t) of a walk that avoids its target falls by the factor lambda in every step, once the
other eigenvalues of the killed chain have died out; lambda is its Perron value. So a walk is stepped through
that transient only, and if it has not hit by then, the rest of its time is geometric. On a bipartite graph a
walk can hit at every other step only, and pairs of steps take the place of steps.

This gives T alone: what happens along the way needs the walk itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, NumericalError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._jobs import NOT_REACHED, hitting_times, job_number, node_array, node_pairs, stream_key

# The walks whose survival is stepped here.
_STEPPED = ("simple", "lazy")
_MAX_ROUNDS = 100_000
# Corrections that are rounding noise do not fall any more; they are taken to fall by this share at least, so
# that noise of 1e-16 stays below the tightest tolerance.
_MIN_FALL = 1e-5
_MIN_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class HittingTail:
    """How the survival of walks to one target falls in the end.

    Attributes:
        target: The node to hit.
        perron_value: Factor by which survival falls in each step.
        transient_steps: Even number of steps after which, from every source, it does so within tolerance.
    """

    target: int
    perron_value: float
    transient_steps: int


def hitting_tail(graph: Graph, target: int, *, walk: Walk = SIMPLE, tolerance: float = 1e-9) -> HittingTail:
    """Return the tail of first-hitting times of ``target``, by stepping the survival of all sources.

    Args:
        graph: The graph to walk on.
        target: The node to hit.
        walk: The walk.
        tolerance: Error that replacing the rest by the tail may cause in any source's distribution function;
            judged from how fast the last corrections fall.

    Returns:
        The Perron value and the length of the transient.
    """
    validate.at_least(_MIN_TOLERANCE, tolerance=tolerance)
    if walk.kind not in _STEPPED:
        raise InvalidParameterError("walk", str(walk), f"one of {', '.join(_STEPPED)}")
    node = int(node_array(graph, "target", target)[0])
    alternating = walk.kind == "simple" and graph.is_bipartite
    shares = graph.stationary_distribution
    survival = np.ones(graph.n_nodes)
    survival[node] = 0.0
    gap = loss = np.inf
    for step in range(0, 2 * _MAX_ROUNDS, 2):
        once, lost_once = _killed_step(graph, walk, survival, node)
        twice, lost_twice = _killed_step(graph, walk, once, node)
        # What is lost is summed directly: 1 - lambda**2 keeps all its digits however small it is.
        last_gap, last_loss = gap, loss
        loss = (lost_once + lost_twice) / float(shares @ survival)
        value = float(np.sqrt(max(0.0, 1.0 - loss)))
        after, factor = (twice, value**2) if alternating else (once, value)
        gap = float(np.max(np.abs(after - factor * survival)))
        fall = gap / last_gap if last_gap > 0.0 else 0.0
        if max(_rest(gap, fall), _rest(abs(loss - last_loss) / loss, fall)) <= tolerance:
            return HittingTail(node, value, max(step, 2))
        survival = twice
    raise NumericalError(
        f"the survival of walks to node {node} has not settled after {2 * _MAX_ROUNDS} steps: "
        "the graph mixes too slowly to skip ahead"
    )


def skip_ahead_hitting_times(
    graph: Graph,
    sources: npt.ArrayLike,
    targets: npt.ArrayLike,
    *,
    seed: int,
    walk: Walk = SIMPLE,
    perron_values: npt.ArrayLike | None = None,
    transient_steps: int | None = None,
    first_job: int = 0,
) -> IntArray:
    """Return first-hitting times with the law of :func:`hitting_times`, stepping only through the transient.

    Args:
        graph: The graph to walk on.
        sources: Start node of every walk; a single node serves all.
        targets: Node that each walk is to hit; a single node serves all.
        seed: Seed of the run, below 2**64.
        walk: The walk.
        perron_values: Perron value of each walk's target, or one for all; with ``transient_steps``. Without
            both, :func:`hitting_tail` finds them, once for every different target.
        transient_steps: Steps to walk before the geometric tail.
        first_job: Number of the first walk's stream.

    Returns:
        The times, int64, one per walk; 0 where a walk starts at its target.
    """
    if (perron_values is None) != (transient_steps is None):
        raise InvalidParameterError(
            "perron_values, transient_steps", (perron_values, transient_steps), "given both or neither"
        )
    from_nodes, to_nodes = node_pairs(graph, sources, targets)
    if perron_values is None or transient_steps is None:
        values, steps = _tails(graph, to_nodes, walk)
    else:
        values, steps = _given_values(perron_values, len(to_nodes)), transient_steps
    times = hitting_times(graph, from_nodes, to_nodes, seed=seed, walk=walk, max_steps=steps, first_job=first_job)
    open_jobs = np.flatnonzero(times == NOT_REACHED)
    waits = _geometric(seed, job_number(first_job) + open_jobs.astype(np.uint64))
    if walk.kind == "simple" and graph.is_bipartite:
        sides = _sides(graph)
        odd = (sides[from_nodes] ^ sides[to_nodes])[open_jobs] ^ bool(steps % 2)
        pairs = waits(values[open_jobs] ** 2)
        times[open_jobs] = steps + 2 * pairs - odd
    else:
        times[open_jobs] = steps + waits(values[open_jobs])
    return times


def _killed_step(graph: Graph, walk: Walk, survival: FloatArray, target: int) -> tuple[FloatArray, float]:
    """Return survival one step earlier, and the stationary share of walks that the step loses."""
    moved = (graph.adjacency @ survival) / graph.degrees
    # By reversibility, what flows into the target is what its own neighbours would send out.
    lost = float(graph.stationary_distribution[target] * moved[target])
    moved[target] = 0.0
    return (moved, lost) if walk.kind == "simple" else (0.5 * (moved + survival), 0.5 * lost)


def _rest(correction: float, fall: float) -> float:
    """Return what this and all later corrections come to when each is ``fall`` times the one before."""
    return correction / max(1.0 - fall, _MIN_FALL)


def _tails(graph: Graph, targets: IntArray, walk: Walk) -> tuple[FloatArray, int]:
    nodes, places = np.unique(targets, return_inverse=True)
    tails = [hitting_tail(graph, int(node), walk=walk) for node in nodes]
    values = np.array([tail.perron_value for tail in tails])
    return values[places], max(tail.transient_steps for tail in tails)


def _given_values(perron_values: npt.ArrayLike, n_jobs: int) -> FloatArray:
    values = np.asarray(perron_values, dtype=np.float64)
    if values.shape not in ((), (1,), (n_jobs,)):
        raise InvalidParameterError("perron_values", f"array of shape {values.shape}", f"one value or {n_jobs}")
    if not bool(np.all((values >= 0.0) & (values < 1.0))):
        raise InvalidParameterError("perron_values", perron_values, "in [0, 1)")
    return np.broadcast_to(values, n_jobs)


def _geometric(seed: int, jobs: npt.NDArray[np.uint64]) -> Callable[[FloatArray], IntArray]:
    """Return what turns factors per step into waits of 1 or more steps, one for each of ``jobs``."""
    from veilwalk.walks import _kernels_hits

    uniforms = np.empty(len(jobs), dtype=np.float64)
    _kernels_hits.tail_uniforms(stream_key(seed), jobs, uniforms)
    exponents = np.log1p(-uniforms)

    def waits(factors: FloatArray) -> IntArray:
        with np.errstate(divide="ignore"):
            return np.floor(exponents / np.log(factors)).astype(np.int64) + 1

    return waits


def _sides(graph: Graph) -> BoolArray:
    """Return which of the two sides of a bipartite graph each node is on."""
    hops = csgraph.shortest_path(graph.adjacency, unweighted=True, indices=0)
    return np.asarray(hops % 2 == 1)
