"""Destination laws as values: over distances, over nodes, balanced, or from a user's matrix."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from veilwalk.chains import stationary_law
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen, normalised
from veilwalk.core.errors import InfeasibleDesignError, InvalidParameterError, NumericalError, ResourceLimitError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.graphs import Graph, balls, distances, iter_distances
from veilwalk.walks import ExcludedRows

# Rows of a law that are computed together.
_ROWS = 50_000
# Up to this size the stationary law of the sources is solved directly; beyond, by powers.
_DIRECT_NODES = 8_000
_POWERS = 10_000
_FAR_NAME = re.compile(r"far:(\d+)")
# Up to this size the diameter is computed; beyond, twice the reach of one node bounds it.
_SEARCHED_NODES = 10_000
# Margins of a scaled table are met to this error.
MARGIN_TOLERANCE = 1e-11
# Sweeps before the scales are folded into the table, so that none of them overflows; and the number of folds.
_SWEEPS = 250
FOLDS = 20


@dataclass(frozen=True, eq=False)
class DistanceLaw:
    """p(l): a destination at distance l is drawn with probability p(l), evenly among the nodes there.

    ``n_nodes`` and ``degree`` are those of the networks that a closed form is for; None for any network.
    """

    support: DistanceSupport
    distance_pmf: FloatArray
    n_nodes: int | None = None
    degree: int | None = None

    def __post_init__(self) -> None:
        pmf = np.array(self.distance_pmf, dtype=np.float64)
        if pmf.shape != (self.support.size,) or not np.all(pmf >= 0) or abs(pmf.sum() - 1) > 1e-9:
            raise InvalidParameterError("distance pmf", pmf, f"{self.support.size} probabilities that sum to 1")
        object.__setattr__(self, "distance_pmf", frozen(pmf))

    def place_on(self, graph: Graph) -> DestinationLaw:
        """Return the law per node on ``graph``: p(l) over the shell counted there.

        A node with an empty shell at some distance spreads that distance's probability over the others in
        proportion; a node with no other node in the support at all makes the law infeasible.
        """
        if self.n_nodes not in {None, graph.n_nodes}:
            raise InvalidParameterError("graph", f"{graph.n_nodes} nodes", f"of {self.n_nodes}, as the law is for")
        if self.degree is not None and np.any(graph.degrees != self.degree):
            degrees = f"degrees {graph.degrees.min()} to {graph.degrees.max()}"
            raise InvalidParameterError("graph", degrees, f"of degree {self.degree}, as the law is for")
        weight = np.concatenate((np.zeros(self.support.lo), self.distance_pmf))
        return law_by_distance(graph, self.support, weight, per_shell=True)


@dataclass(frozen=True, eq=False)
class DestinationLaw:
    """P_ij: the probability that node i, having updated the model, seals it for node j.

    ``rows`` holds the law in one of two forms: a matrix of explicit rows, which sum to one and have no entry outside
    the support; or the nodes that each node may not choose, where all others are equally likely. The second form fits
    a graph of any size. The law belongs to one graph, named by its digest; results show its ``name``.
    """

    support: DistanceSupport
    graph_digest: str = field(repr=False)
    rows: sparse.csr_array | ExcludedRows = field(repr=False)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "support", DistanceSupport.parse(self.support))
        validate.instance(str, "the digest of a graph: graph.digest", graph_digest=self.graph_digest)
        if isinstance(self.rows, ExcludedRows):
            return
        rows = _as_table(self.rows)
        object.__setattr__(self, "rows", rows)
        sums = np.asarray(rows.sum(axis=1)).ravel()
        if rows.shape[0] != rows.shape[1] or np.any(rows.data < 0):
            value = f"a matrix of shape {rows.shape}, least entry {rows.data.min(initial=0.0):g}"
            raise InvalidParameterError("law", value, "a square matrix of probabilities")
        if not np.all(np.abs(sums - 1) < 1e-9):
            worst = int(np.argmax(np.abs(sums - 1)))
            raise InvalidParameterError(f"law, row {worst}", float(sums[worst]), "probabilities that sum to 1")

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """The law as a matrix of explicit rows."""
        return _even_rows(self.rows, self.name) if isinstance(self.rows, ExcludedRows) else self.rows

    @property
    def far(self) -> int | None:
        """R of the law ``far:R``, under which all nodes at distance R or more are equally likely; else None."""
        return self.support.lo if isinstance(self.rows, ExcludedRows) else None

    @property
    def n_choices(self) -> IntArray:
        """Number of nodes that each node may choose from."""
        return self.rows.n_choices if isinstance(self.rows, ExcludedRows) else np.asarray(np.diff(self.rows.indptr))

    @cached_property
    def is_even(self) -> bool:
        """Whether each node chooses evenly among the nodes it may choose."""
        if isinstance(self.rows, ExcludedRows):
            return True
        data, first = self.rows.data, self.rows.indptr[:-1]
        return bool(np.all(np.maximum.reduceat(data, first) - np.minimum.reduceat(data, first) <= 1e-12))

    def named(self, name: str) -> DestinationLaw:
        """Return the same law called ``name``."""
        return replace(self, name=name)

    def with_rows(self, table: FloatArray) -> DestinationLaw:
        """Return a law on the same graph and support with the rows of ``table``, normalised."""
        return replace(self, rows=sparse.csr_array(normalised(table)))

    def balance(self) -> DestinationLaw:
        """Return the nearest law under which every node updates equally often (rows and columns scaled), or refuse."""
        table = total_support(self.matrix)
        prior = np.full(table.shape[0], 1.0 / table.shape[0])
        for _ in range(FOLDS):
            by_row, by_column, error = sweep_margins(table, prior)
            table = scale_rows(table, by_row)
            table.data *= by_column[table.indices]
            if error <= MARGIN_TOLERANCE:
                sums = np.asarray(table.sum(axis=1)).ravel()
                return replace(self, rows=scale_rows(table, 1 / sums))
        raise unsettled_margins(error)

    def check_graph(self, graph: Graph) -> None:
        """Refuse any graph but the one this law was designed for."""
        if graph.digest != self.graph_digest:
            raise InvalidParameterError(
                "graph", graph.digest[:12], f"the one the law was designed for, {self.graph_digest[:12]}"
            )

    @cached_property
    def source_prior(self) -> FloatArray:
        """Stationary law of the update chain: the share of updates by each node in the long run, with one recipient.

        Solved directly from pi P = pi, in O(n^3); beyond 8,000 nodes by powers of the matrix, to 1e-12. A law that
        never leaves some set of nodes has none. Where each node chooses evenly among all but some, the chain is
        reversible, and the share of a node is proportional to its choices. Where each node may choose more than half
        of all nodes, updates reach all of them.
        """
        if isinstance(self.rows, ExcludedRows) and 2 * int(self.n_choices.min()) > self.rows.n_nodes:
            return frozen(normalised(self.n_choices.astype(np.float64)))
        n_classes, _ = csgraph.connected_components(self.matrix, directed=True, connection="strong")
        if n_classes > 1:
            raise InfeasibleDesignError(
                f"support {self.support}: updates cannot travel between all nodes ({n_classes} closed groups); "
                "widen the support"
            )
        if self.matrix.shape[0] <= _DIRECT_NODES:
            return frozen(stationary_law(self.matrix.toarray()))
        return frozen(self._stationary_by_powers())

    def _stationary_by_powers(self) -> FloatArray:
        onward = sparse.csr_array(self.matrix.T)
        law = np.full(onward.shape[0], 1 / onward.shape[0])
        for _ in range(_POWERS):
            # Half a step each time: a law that swings between two groups of nodes settles too.
            following = normalised((law + onward @ law) / 2)
            if np.abs(following - law).sum() < 1e-12:
                return following
            law = following
        raise NumericalError(f"the stationary law of the sources did not settle in {_POWERS} steps")

    def mean_hops(self, mean_hitting_times: FloatArray) -> float:
        """Mean hops between two updates, from E[T_ij]: sum of prior_i P_ij E[T_ij].  Paper: E[T_FH]."""
        per_source = np.asarray(self.matrix.multiply(mean_hitting_times).sum(axis=1)).ravel()
        return float(self.source_prior @ per_source)


def _as_table(matrix: Any) -> sparse.csr_array:
    """Return a matrix of any kind as a sparse table of rows."""
    if isinstance(matrix, sparse.csr_array):
        return matrix
    try:
        table: Any = sparse.csr_array(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError("law", matrix, "a square matrix of probabilities") from error
    # A list of numbers makes a table of one dimension.
    return sparse.csr_array(table.reshape(1, -1)) if table.ndim < 2 else table


def _even_rows(excluded: ExcludedRows, name: str) -> sparse.csr_array:
    """Return the matrix of a law that is stored as the nodes each node may not choose."""
    n_choices, n_nodes = excluded.n_choices, excluded.n_nodes
    entries = int(n_choices.sum())
    if 20 * entries > DEFAULT_MEMORY_BYTES:
        raise ResourceLimitError(f"the law {name} as a table would have {entries} entries: too many")
    allowed = np.ones((n_nodes, n_nodes), dtype=np.bool_)
    allowed[np.repeat(np.arange(n_nodes), np.diff(excluded.offsets)), excluded.nodes] = False
    table = sparse.csr_array(allowed.astype(np.float64))
    table.data /= np.repeat(n_choices, np.diff(table.indptr))
    return table


def far_law(graph: Graph, far: int) -> DestinationLaw:
    """Return the law ``far:R``: all nodes at distance ``far`` or more are equally likely; each node must have one."""
    rows = ExcludedRows.nearer_than(graph, far)
    support = DistanceSupport(far, max(_farthest_distance(graph), far), allow_neighbours=far == 1)
    return DestinationLaw(support, graph.digest, rows, f"far:{far}")


def law_by_distance(
    graph: Graph, support: DistanceSupport, weight: FloatArray, *, per_shell: bool = False
) -> DestinationLaw:
    """Return the law with P_ij proportional to ``weight[distance(i, j)]`` on the support, made some rows at a time.

    With ``per_shell`` the weight is that of a whole shell, shared evenly among the nodes in it.
    """
    blocks = []
    for start in range(0, graph.n_nodes, _ROWS):
        around = balls(graph, support.hi, np.arange(start, min(start + _ROWS, graph.n_nodes)))
        weights = weight[around.hops]
        if per_shell:
            sources = np.repeat(np.arange(len(around.centers)), np.diff(around.starts))
            shell = sources * (support.hi + 1) + around.hops
            weights = weights / np.bincount(shell)[shell]
        data = np.where(around.hops >= support.lo, weights, 0.0)
        block = sparse.csr_array((data, around.nodes, around.starts), shape=(len(around.centers), graph.n_nodes))
        block.eliminate_zeros()
        block.sort_indices()
        blocks.append(block)
    table = sparse.csr_array(sparse.vstack(blocks, format="csr"))
    total = np.asarray(table.sum(axis=1)).ravel()
    if not np.all(total > 0):
        raise InfeasibleDesignError(
            f"support {support}: node {int(np.argmin(total))} has no other node at these distances; "
            "choose a nearer support"
        )
    return DestinationLaw(support, graph.digest, scale_rows(table, 1 / total))


def scale_rows(table: sparse.csr_array, scale: FloatArray) -> sparse.csr_array:
    """Return the table with every row multiplied by its scale."""
    data = table.data * np.repeat(scale, np.diff(table.indptr))
    return sparse.csr_array((data, table.indices, table.indptr), shape=table.shape)


def parse_far(name: str) -> int | None:
    """Return R where ``name`` is ``far:R``, None where it is another law's."""
    match = _FAR_NAME.fullmatch(name)
    if match is None and name.split(":", maxsplit=1)[0] == "far":
        raise InvalidParameterError("law", name, "far:R, such as far:4: all nodes at distance R or more")
    return int(match[1]) if match else None


