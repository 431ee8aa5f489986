"""What there is to know about a graph before walking on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, frozen
from veilwalk.core.errors import NumericalError
from veilwalk.graphs._distances import all_sources_affordable, diameter, mean_shell_sizes
from veilwalk.graphs._graph import Graph
from veilwalk.graphs._spectrum import WalkSpectrum, walk_spectrum

_SPECTRUM_ENTRIES = 250_000
_SPECTRUM_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """Size, degrees, distances and mixing of a graph.

    ``mean_shell_sizes[d]`` is the mean number of nodes at distance d, over ``shell_sources`` sources: all of
    them when ``shells_exact``, else an evenly spaced sample. The diameter is exact when its bounds meet. The
    gaps are None where the graph is too large, or mixes too slowly, to find them in seconds;
    :func:`walk_spectrum` takes the time.
    """

    nodes: int
    edges: int
    degree_min: int
    degree_max: int
    degree_mean: float
    regular: bool
    bipartite: bool
    diameter_lower: int
    diameter_upper: int
    diameter_exact: bool
    spectral_gap: float | None
    absolute_spectral_gap: float | None
    mean_shell_sizes: FloatArray
    shell_sources: int
    shells_exact: bool
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data that JSON knows."""
        return asdict(self) | {"mean_shell_sizes": self.mean_shell_sizes.tolist()}


def summary(graph: Graph, *, sampled_sources: int = 64) -> GraphSummary:
    """Summarise ``graph``.

    Args:
        graph: The graph.
        sampled_sources: Sources to measure shells from when the graph is too large for all of them.
    """
    validate.integer(sampled_sources=sampled_sources)
    validate.at_least(1, sampled_sources=sampled_sources)
    shells_exact = all_sources_affordable(graph) or sampled_sources >= graph.n_nodes
    count = graph.n_nodes if shells_exact else sampled_sources
    shells = mean_shell_sizes(graph, np.arange(count) * graph.n_nodes // count)
    width, spectrum = diameter(graph), _affordable_spectrum(graph)
    return GraphSummary(
        nodes=graph.n_nodes,
        edges=graph.n_edges,
        degree_min=int(graph.degrees.min()),
        degree_max=int(graph.degrees.max()),
        degree_mean=float(graph.degrees.mean()),
        regular=graph.is_regular,
        bipartite=graph.is_bipartite,
        diameter_lower=width.lower,
        diameter_upper=width.upper,
        diameter_exact=width.exact,
        spectral_gap=spectrum.gap if spectrum else None,
        absolute_spectral_gap=spectrum.absolute_gap if spectrum else None,
        mean_shell_sizes=frozen(shells),
        shell_sources=count,
        shells_exact=shells_exact,
        digest=graph.digest,
    )


def _affordable_spectrum(graph: Graph) -> WalkSpectrum | None:
    if len(graph.indices) > _SPECTRUM_ENTRIES:
        return None
    try:
        return walk_spectrum(graph, tolerance=_SPECTRUM_TOLERANCE)
    except NumericalError:
        return None
