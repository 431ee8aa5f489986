"""The network: a checked CSR value, generators, readers, distances and shells."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.graphs._distances import balls, distances, iter_distances, mean_shell_sizes
    from veilwalk.graphs._generators import (
        barabasi_albert,
        complete,
        erdos_renyi,
        hypercube,
        overlay,
        random_regular,
        ring,
        torus,
        watts_strogatz,
    )
    from veilwalk.graphs._graph import Graph
    from veilwalk.graphs._readers import from_networkx, from_sparse, read_graph
    from veilwalk.graphs._spec import parse_graph_spec
    from veilwalk.graphs._summary import GraphSummary, summary
else:
    __getattr__, __all__ = open_room(__name__)