def _farthest_distance(graph: Graph) -> int:
    if graph.n_nodes > _SEARCHED_NODES:
        return 2 * int(distances(graph, np.array([0])).max())
    return max(int(hops.max()) for _, hops in iter_distances(graph))


def require_memory(what: str, needed: float, memory_bytes: int, cure: str) -> None:
    """Refuse work that needs more memory than it may use; the ``cure`` ends the sentence."""
    if needed > memory_bytes:
        gigabytes = f"needs about {needed / 2**30:.3g} GiB and may use {memory_bytes / 2**30:.3g} GiB"
        raise ResourceLimitError(f"{what} {gigabytes}{cure}")


#: A user's law: a matrix of probabilities, or a function of the graph that returns one.
UserRows = FloatArray | sparse.sparray | Sequence[Sequence[float]] | Callable[[Graph], Any]
#: Everything that names a law.
LawLike = str | Path | DistanceLaw | DestinationLaw | UserRows


def law_from_rows(graph: Graph, rows: DestinationLaw | UserRows) -> DestinationLaw:
    """Return a user's law: a matrix of probabilities, dense or sparse, or a function of the graph that returns one.

    Row i holds the probabilities with which node i chooses its destination. The support is read from the entries.
    """
    name = getattr(rows, "__name__", "matrix")
    rows = rows(graph) if callable(rows) else rows
    if isinstance(rows, DestinationLaw):
        rows.check_graph(graph)
        return rows
    table = sparse.csr_array(_as_table(rows), copy=True)
    need = f"{graph.n_nodes} rows of {graph.n_nodes} probabilities, one row per node of the graph"
    if table.shape != (graph.n_nodes, graph.n_nodes):
        raise InvalidParameterError("law", f"a matrix of shape {table.shape}", need)
    if not np.all(np.isfinite(table.data)):
        raise InvalidParameterError("law", "a matrix with entries that are not finite", need)
    table.sum_duplicates()
    table.eliminate_zeros()
    if (own := np.flatnonzero(table.diagonal())).size:
        raise InvalidParameterError(f"law, row {own[0]}", "a node that may choose itself", "a law over the other nodes")
    nearest, farthest = graph.n_nodes, 0
    for nodes, hops in iter_distances(graph):
        used = np.asarray(hops)[sparse.csr_array(table[nodes]).nonzero()]
        if used.size:
            nearest, farthest = min(nearest, int(used.min())), max(farthest, int(used.max()))
    support = DistanceSupport(min(nearest, max(farthest, 1)), max(farthest, 1), allow_neighbours=True)
    return DestinationLaw(support, graph.digest, table, name)


