"""Destination laws as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from veilwalk.chains import stationary_law
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen, normalised
from veilwalk.core.errors import InfeasibleDesignError, InvalidParameterError, NumericalError, ResourceLimitError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.graphs import Graph, balls, distances, iter_distances
from veilwalk.walks import FarRows, LawRows

# Rows of a law made at a time.
_ROWS = 50_000
# Up to here the stationary law of the sources is solved for directly; beyond, by powers.
_DIRECT_NODES = 8_000
_POWERS = 10_000
_FAR_NAME = re.compile(r"far:(\d+)")
# Up to here the farthest two nodes are looked for; beyond, twice the reach of one node bounds them.
_SEARCHED_NODES = 10_000


@dataclass(frozen=True, eq=False)
class DistanceLaw:
    """p(l): a destination at distance l is drawn with probability p(l), evenly among the nodes there.

    ``n_nodes`` and ``degree`` are those of the networks that a closed form had in mind; None where it is for any.
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

    def on(self, graph: Graph) -> DestinationLaw:
        """Return the law per node on ``graph``: p(l) over the shell counted there.

        A node with an empty shell at some distance spreads that distance's probability over the others in
        proportion; a node with no other node in the support at all makes the law infeasible.
        """
        if self.n_nodes not in {None, graph.n_nodes}:
            raise InvalidParameterError("graph", f"{graph.n_nodes} nodes", f"of {self.n_nodes}, as the law is for")
        if self.degree is not None and np.any(graph.degrees != self.degree):
            found = f"degrees {graph.degrees.min()} to {graph.degrees.max()}"
            raise InvalidParameterError("graph", found, f"of degree {self.degree}, as the law is for")
        weight = np.concatenate((np.zeros(self.support.lo), self.distance_pmf))
        return law_by_distance(graph, self.support, weight, per_shell=True)


