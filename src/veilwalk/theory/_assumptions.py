"""How large the terms are that the paper's assumptions ignore, for given parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilwalk.theory import _hitting as hitting
from veilwalk.theory import _returns as returns
from veilwalk.theory import _window as window
from veilwalk.theory._model import AnonymityModel, gompertz_shell_sizes

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
    """Return what ass:fht, ass:eth, ass:frt and a tree around every node leave out at the return time seen."""
    return (
        _ignored_by_fht(return_time, model),
        _ignored_by_eth(return_time, model),
        _ignored_by_trees(model),
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
    lost_part = lost * hitting.truncated_mean_nsp(return_time, distance=ell, model=walk)
    share = np.abs(whole - lost_part) / whole
    return IgnoredTerm(
        label="ass:eth",
        ignored_share=float(share.max()),
        meaning=(
            f"at distance {ell[share.argmax()]}, the share of the mean hitting time below {return_time:.0f} "
            "that comes from the shortest path"
        ),
    )


def _ignored_by_trees(model: AnonymityModel) -> IgnoredTerm:
    """Every closed form takes the graph for a tree around each node: it must miss neither neighbours nor room."""
    nodes, degree = model.walk.n_nodes, model.walk.degree
    missed = 1 - float(gompertz_shell_sizes(1, model=model.walk)) / degree
    beyond = window.shell_sizes(model)[model.support.distances >= 2].sum()
    # Shells that hold more nodes than there are beyond the neighbours are not shells of any graph.
    crowded = (beyond - (nodes - 1 - degree)) / beyond if beyond else 0.0
    return IgnoredTerm(
        label="ass:tree",
        ignored_share=float(max(missed, crowded)),
        meaning=(
            f"the share by which shell sizes are off, and hitting times with them: {nodes} nodes are too few for "
            f"trees of degree {degree}"
        ),
    )


def _ignored_by_frt(model: AnonymityModel) -> IgnoredTerm:
    return IgnoredTerm(
        label="ass:frt",
        ignored_share=returns.retroceding_share(model.support.lo, model=model.walk),
        meaning=(f"the share of first returns after {2 * model.support.lo} hops or more that retrace their own way"),
    )
