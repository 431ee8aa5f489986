"""The exact truth about walks on any connected graph, by linear algebra, without sampling.

Conventions. ``T_ij`` is the first time, 0 included, at which the walk started at i stands on j: ``T_jj = 0``.
``R_j`` is the first time after 0 at which the walk started at j is back. Answers about pairs have one row a
source and one column a target. Results are the same, bit for bit, for any number of threads.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.chains._arc_chain import CHAINS, chain_of
    from veilwalk.chains._chain import Chain
    from veilwalk.chains._deliveries import DeliveryLaw, stationary_law, token_law
    from veilwalk.chains._node_chain import NodeChain
    from veilwalk.chains._openings import MeanOpenings, find_outside
else:
    __getattr__, __all__ = open_room(__name__)
