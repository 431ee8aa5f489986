"""How large the terms are that the paper's three assumptions ignore, for given parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.theory import _hitting as hitting
from veilwalk.theory import _returns as returns
from veilwalk.theory import _window as window
from veilwalk.theory._model import AnonymityModel

# An assumption "bends" when it ignores more than this share of what it approximates.
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredTerm:
    """One assumption and the share of the whole that it leaves out: 0 is exact."""

    label: str
    ignored_share: float
    meaning: str

    @property
    def bends(self) -> bool:
        """Whether the share left out exceeds the tolerance of 5%."""
        return self.ignored_share > TOLERANCE


def ignored_terms(return_time: float, *, model: AnonymityModel) -> tuple[IgnoredTerm, ...]:
    """Return what ass:fht, ass:eth and ass:frt leave out when the return time seen is ``return_time``."""
    return (
        _ignored_by_fht(return_time, model),
        _ignored_by_eth(return_time, model),
        _ignored_by_frt(model),
    )


def _ignored_by_fht(return_time: float, model: AnonymityModel) -> IgnoredTerm:
    closed = window.window_likelihood(return_time, model=model, shortest_paths=False)
    whole = window.window_likelihood(return_time, model=model, shortest_paths=True)
    share = (whole - closed) / whole
    return IgnoredTerm(
        label="ass:fht",
        ignored_share=float(share.max()),
        meaning=(
            f"at distance {model.support.distances[share.argmax()]}, the share of hits inside the window that "
            f"come along the shortest path when the return time is {return_time:.0f}"
        ),
    )


def _ignored_by_eth(return_time: float, model: AnonymityModel) -> IgnoredTerm:
    ell, walk = model.support.distances, model.walk
    whole = hitting.truncated_mean(return_time, distance=ell, model=walk)
    lost = hitting.lost_probability(return_time, distance=ell, model=walk)
    kept = lost * hitting.truncated_mean_nsp(return_time, distance=ell, model=walk)
    share = np.abs(whole - kept) / whole
    return IgnoredTerm(
        label="ass:eth",
        ignored_share=float(share.max()),
        meaning=(
            f"at distance {ell[share.argmax()]}, the share of the mean hitting time below {return_time:.0f} "
            "that comes from the shortest path"
        ),
    )


def _ignored_by_frt(model: AnonymityModel) -> IgnoredTerm:
    return IgnoredTerm(
        label="ass:frt",
        ignored_share=returns.retroceding_share(model.support.lo, model=model.walk),
        meaning=(f"the share of first returns after {2 * model.support.lo} hops or more that retrace their own way"),
    )
