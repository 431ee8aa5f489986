"""Hitting and return times of the non-backtracking walk: means, whole laws, truncated means, window masses.

``T_sj`` is the first time, 0 included, at which a walk that has just come by arc s stands on node j. Answers have one
row an arc and one column a target; with ``arrivals`` (see :meth:`ArcChain.by_node`) one row a node, for a walk that
came to it by an arc of that law. All are transients, step by step, plus a geometric tail once it has settled, each
step O(arcs) a target; where the tail has not settled the steps go on. Sums of non-negative numbers keep their digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from veilwalk.chains import _kernels_arcs as kernels
from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._arc_columns import ArcColumns, arc_batches, stops
from veilwalk.chains._arc_potentials import Potentials
from veilwalk.chains._evolution import GeometricTail, blocked, unblocked
from veilwalk.chains._limits import chosen_horizon, chosen_targets, require_memory
from veilwalk.chains._truncated import _window_ends
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES

# Beyond this many times its own mean a geometric tail is below rounding.
_TAIL_MEANS = 60.0
_SOME_STEPS = 512
# A multiplication of LAPACK's is this much cheaper than one of a step, or more.
_DENSE_GAIN = 8

Nodes = Sequence[int] | IntArray | None


def arc_mean_hitting_times(
    chain: ArcChain,
    targets: Nodes = None,
    *,
    arrivals: FloatArray | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return E[T_sj]; 0 on arcs into the target.

    Relative error about 1e-12. Where the tail does not settle (poor mixing, a period of three or more) a dense solve
    over all arcs takes over.
    """
    columns = chosen_targets(chain, targets)
    require_memory("mean hitting times", chain.n_arcs * len(columns), memory_bytes)
    means = np.empty((chain.n_arcs, len(columns)))
    potentials: Potentials | None = None
    for part in arc_batches(chain, columns):
        # No more steps than cost as much as the dense solve, but some for tiny graphs.
        reach = chain.n_arcs**2 // (_DENSE_GAIN * len(columns[part])) + _SOME_STEPS
        walks, tail = _run(chain, columns[part], reach)
        if tail is None:
            potentials = potentials or Potentials(chain, memory_bytes=memory_bytes)
            means[:, part] = np.stack([potentials.hits(int(node))[0] for node in columns[part]], axis=1)
        else:
            until = tail.time + 2.0 * np.ceil(_TAIL_MEANS / tail.gap)
            means[:, part] = walks.total(1) + tail.moment(until)
    return means if arrivals is None else chain.by_node(means, arrivals)


