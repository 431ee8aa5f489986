"""The protocol played out: tokens carry sealed updates from source to destination, again and again.

A token walks. At its destination an update happens; the destination becomes the source, draws the next
destination from the law, seals, and the walk goes on from there. Tokens never meet: each replica's each token
is a lane of its own, with its own stream, its own clock in hops and its own table of last visits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.walks._jobs import stream_key
from veilwalk.walks._law import AliasRows, alias_rows, checked_rows
from veilwalk.walks._memory import MemoryMoves, check_tokens, estimate_bytes, memory_moves_of
from veilwalk.walks._moves import TABLES, Moves, moves_of
from veilwalk.walks._sets import FarRows, LawRows, set_rows
from veilwalk.walks._several import SeveralLanes

#: One update, as written on arrival at its destination; nodes are int32, clocks and hops int64, and -1 means
#: that there is none. Clocks count the hops of the token since its run began.
#:
#: ``replica``, ``token``: the lane.
#: ``source``, ``destination``: who sealed the update, and for whom. (Truth.)
#: ``last_hop``: the neighbour from which the token arrived.
#: ``clock``: when it arrived.
#: ``leg_hops``: hops from source to destination, T. (Truth.)
#: ``return_time``: hops since the token was last at the destination, whatever it carried; always above T.
#: ``first_sight_node``, ``first_sight_from``, ``first_sight_clock``: the first colluder to hold this ciphertext on
#: its way, the destination included and the moment of sealing not, from whom, and when. ``first_sight_hops``:
#: hops since it was sealed. (Truth.)
#: ``previous_sight_node``, ``previous_sight_to``, ``previous_sight_clock``: the last colluder to hold the
#: ciphertext before this one (its destination, this update's source, included: then it went to nobody), to whom
#: it sent it on, and when it held it.
UPDATE_DTYPE = np.dtype(
    [
        ("clock", np.int64),
        ("leg_hops", np.int64),
        ("return_time", np.int64),
        ("first_sight_clock", np.int64),
        ("first_sight_hops", np.int64),
        ("previous_sight_clock", np.int64),
        ("replica", np.int32),
        ("token", np.int32),
        ("source", np.int32),
        ("destination", np.int32),
        ("last_hop", np.int32),
        ("first_sight_node", np.int32),
        ("first_sight_from", np.int32),
        ("previous_sight_node", np.int32),
        ("previous_sight_to", np.int32),
    ]
)

#: An array of ``UPDATE_DTYPE``.
Updates = npt.NDArray[np.void]

_MAX_CHUNK_UPDATES = 65_536
# A kernel call cannot be interrupted: about a second's worth of hops.
_CHUNK_HOPS = 500_000_000
# A leg takes about twice as many hops as there are nodes, less on most graphs.
_HOPS_PER_NODE = 2
_COVER_UPDATES = 8
_SETTLE_UPDATES = 16


def iter_protocol(
    graph: Graph,
    law: LawRows,
    *,
    updates: int,
    seed: int,
    tokens: int = 1,
    replicas: int = 64,
    walk: Walk = SIMPLE,
    recipients: int = 1,
    colluders: npt.ArrayLike | None = None,
    burn_in: int | None = None,
    chunk_updates: int | None = None,
    progress: Progress = silent,
) -> Iterator[Updates]:
    """Play the protocol and yield its updates chunk by chunk, in memory that does not grow with ``updates``.

    A chunk holds the next updates of every lane, ordered by replica, token and time. What a lane does depends
    on its number and the seed only, never on threads or chunks.

    Args:
        graph: The network.
        law: Row-stochastic matrix, dense or sparse: row i is the law of the destination node i draws. Or far rows.
        updates: Updates to yield in all, shared evenly by the lanes.
        seed: Seed of the run, below 2**64.
        tokens: Tokens of each replica.
        replicas: Independent repetitions of the network, played side by side.
        walk: The walk; hops in which a lazy or metropolis walk stays count. Without a mix each lane of a least-recent
            walk soon goes the same round for ever, and only lanes are independent.
        recipients: For how many a source seals, drawn without replacement; the first of them to be met opens.
        colluders: Mask of the nodes that share their sightings of ciphertexts.
        burn_in: Updates of each lane to play unseen first. By default: until the token has been everywhere,
            so that every return time is known, and 16 more.
        chunk_updates: Updates per chunk; by default what takes about a second, at most 65536.
        progress: Told after each chunk.

    Returns:
        An iterator over arrays of ``UPDATE_DTYPE``. Stop when you like: what was yielded stays valid.
    """
    validate.integer(updates=updates, tokens=tokens, replicas=replicas)
    validate.at_least(1, updates=updates, tokens=tokens, replicas=replicas)
    for name, value in (("burn_in", burn_in), ("chunk_updates", chunk_updates)):
        if value is not None:
            validate.integer(**{name: value})
            validate.at_least(0 if name == "burn_in" else 1, **{name: value})
    key = stream_key(seed)
    watching = _colluder_mask(graph, colluders)
    check_tokens(walk, tokens)
    lanes: _Lanes | SeveralLanes
    if recipients != 1 or isinstance(law, FarRows):
        rows = set_rows(graph, law, recipients)
        lanes = SeveralLanes(graph, walk, rows, watching, recipients=recipients, tokens=tokens, key=key)
    elif walk.kind in TABLES:
        lanes = _TableLanes(moves_of(graph, walk), alias_rows(graph, law), watching, tokens=tokens, key=key)
    else:
        lanes = _MemoryLanes(memory_moves_of(graph, walk), alias_rows(graph, law), watching, tokens=tokens, key=key)
    chunk = chunk_updates if chunk_updates is not None else default_chunk_updates(graph)
    n_lanes = min(tokens * replicas, updates)
    return _chunks(lanes, n_lanes, updates=updates, burn_in=burn_in, chunk=chunk, progress=progress)


def run_protocol(graph: Graph, law: LawRows, *, updates: int, seed: int, **options: Any) -> Updates:
    """Play the protocol and return all its updates, ordered by replica, token and time.

    Takes the arguments of :func:`iter_protocol`, and memory for every update.
    """
    chunks = list(iter_protocol(graph, law, updates=updates, seed=seed, **options))
    together = np.concatenate(chunks)
    lanes = together["replica"].astype(np.int64) * (int(together["token"].max()) + 1) + together["token"]
    return together[np.argsort(lanes, kind="stable")]


def default_chunk_updates(graph: Graph) -> int:
    """Return how many updates a chunk holds unless told."""
    return max(1, min(_MAX_CHUNK_UPDATES, _CHUNK_HOPS // (_HOPS_PER_NODE * graph.n_nodes)))


def estimate_memory(
    graph: Graph,
    law: LawRows,
    *,
    updates: int,
    tokens: int = 1,
    replicas: int = 64,
    walk: Walk = SIMPLE,
    recipients: int = 1,
    chunk_updates: int | None = None,
    collect: bool = False,
) -> int:
    """Return the bytes that :func:`iter_protocol` will take beyond graph and law.

    With ``collect``, those of :func:`run_protocol`, which keeps every update.
    """
    validate.integer(updates=updates, tokens=tokens, replicas=replicas)
    validate.at_least(1, updates=updates, tokens=tokens, replicas=replicas)
    check_tokens(walk, tokens)
    lanes = min(tokens * replicas, updates)
    chunk = chunk_updates if chunk_updates is not None else default_chunk_updates(graph)
    entries = law.near.size if isinstance(law, FarRows) else checked_rows(graph, law).nnz
    aliases = entries * (4 + 8 + 4) + 8 * (graph.n_nodes + 1)
    # Last visits, and of those who seal for several, who the recipients are.
    shelves = 8 if recipients == 1 and not isinstance(law, FarRows) else 16
    # The kernel's chunk and the one the caller still holds.
    chunks = 2 * min(updates, max(chunk, lanes)) * UPDATE_DTYPE.itemsize
    collected = 2 * updates * UPDATE_DTYPE.itemsize if collect else 0
    tables = moves_of(graph, walk).n_bytes if walk.kind in TABLES else estimate_bytes(graph, walk, lanes)
    return tables + aliases + lanes * graph.n_nodes * shelves + chunks + collected


class _Lanes(ABC):
    """The tokens of every replica, between two calls of the kernel."""

    def __init__(self, n_nodes: int, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        self._n_nodes = n_nodes
        self._law = law
        self._watching = watching
        self._tokens = tokens
        self._key = key
        self._state = np.empty((0, 0), dtype=np.int64)
        self._visits = np.empty(0, dtype=np.int64)

    def start(self, n_lanes: int) -> None:
        """Put ``n_lanes`` tokens on their first nodes."""
        from veilwalk.walks import _kernels_protocol as kernels

        self._state = np.empty((n_lanes, kernels.N_COLUMNS), dtype=np.int64)
        self._visits = np.full(n_lanes * self._n_nodes, -1, dtype=np.int64)
        n_nodes = np.uint64(self._n_nodes)
        kernels.start_lanes(n_nodes, *self._law.arguments(), self._key, self._state, self._visits)

    @abstractmethod
    def play(self, quotas: IntArray, out: Updates) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""

    @property
    def visits(self) -> IntArray:
        """When each lane's token was last at each node, -1 for never; a row a lane."""
        return self._visits.reshape(len(self._state), self._n_nodes)


