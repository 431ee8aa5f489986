"""Destination laws as the kernels draw from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import Graph

#: A row-stochastic matrix, dense or sparse: row i is the law of the destination that node i draws.
DestinationRows = FloatArray | sparse.csr_array

_ROW_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class AliasRows:
    """One alias table per node over the destinations of positive probability."""

    offsets: IntArray
    columns: IntArray
    keep: FloatArray
    other: IntArray

    @property
    def n_bytes(self) -> int:
        """Memory the tables take."""
        return self.offsets.nbytes + self.columns.nbytes + self.keep.nbytes + self.other.nbytes

    def arguments(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        """Return the arrays in the order the kernels take them."""
        return self.offsets, self.columns, self.keep, self.other


def alias_rows(graph: Graph, law: DestinationRows) -> AliasRows:
    """Check that ``law`` is one for ``graph`` and return its alias tables."""
    from veilwalk.walks import _kernels_protocol

    rows = checked_rows(graph, law)
    offsets = rows.indptr.astype(np.int64)
    keep = np.empty(rows.nnz, dtype=np.float64)
    other = np.empty(rows.nnz, dtype=np.int32)
    _kernels_protocol.build_aliases(offsets, np.asarray(rows.data, dtype=np.float64), keep, other)
    return AliasRows(
        offsets=frozen(offsets),
        columns=frozen(rows.indices.astype(np.int32)),
        keep=frozen(keep),
        other=frozen(other),
    )


def checked_rows(graph: Graph, law: DestinationRows) -> sparse.csr_array:
    """Return ``law`` as sparse rows without zeros, or say what is wrong with it."""
    shape, n_nodes = np.shape(law), graph.n_nodes
    if shape != (n_nodes, n_nodes):
        raise InvalidParameterError(
            "law", f"matrix of shape {shape}", f"of shape ({n_nodes}, {n_nodes}), one row per node of the graph"
        )
    rows = sparse.csr_array(law, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    if not bool(np.all(np.isfinite(rows.data))) or (rows.nnz and float(rows.data.min()) < 0.0):
        raise InvalidParameterError("law", "matrix with negative or non-finite entries", "made of probabilities")
    sums = np.asarray(rows.sum(axis=1)).reshape(-1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > _ROW_SUM_TOLERANCE:
        raise InvalidParameterError(f"law row {worst}", f"sum {sums[worst]:.12g}", "a sum of 1")
    selfish = np.flatnonzero(rows.diagonal())
    if selfish.size:
        raise InvalidParameterError(
            f"law row {selfish[0]}", "a node that may choose itself", "a law over the other nodes"
        )
    return rows
