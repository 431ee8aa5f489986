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


@dataclass(frozen=True, slots=True)
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
    ell, walk, lo = model.support.distances, model.walk, model.support.lo
    closed = window.window_likelihood(return_time, model=model, shortest_paths=False)
    whole = window.window_likelihood(return_time, model=model, shortest_paths=True)
    direct = (whole - closed) / whole
    window_hits = (
        f"at distance {ell[direct.argmax()]}, the share of hits inside the window that come along the shortest path "
        f"when the return time is {return_time:.0f}"
    )
    mean = hitting.truncated_mean(return_time, distance=ell, model=walk)
    lost = hitting.lost_probability(return_time, distance=ell, model=walk)
    lost_part = lost * hitting.truncated_mean_nsp(return_time, distance=ell, model=walk)
    shorter = np.abs(mean - lost_part) / mean
    mean_share = (
        f"at distance {ell[shorter.argmax()]}, the share of the mean hitting time below {return_time:.0f} that comes "
        "from the shortest path"
    )
    retraced = f"the share of first returns after {2 * lo} hops or more that retrace their own way"
    return (
        IgnoredTerm("ass:fht", float(direct.max()), window_hits),
        IgnoredTerm("ass:eth", float(shorter.max()), mean_share),
        _ignored_by_trees(model),
        IgnoredTerm("ass:frt", returns.retroceding_share(lo, model=walk), retraced),
    )


def _ignored_by_trees(model: AnonymityModel) -> IgnoredTerm:
    """Every closed form takes the graph for a tree around each node: it must miss neither neighbours nor room."""
    nodes, degree = model.walk.n_nodes, model.walk.degree
    missed = 1 - float(gompertz_shell_sizes(1, model=model.walk)) / degree
    beyond = window.shell_sizes(model)[model.support.distances >= 2].sum()
    # Shells that hold more nodes than there are beyond the neighbours are not shells of any graph.
    crowded = (beyond - (nodes - 1 - degree)) / beyond if beyond else 0.0
    what = f"the share by which shell sizes are off, and hitting times with them: {nodes} nodes are too few for trees"
    return IgnoredTerm("ass:tree", float(max(missed, crowded)), f"{what} of degree {degree}")
