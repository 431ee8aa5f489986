"""Computes what a secret overlay with nameless keys hides, by the theorem of docs/explanation/secret-overlay.md.

To any observer all members without a link to it are exchangeable. So an opener's posterior is uniform over all but
itself and its neighbours, and a coalition names only members with a colluding neighbour, however long it watches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.stats import Estimate
from veilwalk.design._channel import Exposure
from veilwalk.design._scheme import Scheme


@dataclass(frozen=True, kw_only=True)
class CoalitionLimits:
    """What a coalition may learn on an overlay that is recommended; it is a share of the members.

    At most so many honest members are named in the long run, a bound that the degree decides; at most so many honest
    updates are read with shared keys.
    """

    colluding: float = 0.1
    most_named: float = 0.35
    most_read: float = 0.65


_BY_SYMMETRY = "exact: uniform over all but its neighbours, by symmetry"


def exposed_share(colluding: float, degree: int, *, overlays: int = 1) -> float:
    """Return the share of honest members with a colluding neighbour on some overlay: 1 - (1 - p)^(c e).

    It is the limit of many members, and the bound on what a coalition names in the long run; more overlays name more.
    """
    validate.integer(1, degree=degree, overlays=overlays)
    if not 0.0 <= colluding < 1.0:
        raise InvalidParameterError("colluding", colluding, "a share of the members, at least 0 and below 1")
    return -math.expm1(degree * overlays * math.log1p(-colluding))


def approximate_read_share(recipients: int, colluding: float, n_nodes: int) -> float:
    """Return about the share of honest updates that a coalition reads which shares its keys.

    A set has a member's key with the chance 1 - (1 - p)^K. Each node met then is a member with the chance p, or else
    an honest recipient; the first node met is a neighbour of the maker, and no recipient.
    """
    p = colluding
    some = -math.expm1(recipients * math.log1p(-p))
    if some <= 0.0:
        return 0.0
    honest = min(recipients * (1.0 - p / some) / (n_nodes * (1.0 - p)), 1.0)
    return some * (p + (1.0 - p) * p / (p + (1.0 - p) * honest))


def expose_overlay(scheme: Scheme, shares: tuple[float, ...]) -> Exposure:
    """Return the exposure of a scheme that hides names: of opener and predecessor, with bounds for coalitions."""
    graph = scheme.graph
    n_nodes, degree = graph.n_nodes, int(graph.degrees.max())
    others = n_nodes - 1 - degree
    entropy, guess = (Estimate.exact(value, _BY_SYMMETRY) for value in (math.log(others), 1.0 / others))
    counts = {share: min(max(round(share * n_nodes), 1), n_nodes - 1) for share in shares}
    return Exposure(
        observer="opener",
        node_entropy=entropy,
        hit_ratio=guess,
        blind_node_entropy=entropy,
        blind_hit_ratio=guess,
        return_hit_ratio=guess,
        worst_percent_hit_ratio=guess,
        worst_arc_hit_ratio=guess,
        predecessor_guess=guess,
        predecessor_guess_with_hop=guess,
        named_in_the_long_run={
            count / n_nodes: Estimate.exact(
                min(exposed_share(count / n_nodes, degree) + 1.0 / (n_nodes - count), 1.0), "bound for any observer"
            )
            for count in counts.values()
        },
    )
