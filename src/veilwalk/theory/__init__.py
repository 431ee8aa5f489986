"""Closed forms for random regular graphs: every formula of the paper, corrected.

The printed form of whatever is wrong lives in :mod:`veilwalk.theory.printed`; the recipe behind the one
published table in :mod:`veilwalk.theory.published`. Docstrings carry the LaTeX labels. Logarithms are natural.

The paper's own network and law, with what they cost and promise:

    >>> from veilwalk.core.support import DistanceSupport
    >>> from veilwalk.theory import *
    >>> walk = WalkModel(n_nodes=300, degree=3)
    >>> model = AnonymityModel(walk=walk, support=DistanceSupport(2, 6), window_radius=5)
    >>> pmf = optimal_distance_pmf(design_return_time(0.3, model=model), model=model)
    >>> round(mean_iteration_hops(pmf, model=model), 1)
    574.9
    >>> promised = guarantee(0.3, model=model)
    >>> round(promised.return_time_from, 1), round(promised.anonymity_floor_nats, 3)
    (216.6, 1.435)
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.theory import printed, published
    from veilwalk.theory._assumptions import ignored_terms
    from veilwalk.theory._bounds import (
        bound_distance_entropy,
        bound_total_variation,
        covered_return_time,
        guarantee,
        mean_iteration_hops,
    )
    from veilwalk.theory._hitting import (
        hitting_pmf_nsp,
        hitting_pmf_sp,
        mean_hitting_time,
        mean_hitting_time_nsp,
        shortest_path_probability,
        truncated_mean,
        truncated_mean_nsp,
    )
    from veilwalk.theory._model import AnonymityModel, WalkModel, typical_diameter
    from veilwalk.theory._returns import design_return_time, guaranteed_return_time, retroceding_share, return_survival
    from veilwalk.theory._window import (
        distance_entropy,
        node_entropy,
        optimal_distance_pmf,
        shell_sizes,
        source_posterior,
        window_likelihood,
    )
else:
    __getattr__, __all__ = open_room(__name__)
