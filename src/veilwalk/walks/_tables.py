"""Builds the tables that kernels read: the moves of a walk, and the recipients that a law lets each node draw.

A walk without memory is a table of equally likely moves: the simple walk lists each node's neighbours, the lazy walk
lists them and, as often, the node itself. One kernel serves every such walk, and a new kind is a new table.
Metropolis and non-backtracking walks are neighbour lists and a rule, which ``_kernels_protocol`` states.

A law is explicit rows, or all nodes but some; one table serves any number of recipients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, balls

# Words are rejected with probability below 2**24 / 2**32.
_MAX_SPAN = 1 << 24
_WORD = 1 << 32
_INT32_MAX = np.iinfo(np.int32).max
# Two hops are one lookup in tables that stay in the second cache.
_MOST_PAIRS, _NO_PAIRS = 50_000, frozen(np.empty(0, dtype=np.int32))
# Numbers by which the kernels know the kinds.
TABLE = 0
METROPOLIS = 1
NON_BACKTRACKING = 2
_CODES: dict[str, int] = {"metropolis": METROPOLIS, "non-backtracking": NON_BACKTRACKING}


# Where the moves of each node start, with the end of the last; and the moves.
Rows = tuple[IntArray, IntArray]
#: A row-stochastic matrix, dense or sparse: row i is the law of the destination that node i draws.
DestinationRows = FloatArray | sparse.csr_array

_ROW_SUM_TOLERANCE = 1e-9
# Rosen's equations are solved to here; a dozen Newton steps do it.
_NEWTON_STEPS = 60


class WalkTables(NamedTuple):
    """A walk as the kernels read it; arrays that its kind does not need are empty.

    An entry is a place in the table: a move or, in neighbour lists, an edge from one of its ends.

    Attributes:
        kind: ``TABLE``, or the number of a kind with a rule.
        offsets: Where each node's entries start, with the end of the last.
        table: The node to which each entry leads.
        words: Random words per hop of kinds with a rule: 2 where the walk tosses a coin besides choosing, else 1.
        width: Entries per node, or 0 where nodes differ.
        digits: Hops served by one 32-bit word: its leading digits in base ``width``.
        span: ``width ** digits``, the number of values drawn from one word.
        limit: ``2**32 % span``; a word is rejected when the low half of word * span is below it.
        pairs: The nodes to which each two moves lead; empty where that is no small table.
    """

    kind: int
    offsets: IntArray
    table: IntArray
    words: int
    width: Any
    digits: int
    span: Any
    limit: Any
    pairs: IntArray

    @property
    def block_hops(self) -> int:
        """Hops that one block of four words serves."""
        return 4 * self.digits if self.kind == TABLE else 4 // self.words


def _list_neighbours(graph: Graph) -> Rows:
    return graph.indptr.astype(np.int64), graph.indices.astype(np.int32, copy=False)


def _list_neighbours_and_self(graph: Graph) -> Rows:
    """Row i of length d becomes its d neighbours and d times i itself."""
    offsets, table = _list_neighbours(graph)
    nodes = np.arange(graph.n_nodes, dtype=np.int32)
    places = np.arange(len(table)) + offsets[np.repeat(nodes, graph.degrees)]
    doubled = np.repeat(nodes, 2 * graph.degrees)
    doubled[places] = table
    return 2 * offsets, doubled


#: The kinds that are a table of equally likely moves, and the function that lists the moves of each.
TABLES: dict[str, Callable[[Graph], Rows]] = {"simple": _list_neighbours, "lazy": _list_neighbours_and_self}


def build_walk_tables(graph: Graph, walk: Walk) -> WalkTables:
    """Return the tables of ``walk`` on ``graph``."""
    if walk.kind not in TABLES and walk.kind not in _CODES:
        raise InvalidParameterError("walk", str(walk), "one of " + ", ".join((*TABLES, *_CODES)))
    if graph.n_nodes > _INT32_MAX:
        raise ResourceLimitError(f"the graph has {graph.n_nodes} nodes: walks number at most {_INT32_MAX}")
    if walk.kind in _CODES:
        return _build_rule_tables(graph, walk)
    offsets, table = TABLES[walk.kind](graph)
    width = int(offsets[1])
    if np.any(np.diff(offsets) != width):
        numbers = (np.uint64(0), 1, np.uint64(1), np.uint64(0))
        return WalkTables(TABLE, frozen(offsets), frozen(table), 1, *numbers, _NO_PAIRS)
    digits = digits_per_word(width)
    span = width**digits
    numbers = (np.uint64(width), digits, np.uint64(span), np.uint64(_WORD % span))
    pairs = _NO_PAIRS
    if digits > 1 and len(table) * width <= _MOST_PAIRS:
        moves = table.reshape(-1, width)
        first, second = np.broadcast_arrays(moves[:, :, np.newaxis], moves[moves])
        pairs = frozen(np.stack((first, second), axis=-1).reshape(-1))
    return WalkTables(TABLE, frozen(np.empty(0, dtype=np.int64)), frozen(table), 1, *numbers, pairs)


def _build_rule_tables(graph: Graph, walk: Walk) -> WalkTables:
    coin = walk.kind == "metropolis" and not graph.is_regular
    offsets, table = _list_neighbours(graph)
    width = np.uint64(int(offsets[1]) if graph.is_regular else 0)
    words = 2 if coin else 1
    numbers = (width, 1, np.uint64(1), np.uint64(0))
    return WalkTables(_CODES[walk.kind], frozen(offsets), frozen(table), words, *numbers, _NO_PAIRS)


def digits_per_word(width: int) -> int:
    """Return the hops that one word serves: an even number, or 1. Every stream depends on it."""
    power_of_two = width & (width - 1) == 0
    most = _WORD if power_of_two else _MAX_SPAN
    digits = 1
    while digits < 32 and width ** (digits + 1) <= most:
        digits += 1
    return digits if digits == 1 else digits - digits % 2


def estimate_table_bytes(graph: Graph, walk: Walk) -> int:
    """Return the bytes of the tables of a walk, and of building them."""
    if walk.kind in TABLES:
        tables = build_walk_tables(graph, walk)
        return tables.table.nbytes + tables.offsets.nbytes
    return 8 * (graph.n_nodes + 1) + 4 * len(graph.indices)


def stream_key(seed: int) -> Any:
    """Return ``seed`` as the kernels take it."""
    validate.integer(seed=seed)
    if not 0 <= seed < 1 << 64:
        raise InvalidParameterError("seed", seed, "between 0 and 2**64 - 1")
    return np.uint64(seed)


def check_rows(graph: Graph, law: DestinationRows) -> sparse.csr_array:
    """Return ``law`` as sparse rows without zeros, or refuse it with the reason."""
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

    ``nodes[offsets[i]:offsets[i + 1]]`` are the nodes that node i may not choose, itself included, ascending. If
    i excludes j, j excludes i.
    """

    offsets: IntArray
    nodes: IntArray

    @classmethod
    def nearer_than(cls, graph: Graph, far: int) -> ExcludedRows:
        """Exclude the nodes at a distance below ``far``; refuse a distance that leaves some node without recipients."""
        validate.integer(1, far=far)
        near = balls(graph, far - 1)
        sizes = np.diff(near.starts)
        if int(sizes.max()) == graph.n_nodes:
            need = f"less: no node is that far from node {int(np.argmax(sizes))}"
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