@dataclass(frozen=True, eq=False)
class DestinationLaw:
    """P_ij: the probability that node i, having updated the model, seals it for node j.

    Rows sum to one; entries outside the support are exactly zero and not stored. The law belongs to one graph,
    named by its digest; ``name`` is what it is called where results are shown.
    """

    support: DistanceSupport
    graph_digest: str = field(repr=False)
    matrix: sparse.csr_array = field(repr=False)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "support", DistanceSupport.of(self.support))
        object.__setattr__(self, "matrix", _as_table(self.matrix))
        validate.instance(str, "the digest of a graph: graph.digest", graph_digest=self.graph_digest)
        rows = np.asarray(self.matrix.sum(axis=1)).ravel()
        if self.matrix.shape[0] != self.matrix.shape[1] or np.any(self.matrix.data < 0):
            raise InvalidParameterError("law", self.matrix.shape, "a square matrix of probabilities")
        if not np.all(np.abs(rows - 1) < 1e-9):
            worst = int(np.argmax(np.abs(rows - 1)))
            raise InvalidParameterError(f"law, row {worst}", float(rows[worst]), "probabilities that sum to 1")

    @property
    def draws(self) -> LawRows:
        """The law as the protocol takes it."""
        return self.matrix

    @property
    def choices(self) -> IntArray:
        """How many each node may choose from."""
        return np.asarray(np.diff(self.matrix.indptr))

    @cached_property
    def is_even(self) -> bool:
        """Whether each node chooses evenly among those it may choose."""
        data, first = self.matrix.data, self.matrix.indptr[:-1]
        return bool(np.all(np.maximum.reduceat(data, first) - np.minimum.reduceat(data, first) <= 1e-12))

    def named(self, name: str) -> DestinationLaw:
        """Return the same law called ``name``."""
        return replace(self, name=name)

    def check_graph(self, graph: Graph) -> None:
        """Refuse any graph but the one this law was designed for."""
        if graph.digest != self.graph_digest:
            raise InvalidParameterError(
                "graph", graph.digest[:12], f"the one the law was designed for, {self.graph_digest[:12]}"
            )

    @cached_property
    def source_prior(self) -> FloatArray:
        """Stationary law of the update chain: how often each node is the source, in the long run.

        Solved directly from pi P = pi, in O(n^3); beyond 8,000 nodes by powers of the matrix, to 1e-12. A law that
        never leaves some set of nodes has none.
        """
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
    """Return a matrix of any kind as the sparse table that laws are kept in."""
    if isinstance(matrix, sparse.csr_array):
        return matrix
    try:
        table: Any = sparse.csr_array(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError("law", matrix, "a square matrix of probabilities") from error
    # A list of numbers makes a table of one dimension.
    return sparse.csr_array(table.reshape(1, -1)) if table.ndim < 2 else table


class FarLaw(DestinationLaw):
    """Everybody at distance ``far`` or more is as likely; kept as who is nearer, so that any size of graph will do.

    Nobody's farther distances need be known.
    """

    _rows: FarRows

    def __init__(self, graph: Graph, far: int, *, name: str = "") -> None:
        """Make the law for ``graph``; refused where somebody has nobody that far."""
        if far < 2:
            raise InvalidParameterError("far", far, "2 or more: a neighbour that opens knows the source")
        rows = FarRows.on(graph, far)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "support", DistanceSupport(far, max(_farthest(graph), far)))
        object.__setattr__(self, "graph_digest", graph.digest)
        object.__setattr__(self, "name", name or f"far:{far}")

    def named(self, name: str) -> FarLaw:
        """Return the same law called ``name``."""
        other = object.__new__(FarLaw)
        other.__dict__.update(self.__dict__, name=name)
        return other

    @property
    def draws(self) -> FarRows:
        """The law as the protocol takes it: who is too near."""
        return self._rows

    @property
    def choices(self) -> IntArray:
        """How many each node may choose from."""
        return self._rows.eligible

    @property
    def is_even(self) -> bool:
        """Whether each node chooses evenly among those it may choose: it does."""
        return True

    @cached_property
    def source_prior(self) -> FloatArray:
        """How often each node is the source of what is sealed for one: who may draw whom is the same both ways.

        So the update chain is reversible, and each is the source as often as it has choices. Where each may choose more
        than half of all, updates travel between all nodes; else that is looked into.
        """
        eligible = self._rows.eligible
        if 2 * int(eligible.min()) <= self._rows.n_nodes:
            return super().source_prior
        return frozen(normalised(eligible.astype(np.float64)))

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """The law as a table of all pairs."""
        rows, n_nodes = self._rows, self._rows.n_nodes
        entries = int(rows.eligible.sum())
        if 20 * entries > DEFAULT_MEMORY_BYTES:
            raise ResourceLimitError(f"the law {self.name} as a table would have {entries} entries: too many")
        allowed = np.ones((n_nodes, n_nodes), dtype=np.bool_)
        allowed[np.repeat(np.arange(n_nodes), np.diff(rows.starts)), rows.near] = False
        table = sparse.csr_array(allowed.astype(np.float64))
        table.data /= np.repeat(rows.eligible, np.diff(table.indptr))
        return table


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
    return DestinationLaw(support, graph.digest, scaled_rows(table, 1 / total))


def scaled_rows(table: sparse.csr_array, scale: FloatArray) -> sparse.csr_array:
    """Return the table with every row multiplied by its scale."""
    data = table.data * np.repeat(scale, np.diff(table.indptr))
    return sparse.csr_array((data, table.indices, table.indptr), shape=table.shape)


def far_of(name: str) -> int | None:
    """Return R where ``name`` is ``far:R``, None where it is another law's."""
    found = _FAR_NAME.fullmatch(name)
    if found is None and name.split(":", maxsplit=1)[0] == "far":
        raise InvalidParameterError("law", name, "far:R, such as far:4: everybody at distance R or more")
    return int(found[1]) if found else None


def _farthest(graph: Graph) -> int:
    if graph.n_nodes > _SEARCHED_NODES:
        return 2 * int(distances(graph, np.array([0])).max())
    return max(int(apart.max()) for _, apart in iter_distances(graph))
