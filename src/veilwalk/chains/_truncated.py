"""Questions about the hitting time up to any time: distribution, truncated means, window masses.

Each is the transient, step by step, plus the geometric tail once it has settled, so that its cost does not
depend on how late the asked time is. Where the tail has not settled (poor spectral gap) the steps go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from veilwalk.chains._chain import WalkChain
from veilwalk.chains._evolution import (
    GeometricTail,
    KilledWalks,
    batches,
    blocked,
    give_up_time,
    merged_stops,
    refuse_unsettled,
    unblocked,
)
from veilwalk.chains._limits import chosen_targets, require_memory
from veilwalk.chains._means import mean_hitting_times
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES

Times = float | Sequence[float] | FloatArray | IntArray
# From the sums up to a time, or the sums and a tail, to the (n_nodes, k) answer for that time.
_Reader = Callable[[KilledWalks, float, GeometricTail | None], FloatArray]


def hitting_cdf(
    chain: WalkChain,
    times: Times,
    targets: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(T_ij <= t) for any time, ``math.inf`` included; T = 0 where source and target meet.

    Cost: about ``37 / log(1 / rho)`` products a target, rho the chain's mixing rate, however late t is.
    Relative error about 1e-12: sums of non-negative numbers, and a tail that has been checked entry by entry.

    Args:
        chain: The walk.
        times: One time, or several.
        targets: Targets to answer for; all nodes when none are named.
        memory_bytes: Most memory the answer may take.

    Returns:
        Shape (n_nodes, k) for one time, (len(times), n_nodes, k) for several.

    Raises:
        ResourceLimitError: The answer would not fit.
        NumericalError: The tail is not geometric by four times the time at which it should be.
    """

    def read(walks: KilledWalks, until: float, tail: GeometricTail | None) -> FloatArray:
        mass = walks.total(0)
        if tail is not None:
            mass += tail.mass(tail.time, until)
        return np.minimum(mass, 1.0)

    def limit(columns: IntArray) -> FloatArray:
        return np.ones((chain.n_nodes, len(columns)))

    return _answer(chain, times, targets, read, limit, n_sums=1, memory_bytes=memory_bytes)