#: The recipients that a source may choose, as the protocol takes them.
LawRows = DestinationRows | ExcludedRows


class LawTables(NamedTuple):
    """Rows of a law as the kernels read them, to draw any number of recipients from and to sum the set out.

    Attributes:
        offsets: Where each node's entries start, with the end of the last.
        columns: The nodes that it may choose, ascending; of excluded rows, those that it may not choose.
        weights: Their probabilities; empty for excluded rows.
        keep: Alias tables to draw by; empty for excluded rows.
        other: The other halves of those.
        eligible: How many each node may choose from.
        even: Whether all choices of a node are equally likely.
        pace: Of rows that are not even, the time at which K recipients have come on average, if each comes at the rate
            of its weight: those that have come by then are nearly a set drawn without replacement (Rosen).
        slope: The rate at which they come at that time.
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


def build_law_tables(graph: Graph, law: LawRows, recipients: int) -> LawTables:
    """Return ``law`` as kernels read it for ``recipients``, or refuse more than some node may choose from."""
    validate.integer(1, recipients=recipients)
    zeros = frozen(np.zeros(graph.n_nodes))
    if isinstance(law, ExcludedRows):
        _require_enough(law.n_choices, recipients)
        empty, even = frozen(np.empty(0)), frozen(np.ones(graph.n_nodes, dtype=np.bool_))
        other, eligible = frozen(np.empty(0, dtype=np.int32)), frozen(law.n_choices.astype(np.int64))
        return LawTables(law.offsets, law.nodes, empty, empty, other, eligible, even, zeros, zeros)
    from veilwalk.walks import _kernels_laws as kernels

    rows = check_rows(graph, law)
    rows.sort_indices()
    offsets, data = rows.indptr.astype(np.int64), np.asarray(rows.data, dtype=np.float64)
    eligible = np.diff(offsets)
    _require_enough(eligible, recipients)
    keep, other = np.empty(rows.nnz, dtype=np.float64), np.empty(rows.nnz, dtype=np.int32)
    kernels.build_aliases(offsets, data, keep, other)
    first = offsets[:-1]
    even = np.maximum.reduceat(data, first) - np.minimum.reduceat(data, first) <= 1e-12
    pace, slope = (zeros, zeros) if bool(even.all()) or recipients == 1 else _solve_paces(data, offsets, recipients)
    arrays: Any = (offsets, rows.indices.astype(np.int32), data, keep, other, eligible, even, pace, slope)
    return LawTables(*(frozen(array) for array in arrays))


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
    """Return the recipients of ciphertexts of :func:`iter_protocol`, a row each, in the order drawn.

    A set depends only on the seed, its lane, its source and the clock at which it was sealed: for a record these are
    its ``replica`` (with one token), ``source`` and ``clock - leg_hops``.
    """
    from veilwalk.walks import _kernels_laws as kernels

    tables = build_law_tables(graph, law, recipients)
    lanes, sources, clocks = (np.ascontiguousarray(np.atleast_1d(value), np.int64) for value in (lane, source, clock))
    out = np.empty((len(lanes), recipients), dtype=np.int64)
    kernels.draw_sets(tables, stream_key(seed), lanes, sources, clocks, out)
    return out


def _require_enough(eligible: IntArray, recipients: int) -> None:
    if int(eligible.min()) < recipients:
        need = f"at most {int(eligible.min())}: node {int(np.argmin(eligible))} has no more to choose from"
        raise InvalidParameterError("recipients", recipients, need)


def _solve_paces(data: FloatArray, indptr: IntArray, recipients: int) -> tuple[FloatArray, FloatArray]:
    """Solve sum over a row of (1 - exp(-w t)) = K for t, by Newton from below; return t and the slope there."""
    first, sizes = indptr[:-1], np.diff(indptr)
    # A row that is chosen whole has no such time; a time at which nearly all have come serves.
    target = np.minimum(float(recipients), sizes * (1.0 - 1e-9))
    time = target.copy()
    slope = np.ones_like(time)
    for _ in range(_NEWTON_STEPS):
        left = np.exp(-data * np.repeat(time, sizes))
        slope = np.add.reduceat(data * left, first)
        short = target - (sizes - np.add.reduceat(left, first))
        time += short / slope
        if float(np.abs(short).max()) < 1e-10:
            break
    return frozen(time), frozen(slope)


def law_digest(law: LawRows) -> str:
    """Return a digest of the bits of a law's table."""
    if isinstance(law, ExcludedRows):
        arrays: list[npt.NDArray[Any]] = [np.asarray(getattr(law, name)) for name in ("nodes", "offsets")]
    else:
        rows = sparse.csr_array(law)
        arrays = [rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
