"""The exact truth about walks on any connected graph, by linear algebra, without sampling.

Conventions. ``T_ij`` is the first time, 0 included, at which the walk started at i stands on j: ``T_jj = 0``.
``R_j`` is the first time after 0 at which the walk started at j is back. Answers about pairs have one row a
source and one column a target. Results are the same, bit for bit, for any number of threads.
"""

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._arc_deliveries import iter_arc_deliveries
from veilwalk.chains._arc_laws import (
    arc_hitting_pmf,
    arc_mean_hitting_times,
    arc_return_pmf,
    arc_return_survival,
    arc_truncated_means,
    arc_window_masses,
)
from veilwalk.chains._arc_updates import ArcUpdates, arc_updates
from veilwalk.chains._chain import WalkChain
from veilwalk.chains._deliveries import (
    DeliveryLaw,
    iter_approximate_deliveries,
    iter_deliveries,
    stationary_law,
    token_law,
)
from veilwalk.chains._interface import CHAINS, ArcWalk, Chain, NodeWalk, States, chain_of
from veilwalk.chains._laws import hitting_expectations, hitting_pmf, hitting_survival, iter_hitting_pmf
from veilwalk.chains._means import mean_hitting_times
from veilwalk.chains._recipients import MeanOpenings, OpeningLaw, require_recipients
from veilwalk.chains._returns import return_pmf, return_survival
from veilwalk.chains._truncated import hitting_cdf, truncated_means, window_masses

__all__ = [
    "CHAINS",
    "ArcChain",
    "ArcUpdates",
    "ArcWalk",
    "Chain",
    "DeliveryLaw",
    "MeanOpenings",
    "NodeWalk",
    "OpeningLaw",
    "States",
    "WalkChain",
    "arc_hitting_pmf",
    "arc_mean_hitting_times",
    "arc_return_pmf",
    "arc_return_survival",
    "arc_truncated_means",
    "arc_updates",
    "arc_window_masses",
    "chain_of",
    "hitting_cdf",
    "hitting_expectations",
    "hitting_pmf",
    "hitting_survival",
    "iter_approximate_deliveries",
    "iter_arc_deliveries",
    "iter_deliveries",
    "iter_hitting_pmf",
    "mean_hitting_times",
    "require_recipients",
    "return_pmf",
    "return_survival",
    "stationary_law",
    "token_law",
    "truncated_means",
    "window_masses",
]
