"""The compiled loop over what every destination can see of every source."""

from __future__ import annotations

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.engine import njit


@njit(cache=True, error_model="numpy")
def hit_slopes(
    joint: FloatArray,
    sources: IntArray,
    first_source: IntArray,
    tables: FloatArray,
    first_entry: IntArray,
    sharpness: float,
    gradient: FloatArray,
    slope: FloatArray,
    values: FloatArray,
) -> None:
    """Fill, for each destination, the slopes of its hit ratio; ``values[:, 0]`` is exact, ``values[:, 1]`` smooth.

    The sources of destination j are ``sources[first_source[j]:first_source[j+1]]``, its table of observations by
    sources is laid out row by row in ``tables[first_entry[j]:first_entry[j+1]]``.
    """
    # Below this share of the largest a source has no weight to speak of.
    least = np.exp(-35.0 / (sharpness - 1.0))
    for node in range(len(joint)):
        begin, end = first_source[node], first_source[node + 1]
        width = end - begin
        own = np.empty(width)
        for place in range(width):
            own[place] = joint[node, sources[begin + place]]
        weights = np.empty(width)
        exact, smooth = 0.0, 0.0
        for row in range(first_entry[node], first_entry[node + 1], width):
            top = 0.0
            for place in range(width):
                top = max(top, tables[row + place] * own[place])
            if top == 0.0:
                continue
            power, total = 0.0, 0.0
            for place in range(width):
                ratio = tables[row + place] * own[place] / top
                weights[place] = ratio ** (sharpness - 1.0) if ratio > least else 0.0
                power += weights[place] * ratio
                total += weights[place]
            exact += top
            smooth += top * power ** (1.0 / sharpness)
            steep, flat = power ** (1.0 / sharpness - 1.0), 1.0 / total
            for place in range(width):
                if weights[place] > 0.0:
                    share = weights[place] * tables[row + place]
                    gradient[node, sources[begin + place]] += steep * share
                    slope[node, sources[begin + place]] += flat * share
        values[node, 0], values[node, 1] = exact, smooth