class _TableLanes(_Lanes):
    """Tokens whose walk is a table of moves."""

    def __init__(self, moves: Moves, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        super().__init__(moves.n_nodes, law, watching, tokens=tokens, key=key)
        self._moves = moves

    def play(self, quotas: IntArray, out: Updates) -> None:
        """Let each lane make its quota of updates."""
        from veilwalk.walks import _kernels_protocol as kernels

        if len(quotas) == 1 and self._moves.width and not len(self._watching):
            kernels.run_lane(
                self._moves.table,
                *self._moves.word_arguments(),
                *self._law.arguments(),
                self._key,
                self._state,
                self._visits,
                int(quotas[0]),
                out,
            )
            return
        kernels.run_lanes(
            self._moves.table,
            self._moves.offsets,
            *self._moves.word_arguments(),
            np.uint64(self._n_nodes),
            *self._law.arguments(),
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._visits,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )


class _MemoryLanes(_Lanes):
    """Tokens whose walk needs to know where they came from, or what the nodes remember."""

    def __init__(self, moves: MemoryMoves, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        super().__init__(moves.n_nodes, law, watching, tokens=tokens, key=key)
        self._moves = moves
        self._backs = np.empty(0, dtype=np.int64)
        self._used = np.empty(0, dtype=np.int64)

    def start(self, n_lanes: int) -> None:
        """Put ``n_lanes`` tokens on their first nodes, which remember nothing."""
        super().start(n_lanes)
        self._backs = np.full(n_lanes, -1, dtype=np.int64)
        self._used = np.full(n_lanes * self._moves.lane_entries, -1, dtype=np.int64)

    def play(self, quotas: IntArray, out: Updates) -> None:
        """Let each lane make its quota of updates."""
        from veilwalk.walks import _kernels_memory as kernels

        kernels.run_memory_lanes(
            *self._moves.arguments(),
            np.uint64(self._n_nodes),
            *self._law.arguments(),
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._backs,
            self._visits,
            self._used,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )


def _burn_in(lanes: _Lanes | SeveralLanes, updates: int | None) -> None:
    """Play ``updates`` unseen; None means until every node was visited, and some more."""
    nothing = np.empty(0, dtype=UPDATE_DTYPE)
    if updates is None:
        while (unvisited := (lanes.visits < 0).any(axis=1)).any():
            lanes.play(np.where(unvisited, _COVER_UPDATES, 0), nothing)
    lanes.play(np.full(len(lanes.visits), _SETTLE_UPDATES if updates is None else updates), nothing)


def _chunks(
    lanes: _Lanes | SeveralLanes, n_lanes: int, *, updates: int, burn_in: int | None, chunk: int, progress: Progress
) -> Iterator[Updates]:
    lanes.start(n_lanes)
    _burn_in(lanes, burn_in)
    left = np.full(n_lanes, updates // n_lanes)
    left[: updates % n_lanes] += 1
    done = 0
    while done < updates:
        quotas = np.minimum(left, max(1, chunk // n_lanes))
        out = np.empty(int(quotas.sum()), dtype=UPDATE_DTYPE)
        lanes.play(quotas, out)
        left -= quotas
        done += len(out)
        yield out
        progress("walking", done, updates, "updates")


def _colluder_mask(graph: Graph, colluders: npt.ArrayLike | None) -> BoolArray:
    if colluders is None:
        return frozen(np.empty(0, dtype=np.bool_))
    mask = np.array(colluders)
    if mask.shape != (graph.n_nodes,) or mask.dtype != np.bool_:
        raise InvalidParameterError(
            "colluders",
            f"array of shape {mask.shape} and type {mask.dtype}",
            f"a mask of {graph.n_nodes} booleans",
        )
    return frozen(mask)
