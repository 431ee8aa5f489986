"""The protocol played out: tokens carry sealed updates from source to destination, again and again.

A token walks. At its destination an update happens; the destination becomes the source, draws the next
destination from the law, seals, and the walk goes on from there. Tokens never meet: each replica's each token
is a lane of its own, with its own stream, its own clock in hops and its own table of last visits. Lanes can be played
as jobs, a few at a time: draws are counted by the number of the lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.engine import JobStore, run_jobs
from veilwalk.graphs import Graph
from veilwalk.walks._device import check_device, open_cuda
from veilwalk.walks._lanes import DeviceLanes, Lanes, MemoryLanes, SeveralLanes, TableLanes
from veilwalk.walks._laws import (
    AliasRows,
    ExcludedRows,
    LawRows,
    SetRows,
    alias_rows,
    checked_rows,
    law_digest,
    set_rows,
)
from veilwalk.walks._moves import TABLES, estimate_bytes, memory_moves_of, moves_of, stream_key

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

_AnyLanes = Lanes | SeveralLanes | DeviceLanes

#: An array of ``UPDATE_DTYPE``.
Updates = npt.NDArray[np.void]

_MAX_CHUNK_UPDATES = 65_536
# A kernel call cannot be interrupted: about a second's worth of hops.
_CHUNK_HOPS = 500_000_000
# A leg takes about twice as many hops as there are nodes, less on most graphs.
_HOPS_PER_NODE = 2
_COVER_UPDATES = 8
_DEVICE_LANE_UPDATES = 64
_DEVICE_CHUNK_UPDATES = 1 << 23
_SETTLE_UPDATES = 16
# Lanes of a job: as many as a kernel takes side by side, or half of that where there are few.
_LANES, _FEW = 8, 32


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
    only: range | None = None,
    device: str = "cpu",
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
        walk: The walk; hops in which a lazy or metropolis walk stays count.
        recipients: For how many a source seals, drawn without replacement; the first of them to be met opens.
        colluders: Mask of the nodes that share their sightings of ciphertexts.
        burn_in: Updates of each lane to play unseen first. By default: until the token has been everywhere,
            so that every return time is known, and 16 more.
        chunk_updates: Updates per chunk; by default what takes about a second, at most 65536.
        only: Play only these lanes of the run, numbered replica by replica; their updates are as in the whole run.
        device: ``cuda`` plays every lane on the graphics card, a thread each, with the same records as ``cpu``; it
            takes thousands of lanes to be fast.
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
    check_device(device)
    lanes: _AnyLanes
    rows: SetRows | AliasRows
    rows = (
        set_rows(graph, law, recipients) if recipients != 1 or isinstance(law, ExcludedRows) else alias_rows(graph, law)
    )
    if device == "cuda":
        lanes = DeviceLanes(open_cuda(), graph, walk, rows, watching, recipients=recipients, tokens=tokens, key=key)
    elif isinstance(rows, SetRows):
        lanes = SeveralLanes(graph, walk, rows, watching, recipients=recipients, tokens=tokens, key=key)
    elif walk.kind in TABLES:
        lanes = TableLanes(moves_of(graph, walk), rows, watching, tokens=tokens, key=key)
    else:
        lanes = MemoryLanes(memory_moves_of(graph, walk), rows, watching, tokens=tokens, key=key)
    chunk = chunk_updates if chunk_updates is not None else default_chunk_updates(graph)
    share = shares(updates, min(tokens * replicas, updates))
    if device == "cuda" and chunk_updates is None:
        # Thousands of lanes are one call each time: a few updates of every one.
        chunk = max(chunk, min(_DEVICE_LANE_UPDATES * len(share), _DEVICE_CHUNK_UPDATES))
    played = range(len(share)) if only is None else only
    if played.step != 1 or not 0 <= played.start < played.stop <= len(share):
        raise InvalidParameterError("only", only, f"a range of lanes within 0..{len(share)}")
    return _chunks(lanes, played, share[played.start : played.stop], burn_in=burn_in, chunk=chunk, progress=progress)


def run_protocol(
    graph: Graph,
    law: LawRows,
    *,
    updates: int,
    seed: int,
    executor: Executor | None = None,
    store: JobStore | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Updates:
    """Play the protocol and return all its updates, ordered by replica, token and time.

    Takes the arguments of :func:`iter_protocol`, and memory for every update. With an ``executor`` or a ``store`` the
    lanes are played as jobs, to the same updates; an interrupt then keeps only what is in the store.
    """
    if executor is None and store is None:
        chunks = list(iter_protocol(graph, law, updates=updates, seed=seed, progress=progress, **options))
        return _in_order(np.concatenate(chunks))
    asked = {"updates": updates, "seed": seed} | options
    n_lanes = min(options.get("tokens", 1) * options.get("replicas", 64), updates)
    size = _LANES if n_lanes > _FEW else _LANES // 2
    parts = run_jobs(
        _play_lanes,
        [[first, min(first + size, n_lanes)] for first in range(0, n_lanes, size)],
        common=(graph, law, asked),
        executor=executor,
        store=store,
        what=None if store is None else _cache_key(graph, law, asked),
        stage="walking",
        progress=progress,
    )
    return np.concatenate(parts)


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
    lanes = min(tokens * replicas, updates)
    chunk = chunk_updates if chunk_updates is not None else default_chunk_updates(graph)
    entries = law.nodes.size if isinstance(law, ExcludedRows) else checked_rows(graph, law).nnz
    aliases = entries * (4 + 8 + 4) + 8 * (graph.n_nodes + 1)
    # Last visits, and of those who seal for several, who the recipients are.
    shelves = 8 if recipients == 1 and not isinstance(law, ExcludedRows) else 16
    # The kernel's chunk and the one the caller still holds.
    chunks = 2 * min(updates, max(chunk, lanes)) * UPDATE_DTYPE.itemsize
    collected = 2 * updates * UPDATE_DTYPE.itemsize if collect else 0
    tables = moves_of(graph, walk).n_bytes if walk.kind in TABLES else estimate_bytes(graph)
    return tables + aliases + lanes * graph.n_nodes * shelves + chunks + collected


def _burn_in(lanes: _AnyLanes, n_lanes: int, updates: int | None) -> None:
    """Play ``updates`` unseen; None means until every node was visited, and some more."""
    nothing = np.empty(0, dtype=UPDATE_DTYPE)
    if updates is None:
        while (unvisited := lanes.unvisited()).any():
            lanes.play(np.where(unvisited, _COVER_UPDATES, 0), nothing)
    lanes.play(np.full(n_lanes, _SETTLE_UPDATES if updates is None else updates), nothing)


def shares(updates: int, n_lanes: int) -> IntArray:
    """Return how many of the updates each lane makes."""
    share = np.full(n_lanes, updates // n_lanes)
    share[: updates % n_lanes] += 1
    return share


def _chunks(
    lanes: _AnyLanes, played: range, left: IntArray, *, burn_in: int | None, chunk: int, progress: Progress
) -> Iterator[Updates]:
    lanes.start(played)
    _burn_in(lanes, len(played), burn_in)
    done, updates = 0, int(left.sum())
    while done < updates:
        quotas = np.minimum(left, max(1, chunk // len(left)))
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


def _play_lanes(graph: Graph, law: LawRows, asked: dict[str, Any], job: list[int]) -> Updates:
    """Play the lanes of one job."""
    return _in_order(np.concatenate(list(iter_protocol(graph, law, only=range(*job), **asked))))


def _in_order(together: Updates) -> Updates:
    """Return updates in the order of their lanes: chunks interleave them."""
    lanes = together["replica"].astype(np.int64) * (int(together["token"].max()) + 1) + together["token"]
    return together[np.argsort(lanes, kind="stable")]


def _cache_key(graph: Graph, law: LawRows, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what is played, as the names of files have it."""
    walk, colluders = asked.get("walk", SIMPLE), asked.get("colluders")
    plain = {key: value for key, value in asked.items() if key not in {"walk", "colluders"}}
    return {
        "kind": "protocol",
        "graph": graph.digest,
        "law": law_digest(law),
        "walk": walk.kind,
        "colluders": None if colluders is None else np.flatnonzero(colluders),
    } | plain
