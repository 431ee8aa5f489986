"""Whole laws of the hitting time, time by time: probabilities and survival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from veilwalk.chains import _kernels
from veilwalk.chains._chain import WalkChain
from veilwalk.chains._evolution import WIDTH, KilledWalks, batches, blocked_targets, starting_columns
from veilwalk.chains._limits import chosen_horizon, chosen_targets, require_memory
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES


def hitting_pmf(
    chain: WalkChain,
    target: int | Sequence[int] | IntArray,
    horizon: int,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(T_ij = t) for t = 0 to ``horizon`` and every source i.

    T is the first time, 0 included, at which the walk stands on its target: started there, T = 0.

    The recursion ``f_t = P f_{t-1}`` with arrivals taken out only adds and multiplies non-negative numbers:
    each entry has a relative error of about t times the unit rounding. Cost: ``nnz * horizon`` products a
    target.

    Args:
        chain: The walk.
        target: One target, or several.
        horizon: Last time.
        memory_bytes: Most memory the law may take.

    Returns:
        Shape (horizon + 1, n_nodes) for one target, (horizon + 1, n_nodes, k) for several.

    Raises:
        ResourceLimitError: The law would not fit; :func:`iter_hitting_pmf` gives it in parts.
    """
    return _law(chain, target, horizon, memory_bytes, survival=False)


def hitting_survival(
    chain: WalkChain,
    target: int | Sequence[int] | IntArray,
    horizon: int,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return P(T_ij > t) for t = 0 to ``horizon`` and every source i; arguments as for :func:`hitting_pmf`.

    Computed by its own recursion, not as one minus a sum: small survivals keep their digits.
    """
    return _law(chain, target, horizon, memory_bytes, survival=True)


def iter_hitting_pmf(
    chain: WalkChain,
    horizon: int,
    *,
    targets: Sequence[int] | IntArray | None = None,
    block: int = WIDTH,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield the law of :func:`hitting_pmf` in parts: ``(targets, pmf)``, ``block`` targets at a time.

    ``pmf`` has shape (horizon + 1, n_nodes, len(targets)) and is overwritten by the next step of the
    iteration: keep what you make of it, not the array.
    """
    columns = chosen_targets(chain, targets)
    last = chosen_horizon(horizon)
    validate.integer(block=block)
    validate.at_least(1, block=block)
    per_block = (last + 1) * chain.n_nodes * block
    require_memory("hitting laws", per_block, memory_bytes)
    at_once = max(1, min(_kernels.thread_count(), memory_bytes // (8 * per_block), -(-len(columns) // block)))
    laws = np.empty((at_once, last + 1, chain.n_nodes, block))
    for start in range(0, len(columns), at_once * block):
        part = columns[start : start + at_once * block]
        n_blocks = -(-len(part) // block)
        padded = np.pad(part, (0, n_blocks * block - len(part)), mode="edge").reshape(n_blocks, block)
        _fill(chain, padded, laws[:n_blocks], survival=False)
        for index in range(n_blocks):
            named = part[index * block : (index + 1) * block]
            yield named, laws[index, :, :, : len(named)]


def hitting_expectations(
    chain: WalkChain,
    values: FloatArray,
    targets: Sequence[int] | IntArray | None = None,
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FloatArray:
    """Return the sum over t of ``values[m, t] * P(T_ij = t)``: linear summaries of the whole law.

    Args:
        chain: The walk.
        values: Shape (m, horizon + 1): what each of m summaries gives to each time.
        targets: Targets to answer for; all nodes when none are named.
        memory_bytes: Most memory the answer may take.

    Returns:
        Shape (m, n_nodes, k); the law itself is never stored.
    """
    factors = np.ascontiguousarray(values, dtype=np.float64)
    if factors.ndim != 2 or factors.size == 0 or not np.isfinite(factors).all():
        raise InvalidParameterError("values", f"array of shape {factors.shape}", "finite, (m, horizon + 1)")
    columns = chosen_targets(chain, targets)
    answer_shape = (len(factors), chain.n_nodes, len(columns))
    require_memory("hitting expectations", int(np.prod(answer_shape)), memory_bytes)
    answer = np.empty(answer_shape)
    for part in batches(chain, columns):
        walks = KilledWalks(chain, columns[part], factors)
        walks.advance(factors.shape[1] - 1)
        for kind in range(len(factors)):
            answer[kind, :, part] = walks.total(kind)
    return answer


def _law(
    chain: WalkChain,
    target: int | Sequence[int] | IntArray,
    horizon: int,
    memory_bytes: int,
    *,
    survival: bool,
) -> FloatArray:
    several = np.ndim(target) > 0
    columns = chosen_targets(chain, np.atleast_1d(np.asarray(target)))
    last = chosen_horizon(horizon)
    padded = blocked_targets(columns)
    # More than one block is laid out a second time, as one array.
    copies = 1 if len(padded) == 1 else 2
    require_memory("hitting laws", copies * (last + 1) * chain.n_nodes * padded.size, memory_bytes)
    laws = np.empty((len(padded), last + 1, chain.n_nodes, padded.shape[1]))
    _fill(chain, padded, laws, survival=survival)
    if len(padded) == 1:
        return laws[0] if several else laws[0, :, :, 0]
    joined = laws.transpose(1, 2, 0, 3).reshape(last + 1, chain.n_nodes, padded.size)
    return joined[:, :, : len(columns)]


def _fill(chain: WalkChain, targets: IntArray, laws: FloatArray, *, survival: bool) -> None:
    laws[:, 0] = starting_columns(chain, targets, survival=survival)
    _kernels.record(chain.indptr, chain.indices, chain.probabilities, targets, laws)
