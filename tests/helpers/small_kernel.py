"""A kernel to be compiled by a test, with a cache of its own."""

from __future__ import annotations

import numba

from veilwalk.core.arrays import FloatArray


@numba.njit(cache=True)
def total(values: FloatArray) -> float:
    """Add up."""
    found = 0.0
    for value in values:
        found += value
    return found
