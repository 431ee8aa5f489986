"""The network: a checked CSR value, generators, readers, distances and shells."""

from veilwalk.graphs._distances import (
    Balls,
    Diameter,
    balls,
    diameter,
    distances,
    iter_distances,
    mean_shell_sizes,
    shell_sizes,
)
from veilwalk.graphs._generators import (
    barabasi_albert,
    complete,
    erdos_renyi,
    hypercube,
    random_geometric,
    random_regular,
    ring,
    torus,
    watts_strogatz,
)
from veilwalk.graphs._graph import Graph
from veilwalk.graphs._networkx import from_networkx
from veilwalk.graphs._readers import from_sparse, read_graph
from veilwalk.graphs._spec import GRAPH_KINDS, GraphKind, parse_graph_spec
from veilwalk.graphs._summary import GraphSummary, WalkSpectrum, spectral_gap, summary, walk_spectrum

__all__ = [
    "GRAPH_KINDS",
    "Balls",
    "Diameter",
    "Graph",
    "GraphKind",
    "GraphSummary",
    "WalkSpectrum",
    "balls",
    "barabasi_albert",
    "complete",
    "diameter",
    "distances",
    "erdos_renyi",
    "from_networkx",
    "from_sparse",
    "hypercube",
    "iter_distances",
    "mean_shell_sizes",
    "parse_graph_spec",
    "random_geometric",
    "random_regular",
    "read_graph",
    "ring",
    "shell_sizes",
    "spectral_gap",
    "summary",
    "torus",
    "walk_spectrum",
    "watts_strogatz",
]