def truncated_means(
    chain: WalkChain,
    kappa: Times,
    targets: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return E[T_ij | T_ij <= kappa]; ``math.inf`` where T_ij <= kappa is impossible.

    Impossible means that kappa is below the distance from i to j. Where source and target meet the mean is 0;
    for ``kappa = math.inf`` it is the mean hitting time. Arguments, shapes, cost and errors as for
    :func:`hitting_cdf`; relative error at most 1e-10, 1e-12 where the spectral gap is good.
    """

    def read(walks: KilledWalks, until: float, tail: GeometricTail | None) -> FloatArray:
        mass, moment = walks.total(0), walks.total(1)
        if tail is not None:
            mass += tail.mass(tail.time, until)
            moment += tail.moment(until)
        return np.divide(moment, mass, out=np.full_like(mass, math.inf), where=mass > 0.0)

    def limit(columns: IntArray) -> FloatArray:
        return mean_hitting_times(chain, columns, memory_bytes=memory_bytes)

    return _answer(chain, kappa, targets, read, limit, n_sums=2, memory_bytes=memory_bytes)


def window_masses(
    chain: WalkChain,
    lo: npt.ArrayLike,
    hi: npt.ArrayLike,
    targets: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(lo_ij <= T_ij <= hi_ij); 0 for an empty window.

    Only probabilities inside the window are summed, so that a rare one keeps its digits. Cost and errors as
    for :func:`hitting_cdf`; in the far tail the relative error grows as the time times 1e-16, and a pair cut
    off from the rest of the network by its target has an absolute error of at most 1e-12 times the gap.

    Args:
        chain: The walk.
        lo: First times, whole numbers that broadcast to (n_nodes, k).
        hi: Last times, likewise.
        targets: Targets to answer for; all nodes when none are named.
        memory_bytes: Most memory the answer may take.
    """
    columns = chosen_targets(chain, targets)
    shape = (chain.n_nodes, len(columns))
    require_memory("window masses", 3 * chain.n_nodes * len(columns), memory_bytes)
    first, last = _window_ends("lo", lo, shape), _window_ends("hi", hi, shape)
    answer = np.empty(shape)
    for part in batches(chain, columns):
        answer[:, part] = _window_batch(chain, columns[part], first[:, part], last[:, part])
    return answer


def _window_ends(name: str, ends: npt.ArrayLike, shape: tuple[int, int]) -> FloatArray:
    given = np.asarray(ends)
    if not np.issubdtype(given.dtype, np.integer):
        raise InvalidParameterError(name, f"array of {given.dtype}", "whole numbers")
    try:
        return np.broadcast_to(given.astype(np.float64), shape)
    except ValueError:
        raise InvalidParameterError(name, f"array of shape {given.shape}", f"of shape {shape}") from None


def _window_batch(chain: WalkChain, targets: IntArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    reach = max(int(hi.max()), 0)
    walks = KilledWalks(chain, targets, np.zeros((0, 1)))
    lo_blocks, hi_blocks = blocked(lo), blocked(hi)
    masses = np.zeros_like(lo_blocks)
    tail = None
    for time, is_look in merged_stops(chain, [reach]):
        walks.advance_windows(time, lo_blocks, hi_blocks, masses)
        tail = walks.tail() if is_look else None
        if tail is not None:
            break
    if tail is None and reach > walks.time:
        raise refuse_unsettled(chain, walks.time)
    answer = unblocked(masses, len(targets))
    if tail is not None:
        after = np.maximum(lo - 1.0, tail.time)
        answer += tail.mass(after, np.maximum(hi, after))
    columns = np.arange(len(targets))
    at_target = (lo[targets, columns] <= 0) & (hi[targets, columns] >= 0)
    answer[targets, columns] = np.where(at_target, 1.0, 0.0)
    return answer


def _answer(
    chain: WalkChain,
    times: Times,
    targets: Sequence[int] | IntArray | None,
    read: _Reader,
    limit: Callable[[IntArray], FloatArray],
    *,
    n_sums: int,
    memory_bytes: int,
) -> FloatArray:
    columns = chosen_targets(chain, targets)
    asked = _asked_times(times)
    require_memory("hitting times", len(asked) * chain.n_nodes * len(columns), memory_bytes)
    answer = np.empty((len(asked), chain.n_nodes, len(columns)))
    finite = sorted({int(time) for time in asked if time < math.inf})
    if finite:
        for part in batches(chain, columns):
            found = _at_times(chain, columns[part], finite, read, n_sums)
            for place, time in enumerate(asked):
                if time < math.inf:
                    answer[place, :, part] = found[int(time)]
    if asked.max() == math.inf:
        answer[asked == math.inf] = limit(columns)
    return answer if np.ndim(times) else answer[0]


def _asked_times(times: Times) -> FloatArray:
    asked = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if asked.ndim != 1 or asked.size == 0 or not np.all(asked >= 0.0):
        raise InvalidParameterError("times", times, ">= 0, one number or a sequence")
    return np.floor(asked)


def _at_times(
    chain: WalkChain, targets: IntArray, times: Sequence[int], read: _Reader, n_sums: int
) -> dict[int, FloatArray]:
    """Return the answer at each of the ascending ``times``."""
    reach = min(times[-1], give_up_time(chain))
    factors = np.arange(reach + 1.0) ** np.arange(n_sums)[:, None]
    walks = KilledWalks(chain, targets, factors)
    found = {0: read(walks, 0, None)} if times[0] == 0 else {}
    tail = None
    for time, is_look in merged_stops(chain, times):
        walks.advance(time)
        if time in times:
            found[time] = read(walks, time, None)
        tail = walks.tail() if is_look else None
        if tail is not None:
            break
    for time in times:
        if time not in found:
            if tail is None:
                raise refuse_unsettled(chain, walks.time)
            found[time] = read(walks, time, tail)
    return found
