"""Summarises a graph: size, degrees, distances, and how fast the simple walk forgets where it started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

from veilwalk.core.arrays import FloatArray, frozen
from veilwalk.graphs._distances import diameter, is_search_from_all_affordable, mean_shell_sizes
from veilwalk.graphs._graph import Graph

_DENSE_NODES = 1000
# Sources to measure shells from when the graph is too large for all of them.
_SAMPLED_SOURCES = 64
_MAX_ITERATIONS = 1000
_SPECTRUM_ENTRIES = 250_000
_SPECTRUM_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSummary:
    """Size, degrees, distances and mixing of a graph.

    ``mean_shell_sizes[d]`` is the mean number of nodes at distance d, over ``shell_sources`` sources: all of
    them when ``shells_exact``, else an evenly spaced sample. The diameter is exact when its bounds meet. The
    gaps, of the simple walk, are None where the graph is too large, or mixes too slowly, to find them in seconds.
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


def summary(graph: Graph) -> GraphSummary:
    """Summarise ``graph``."""
    shells_exact = is_search_from_all_affordable(graph) or graph.n_nodes <= _SAMPLED_SOURCES
    count = graph.n_nodes if shells_exact else _SAMPLED_SOURCES
    shells = mean_shell_sizes(graph, np.arange(count) * graph.n_nodes // count)
    width, (gap, absolute_gap) = diameter(graph), find_gaps(graph)
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
        spectral_gap=gap,
        absolute_spectral_gap=absolute_gap,
        mean_shell_sizes=frozen(shells),
        shell_sources=count,
        shells_exact=shells_exact,
        digest=graph.digest,
    )


def find_gaps(graph: Graph) -> tuple[float, float] | tuple[None, None]:
    """Return one less the second largest eigenvalue of the simple walk, and one less the second largest modulus.

    The second is 0 on a bipartite graph, where the walk never settles. Both are None on a graph too large for a dense
    solution where they take long to find, or are too small to be resolved.
    """
    if graph.n_nodes > _DENSE_NODES and len(graph.indices) > _SPECTRUM_ENTRIES:
        return None, None
    scale = 1.0 / np.sqrt(graph.degrees.astype(np.float64))
    # Similar to the transition matrix, and symmetric.
    walk = sparse.diags_array(scale) @ graph.adjacency @ sparse.diags_array(scale)
    if graph.n_nodes <= _DENSE_NODES:
        values = linalg.eigvalsh(walk.toarray())
        second, smallest = float(values[-2]), float(values[0])
    else:
        try:
            second, smallest = _extremes(graph, walk.tocsr())
        except sparse_linalg.ArpackNoConvergence:
            return None, None
        if 1.0 - (second if graph.is_bipartite else max(second, -smallest)) <= _SPECTRUM_TOLERANCE:
            return None, None
    smallest = -1.0 if graph.is_bipartite else smallest
    return 1.0 - second, 1.0 - max(abs(second), abs(smallest))


def _extremes(graph: Graph, walk: sparse.csr_array) -> tuple[float, float]:
    """Return the largest and smallest eigenvalue but for the known one at 1."""
    n_nodes = graph.n_nodes
    top = np.sqrt(graph.stationary_distribution)
    # The other eigenvalues sum to -1, so their mean lies between their extremes: moved there, the known one
    # is neither.
    shift = 1.0 + 1.0 / (n_nodes - 1)

    def apply(vector: FloatArray) -> FloatArray:
        flat = vector.ravel()
        image: FloatArray = walk @ flat - shift * (top @ flat) * top
        return image

    operator = sparse_linalg.LinearOperator((n_nodes, n_nodes), matvec=apply, dtype=np.float64)
    # Fixed, so that the result is; not constant, since that is orthogonal to what is sought.
    start = np.random.default_rng(0).standard_normal(n_nodes)
    values = sparse_linalg.eigsh(
        operator,
        k=2,
        which="BE",
        v0=start,
        tol=_SPECTRUM_TOLERANCE,
        maxiter=_MAX_ITERATIONS,
        ncv=min(n_nodes, 40),
        return_eigenvectors=False,
    )
    return float(values.max()), float(values.min())
