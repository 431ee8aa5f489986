"""Who opens what whom sealed, where there are several recipients: nearer ones are met first."""

from __future__ import annotations

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.design import Scheme
from veilwalk.walks import estimate_openings

# The seed of a second telling, beside the scheme's own.
_OTHER_SEED = 2


def opener_flows(scheme: Scheme, flows: FloatArray, apart: IntArray) -> FloatArray:
    """Return how often i (row) is the source of what j opens, from ``flows``: how often i draws j, all being alike.

    What was told of openings is believed at each distance as a whole, and of single pairs as far as two tellings agree.
    On graphs of which pairs were not told, ``flows`` are all that is known.
    """
    if not len(scheme.openings.joint):
        return flows
    other = estimate_openings(
        scheme.graph,
        scheme.law.draws,
        scheme.recipients,
        walk=scheme.walk,
        legs=scheme.openings.legs,
        seed=_OTHER_SEED,
    )
    told = [found.by_opener(scheme.graph) for found in (scheme.openings, other)]

    def by_distance(table: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(apart.ravel(), weights=table.ravel()), dtype=np.float64)

    expected = flows * _ratio(by_distance(told[0] + told[1]) / 2, by_distance(flows))[apart]
    one, two = (_ratio(table, expected) - 1.0 for table in told)
    mean = (one + two) / 2
    sign, both = by_distance(expected * one * two), by_distance(expected * mean**2)
    belief = np.clip(np.divide(sign, both, out=np.zeros_like(sign), where=both > 0), 0.0, 1.0)
    return np.asarray(expected * (1.0 + belief[apart] * mean))


def _ratio(told: FloatArray, expected: FloatArray) -> FloatArray:
    return np.asarray(np.divide(told, expected, out=np.ones_like(told), where=expected > 0))
