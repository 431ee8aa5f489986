"""The first return to each node: its law, and its survival at any time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilwalk.chains._chain import WalkChain
from veilwalk.chains._evolution import (
    KilledWalks,
    batches,
    merged_stops,
    refuse_unsettled,
)
from veilwalk.chains._limits import chosen_horizon, chosen_targets, require_memory
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES


def return_pmf(
    chain: WalkChain,
    horizon: int,
    nodes: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(R_j = t) for t = 0 to ``horizon``, one column a node.

    R is the first time after 0 at which the walk is back where it started, so R is at least 1 and its mean is
    ``1 / stationary``. Non-negative sums only: relative error about t times the unit rounding.

    Args:
        chain: The walk.
        horizon: Last time.
        nodes: Nodes to answer for; all when none are named.
        memory_bytes: Most memory the law may take.
    """
    columns = chosen_targets(chain, nodes)
    last = chosen_horizon(horizon)
    require_memory("return laws", (last + 1) * len(columns), memory_bytes)
    answer = np.empty((last + 1, len(columns)))
    for part in batches(chain, columns):
        walks = KilledWalks(chain, columns[part], np.zeros((0, 1)), kept=last + 1)
        walks.advance(last)
        answer[:, part] = walks.arrivals()
    return answer


def return_survival(
    chain: WalkChain,
    times: int | Sequence[int] | IntArray,
    nodes: Sequence[int] | IntArray | None = None,
) -> FloatArray:
    """Return P(R_j > t) at any times, R as for :func:`return_pmf`; survival at time 0 is 1.

    Transient by its own recursion, then the geometric tail: relative error about t times 1e-16.

    Args:
        chain: The walk.
        times: One time, or several.
        nodes: Nodes to answer for; all when none are named.

    Returns:
        Shape (k,) for one time, (len(times), k) for several.

    Raises:
        NumericalError: The tail is not geometric by four times the time at which it should be.
    """
    columns = chosen_targets(chain, nodes)
    asked = np.atleast_1d(np.asarray(times))
    if asked.ndim != 1 or asked.size == 0 or not np.issubdtype(asked.dtype, np.integer) or asked.min() < 0:
        raise InvalidParameterError("times", times, "whole numbers >= 0, one or a sequence")
    answer = np.empty((len(asked), len(columns)))
    for part in batches(chain, columns):
        answer[:, part] = _survival_batch(chain, columns[part], asked)
    return answer if np.ndim(times) else answer[0]


def _survival_batch(chain: WalkChain, nodes: IntArray, asked: IntArray) -> FloatArray:
    times = np.unique(asked)
    found = np.ones((len(times), len(nodes)))
    walks = KilledWalks(chain, nodes, np.zeros((0, 1)), survival=True, kept=2)
    for time, is_look in merged_stops(chain, times.tolist()):
        walks.advance(time)
        found[times == time] = walks.arrivals()[time % 2]
        tail = walks.tail() if is_look else None
        if tail is not None:
            late = times[times > time]
            # Whole rounds of two lead back to one of the last two times.
            rounds = (late - time + 1) // 2
            found[times > time] = walks.arrivals()[late % 2] * np.exp(rounds[:, None] * np.log1p(-tail.gap))
            break
    else:
        if times[-1] > walks.time:
            raise refuse_unsettled(chain, walks.time)
    return found[np.searchsorted(times, asked)]