def total_support(table: sparse.csr_array) -> sparse.csr_array:
    """Return the entries that some doubly stochastic law can use; refuse a support on which there is none.

    A pair is usable if it belongs to a perfect matching of sources to destinations (Birkhoff). Given one matching,
    these are the pairs within one strong component of the graph that leads from a source to the partners of the
    destinations it may choose.
    """
    partner = csgraph.maximum_bipartite_matching(table, perm_type="row")
    alone = np.flatnonzero(partner < 0)
    if alone.size:
        raise InfeasibleDesignError(
            f"no balanced law on this support: node {alone[0]} ({alone.size} in all) can receive only from nodes that "
            "others need too; choose a wider support"
        )
    follows = sparse.csr_array((table.data, partner[table.indices], table.indptr), shape=table.shape)
    _, label = csgraph.connected_components(follows, directed=True, connection="strong")
    within = np.repeat(label, np.diff(table.indptr)) == label[partner[table.indices]]
    usable = sparse.csr_array((np.where(within, table.data, 0.0), table.indices, table.indptr), shape=table.shape)
    if not within.all():
        usable = usable.copy()
        usable.eliminate_zeros()
    return usable


def sweep_margins(table: FloatArray | sparse.csr_array, prior: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Scale rows and columns in turn until both margins are ``prior``; return both scales and the error of the rows."""
    by_column = np.ones(len(prior))
    sums = table @ by_column
    for _ in range(_SWEEPS):
        by_row = prior / sums
        by_column = prior / (by_row @ table)
        sums = table @ by_column
        error = float(np.abs(by_row * sums / prior - 1.0).max())
        if not MARGIN_TOLERANCE < error < math.inf:
            break
    return by_row, by_column, error


def unsettled_margins(error: float) -> NumericalError:
    """Return the error to raise where scaling does not converge."""
    return NumericalError(f"scaling to the margins has not converged: error {error:.1e} after {FOLDS * _SWEEPS} sweeps")