def arc_hitting_pmf(
    chain: ArcChain,
    targets: Nodes,
    horizon: int,
    *,
    arrivals: FloatArray | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(T_sj = t) for t = 0 to ``horizon``: shape (horizon + 1, rows, targets)."""
    columns, last = chosen_targets(chain, targets), chosen_horizon(horizon)
    require_memory("hitting laws", 2 * (last + 1) * chain.n_arcs * len(columns), memory_bytes)
    laws = np.empty((last + 1, chain.n_arcs, len(columns)))
    laws[0] = chain.graph.indices[:, np.newaxis] == columns
    kernels.record_arcs(chain.graph.indptr, chain.reverse, columns, laws)
    by_arc = laws[:, chain.reverse]
    if arrivals is None:
        return by_arc
    return np.moveaxis(chain.by_node(np.moveaxis(by_arc, 1, 0), arrivals), 0, 1)


def arc_truncated_means(
    chain: ArcChain,
    kappa: float,
    targets: Nodes = None,
    *,
    arrivals: FloatArray | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return E[T_sj | T_sj <= kappa]; ``math.inf`` where that is impossible, the mean where kappa is infinite."""
    validate.at_least(0, kappa=kappa)
    if kappa == math.inf:
        return arc_mean_hitting_times(chain, targets, arrivals=arrivals, memory_bytes=memory_bytes)
    columns = chosen_targets(chain, targets)
    require_memory("truncated means", 2 * chain.n_arcs * len(columns), memory_bytes)
    sums = np.empty((2, chain.n_arcs, len(columns)))
    last = math.floor(kappa)
    for part in arc_batches(chain, columns):
        walks, tail = _run(chain, columns[part], last)
        for kind in range(2):
            sums[kind, :, part] = walks.total(kind)
        if tail is not None:
            sums[0, :, part] += tail.mass(tail.time, last)
            sums[1, :, part] += tail.moment(last)
    mass, moment = sums if arrivals is None else (chain.by_node(part, arrivals) for part in sums)
    return np.divide(moment, mass, out=np.full_like(mass, math.inf), where=mass > 0.0)


def arc_window_masses(
    chain: ArcChain,
    lo: npt.ArrayLike,
    hi: npt.ArrayLike,
    targets: Nodes = None,
    *,
    arrivals: FloatArray | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(lo <= T_sj <= hi) for windows of whole numbers, one for each row and column of the answer."""
    columns = chosen_targets(chain, targets)
    require_memory("window masses", 3 * chain.n_arcs * len(columns), memory_bytes)
    rows = chain.n_arcs if arrivals is None else chain.n_nodes
    ends = [_window_ends(name, given, (rows, len(columns))) for name, given in (("lo", lo), ("hi", hi))]
    if arrivals is not None:
        ends = [end[chain.heads] for end in ends]
    masses = np.empty((chain.n_arcs, len(columns)))
    for part in arc_batches(chain, columns):
        masses[:, part] = _window_batch(chain, columns[part], ends[0][:, part], ends[1][:, part])
    return masses if arrivals is None else chain.by_node(masses, arrivals)


def arc_return_pmf(
    chain: ArcChain, horizon: int, nodes: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> FloatArray:
    """Return P(R_j = t) for t = 0 to ``horizon``, one column a node.

    R is the first time after 0 at which the walk is back; in the long run, that is having come by a uniform arc. Its
    mean is the number of arcs over the degree.
    """
    columns, last = chosen_targets(chain, nodes), chosen_horizon(horizon)
    require_memory("return laws", (last + 1) * len(columns), memory_bytes)
    answer = np.empty((last + 1, len(columns)))
    for part in arc_batches(chain, columns):
        walks = ArcColumns(chain, columns[part], kept=last + 1)
        walks.advance(last)
        answer[:, part] = walks.arrivals()
    return answer


def arc_return_survival(chain: ArcChain, times: Sequence[int] | IntArray, nodes: Nodes = None) -> FloatArray:
    """Return P(R_j > t), R as for :func:`arc_return_pmf`, one row a time: transient, then the geometric tail."""
    columns, asked = chosen_targets(chain, nodes), np.asarray(times)
    if asked.ndim != 1 or asked.size == 0 or not np.issubdtype(asked.dtype, np.integer) or asked.min() < 0:
        raise InvalidParameterError("times", times, "a sequence of whole numbers >= 0")
    answer = np.ones((len(asked), len(columns)))
    for part in arc_batches(chain, columns):
        walks = ArcColumns(chain, columns[part])
        for time, is_look in stops(asked.tolist(), int(asked.max())):
            walks.advance(time)
            answer[asked == time, part] = walks.return_survival()
            tail = walks.tail() if is_look else None
            if tail is not None:
                late = asked > time
                # Whole rounds of two lead back to one of the last two times.
                rounds, odd = np.divmod(asked[late, np.newaxis] - time + 1, 2)
                ends = (tail.earlier.sum(axis=0), tail.last.sum(axis=0))
                kept = np.where(odd == 0, *ends) / chain.graph.degrees[columns[part]]
                answer[late, part] = kept * np.exp(rounds * np.log1p(-tail.gap))
                break
    return answer


def _run(chain: ArcChain, targets: IntArray, reach: int) -> tuple[ArcColumns, GeometricTail | None]:
    """Advance to ``reach``, or until the tail has settled, gathering the sums of 1 and of t."""
    walks = ArcColumns(chain, targets, n_sums=2)
    for time, is_look in stops([reach], reach):
        walks.advance(time)
        tail = walks.tail() if is_look else None
        if tail is not None:
            return walks, tail
    return walks, None


def _window_batch(chain: ArcChain, targets: IntArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    reach = max(int(hi.max()), 0)
    walks, tail = ArcColumns(chain, targets), None
    # Columns are numbered by the entry gone along: the reverse of the arc.
    lo_blocks, hi_blocks = blocked(lo[chain.reverse]), blocked(hi[chain.reverse])
    masses = np.zeros_like(lo_blocks)
    for time, is_look in stops([reach], reach):
        walks.advance_windows(time, lo_blocks, hi_blocks, masses)
        tail = walks.tail() if is_look else None
        if tail is not None:
            break
    answer = unblocked(masses, len(targets))[chain.reverse]
    if tail is not None:
        after = np.maximum(lo - 1.0, tail.time)
        answer += tail.mass(after, np.maximum(hi, after))
    on_target = chain.heads[:, np.newaxis] == targets
    return np.where(on_target, ((lo <= 0.0) & (hi >= 0.0)).astype(np.float64), answer)
