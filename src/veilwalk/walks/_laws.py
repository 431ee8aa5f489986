"""Laws as the kernels draw from them: one destination, or a set of recipients drawn without replacement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import Graph, balls
from veilwalk.walks._moves import stream_key

#: A row-stochastic matrix, dense or sparse: row i is the law of the destination that node i draws.
DestinationRows = FloatArray | sparse.csr_array

_ROW_SUM_TOLERANCE = 1e-9
# Rosen's equations are solved to here; a dozen Newton steps do it.
_NEWTON_STEPS = 60


@dataclass(frozen=True, slots=True)
class AliasRows:
    """One alias table per node over the destinations of positive probability."""

    offsets: IntArray
    columns: IntArray
    keep: FloatArray
    other: IntArray

    def arguments(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        """Return the arrays in the order the kernels take them."""
        return self.offsets, self.columns, self.keep, self.other


def alias_rows(graph: Graph, law: DestinationRows) -> AliasRows:
    """Check that ``law`` is one for ``graph`` and return its alias tables."""
    from veilwalk.walks import _kernels_laws

    rows = checked_rows(graph, law)
    offsets = rows.indptr.astype(np.int64)
    keep = np.empty(rows.nnz, dtype=np.float64)
    other = np.empty(rows.nnz, dtype=np.int32)
    _kernels_laws.build_aliases(offsets, np.asarray(rows.data, dtype=np.float64), keep, other)
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


@dataclass(frozen=True, slots=True, eq=False)
class ExcludedRows:
    """Rows of a law under which each node chooses evenly among all but these.

    ``nodes[offsets[i]:offsets[i + 1]]`` are the nodes that node i may not choose, itself included, ascending. Who
    excludes whom is the same both ways.
    """

    offsets: IntArray
    nodes: IntArray

    @classmethod
    def nearer_than(cls, graph: Graph, far: int) -> ExcludedRows:
        """Exclude the nodes at a distance below ``far``; refuse a distance that leaves some node without recipients."""
        validate.integer(far=far)
        validate.at_least(1, far=far)
        near = balls(graph, far - 1)
        sizes = np.diff(near.starts)
        if int(sizes.max()) == graph.n_nodes:
            need = f"less: nobody is that far from node {int(np.argmax(sizes))}"
            raise InvalidParameterError("far", far, need)
        order = np.lexsort((near.nodes, np.repeat(near.centers, sizes)))
        return cls(frozen(near.starts.astype(np.int64)), frozen(near.nodes[order].astype(np.int32)))

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.offsets) - 1

    @property
    def n_choices(self) -> IntArray:
        """How many recipients each node may choose from."""
        return np.asarray(self.n_nodes - np.diff(self.offsets))


#: Whom a source may choose, as the protocol takes it.
LawRows = DestinationRows | ExcludedRows


@dataclass(frozen=True, slots=True, eq=False)
class SetRows:
    """Rows of a law as the kernels read them that draw and follow sets.

    Attributes:
        offsets: Where each node's entries start, with the end of the last.
        columns: Whom it may choose, ascending; of excluded rows, whom it may not.
        weights: With what probability; empty for excluded rows.
        keep: Alias tables to draw by; empty for excluded rows.
        other: The other halves of those.
        eligible: How many each node may choose from.
        even: Whether all of a node's choices are as likely.
        pace: Of rows that are not even, the time at which K of its recipients have come on average, if each comes at
            the rate of its weight: who has come by then is a set drawn without replacement, nearly (Rosen).
        slope: How fast they come at that time.
    """

    offsets: IntArray
    columns: IntArray
    weights: FloatArray
    keep: FloatArray
    other: IntArray
    eligible: IntArray
    even: npt.NDArray[np.bool_]
    pace: FloatArray
    slope: FloatArray

    def drawn_by(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray, IntArray]:
        """Return the arrays that drawing takes."""
        return self.offsets, self.columns, self.weights, self.keep, self.other

    def followed_by(self) -> tuple[IntArray, npt.NDArray[np.bool_], FloatArray, FloatArray]:
        """Return the arrays that summing the set out takes besides."""
        return self.eligible, self.even, self.pace, self.slope


def set_rows(graph: Graph, law: LawRows, recipients: int) -> SetRows:
    """Return ``law`` as kernels read it that seal for ``recipients``, or refuse more than some node may choose from."""
    validate.integer(recipients=recipients)
    validate.at_least(1, recipients=recipients)
    nothing = frozen(np.empty(0))
    zeros = frozen(np.zeros(graph.n_nodes))
    if isinstance(law, ExcludedRows):
        _require_enough(law.n_choices, recipients)
        even = frozen(np.ones(graph.n_nodes, dtype=np.bool_))
        other = frozen(np.empty(0, dtype=np.int32))
        return SetRows(law.offsets, law.nodes, nothing, nothing, other, law.n_choices, even, zeros, zeros)
    rows = checked_rows(graph, law)
    rows.sort_indices()
    eligible = np.diff(rows.indptr).astype(np.int64)
    _require_enough(eligible, recipients)
    aliases = alias_rows(graph, rows)
    data = np.asarray(rows.data, dtype=np.float64)
    first = rows.indptr[:-1]
    even = np.maximum.reduceat(data, first) - np.minimum.reduceat(data, first) <= 1e-12
    pace, slope = (zeros, zeros) if bool(even.all()) or recipients == 1 else _paces(data, rows.indptr, recipients)
    return SetRows(
        aliases.offsets, aliases.columns, frozen(data), aliases.keep, aliases.other, eligible, even, pace, slope
    )


def draw_recipients(
    graph: Graph,
    law: LawRows,
    recipients: int,
    *,
    seed: int,
    lane: npt.ArrayLike,
    source: npt.ArrayLike,
    clock: npt.ArrayLike,
) -> IntArray:
    """Return for whom ciphertexts were sealed in :func:`iter_protocol`, a row each, in the order drawn.

    A set is a function of the seed, its lane, its source and the clock at which it was sealed, and of nothing else:
    those of a record are its ``replica`` (with one token), ``source`` and ``clock - leg_hops``.
    """
    from veilwalk.walks import _kernels_laws as kernels

    rows = set_rows(graph, law, recipients)
    lanes, sources, clocks = (np.ascontiguousarray(np.atleast_1d(one), np.int64) for one in (lane, source, clock))
    out = np.empty((len(lanes), recipients), dtype=np.int64)
    kernels.draw_sets(np.uint64(graph.n_nodes), *rows.drawn_by(), stream_key(seed), lanes, sources, clocks, out)
    return out


def _require_enough(eligible: IntArray, recipients: int) -> None:
    if int(eligible.min()) < recipients:
        need = f"at most {int(eligible.min())}: node {int(np.argmin(eligible))} has no more to choose from"
        raise InvalidParameterError("recipients", recipients, need)


def _paces(data: FloatArray, indptr: IntArray, recipients: int) -> tuple[FloatArray, FloatArray]:
    """Solve sum over a row of (1 - exp(-w t)) = K for t, by Newton from below; return t and the slope there."""
    first, sizes = indptr[:-1], np.diff(indptr)
    # A row that is chosen whole has no such time; a time at which nearly all have come serves.
    wanted = np.minimum(float(recipients), sizes * (1.0 - 1e-9))
    time = wanted.copy()
    slope = np.ones_like(time)
    for _ in range(_NEWTON_STEPS):
        left = np.exp(-data * np.repeat(time, sizes))
        slope = np.add.reduceat(data * left, first)
        short = wanted - (sizes - np.add.reduceat(left, first))
        time += short / slope
        if float(np.abs(short).max()) < 1e-10:
            break
    return frozen(time), frozen(slope)


def law_digest(law: LawRows) -> str:
    """Return what tells one law from another by the bits of its table."""
    if isinstance(law, ExcludedRows):
        arrays: list[npt.NDArray[Any]] = [np.asarray(getattr(law, name)) for name in ("nodes", "offsets")]
    else:
        rows = sparse.csr_array(law)
        arrays = [rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
