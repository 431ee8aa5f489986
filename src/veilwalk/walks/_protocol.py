"""The protocol played out: tokens carry sealed updates from source to destination, again and again.

A token walks. At its destination an update happens; the destination becomes the source, draws the next
destination from the law, seals, and the walk goes on from there. Tokens never meet: each replica's each token
is a lane of its own, with its own stream, its own clock in hops and its own table of last visits. Lanes can be played
as jobs, a few at a time: draws are counted by the number of the lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.engine import JobStore, run_jobs
from veilwalk.graphs import Graph
from veilwalk.walks._device import Device, check_device, open_cuda
from veilwalk.walks._tables import (
    ExcludedRows,
    LawRows,
    build_law_tables,
    build_walk_tables,
    check_rows,
    estimate_table_bytes,
    law_digest,
    stream_key,
)

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
_DEVICE_LANE_UPDATES = 64
_DEVICE_CHUNK_UPDATES = 1 << 23
_SETTLE_UPDATES = 16
# Names the stream of coins of blank legs.
_BLANK = 0x626C616E
# Lanes of a job, or half of that where there are few.
_LANES, _FEW = 8, 32
# Lanes that one thread walks in turn; more where the tables are beyond the caches, to have more lookups under way.
_GROUP, _LARGE_GROUP, _LARGE = 8, 32, 20_000
# Hops that a lane walks before they are looked up. On large graphs a path meets its shelf's cache lines several times.
_LEAST_PATH, _MOST_PATH = 2048, 1 << 19
# What drawing a recipient takes on a device, measured roughly.
_SEALING_HOPS = 3
# As in the text of the device.
_DEVICE_COLUMNS = 17
#: The word of a node that was never visited and belongs to no set.
UNVISITED = -1 << 16


class Lanes:
    """The tokens of every replica between two calls of the kernels, on the processor."""

    def __init__(
        self, graph: Graph, law: LawRows, walk: Walk, watching: BoolArray, *, recipients: int, tokens: int, key: Any
    ) -> None:
        self._n_nodes, self._recipients, self._tokens, self._key = graph.n_nodes, recipients, tokens, key
        self._walk, self._watching = build_walk_tables(graph, walk), watching
        self._law = build_law_tables(graph, law, recipients)
        # One recipient of explicit rows comes from the stream of destinations, sets from the stream of recipients.
        self._by_number = recipients == 1 and not isinstance(law, ExcludedRows)

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes, which seal for their first recipients."""
        from veilwalk.walks import _kernels_protocol as kernels

        n_lanes, block_hops = len(lanes), self._walk.block_hops
        self._state = np.empty((n_lanes, kernels.N_COLUMNS), dtype=np.int64)
        self._shelves = np.full((n_lanes, self._n_nodes), UNVISITED, dtype=np.int64)
        path_hops = -(-_path_hops(self._n_nodes) // block_hops) * block_hops
        self._paths = np.empty((n_lanes, path_hops + 1), dtype=np.int32)
        kernels.place_tokens(np.uint64(self._n_nodes), self._key, np.uint64(lanes.start), self._state)
        kernels.start_lanes(self._law, self._recipients, self._by_number, self._key, self._state, self._shelves)

    def allocate(self, n_updates: int) -> Updates:
        """Return a new array for updates."""
        return np.empty(n_updates, dtype=UPDATE_DTYPE)

    def find_unvisited(self) -> BoolArray:
        """Return which lanes' tokens have not visited every node yet."""
        return np.asarray((self._shelves < 0).any(axis=1))

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""
        from veilwalk.walks import _kernels_protocol as kernels

        kernels.run_lanes(
            self._walk,
            self._law,
            self._recipients,
            self._by_number,
            self._watching,
            self._tokens,
            self._key,
            _group_lanes(self._n_nodes, len(quotas)),
            _HOPS_PER_NODE * self._n_nodes // (self._recipients + 1) + 1,
            self._state,
            self._shelves,
            self._paths,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )


class DeviceLanes:
    """The tokens of every replica between two calls of the kernels, on a device."""

    def __init__(
        self,
        device: Device,
        graph: Graph,
        law: LawRows,
        walk: Walk,
        watching: BoolArray,
        *,
        recipients: int,
        tokens: int,
        key: Any,
    ) -> None:
        self._device, self._n_nodes, self._recipients = device, graph.n_nodes, recipients
        kind, offsets, table, *numbers, _ = build_walk_tables(graph, walk)
        self._walk = (kind, device.put(offsets), device.put(table), *numbers)
        tables, by_number = (
            build_law_tables(graph, law, recipients),
            recipients == 1 and not isinstance(law, ExcludedRows),
        )
        rows = (device.put(array) for array in tables[:5])
        self._law = (graph.n_nodes, *rows, len(tables.weights) > 0, recipients, by_number)
        self._watching = (device.put(watching.view(np.uint8)), len(watching) > 0)
        self._tokens, self._key = tokens, key

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes, which seal for their first recipients."""
        full, n_lanes = self._device.full, len(lanes)
        self._state = full((n_lanes, _DEVICE_COLUMNS), 0, "int64")
        self._shelves = full((n_lanes, self._n_nodes), UNVISITED, "int64")
        tables = (self._state, self._shelves)
        self._device.launch("start_lanes", n_lanes, *self._law, self._key, np.uint64(lanes.start), n_lanes, *tables)

    def allocate(self, n_updates: int) -> Updates:
        """Return a new array for updates, to which the device copies quickly."""
        return self._device.empty(n_updates * UPDATE_DTYPE.itemsize).view(UPDATE_DTYPE)

    def find_unvisited(self) -> BoolArray:
        """Return which lanes' tokens have not visited every node yet."""
        return self._device.fetch((self._shelves < 0).any(axis=1))

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""
        put, n_lanes = self._device.put, len(quotas)
        rows = np.cumsum(quotas) - quotas
        records = self._device.full(len(out) * out.dtype.itemsize // 4, 0, "uint32")
        self._device.launch(
            "run_lanes",
            n_lanes,
            *self._walk,
            *self._law,
            *self._watching,
            self._tokens,
            self._key,
            _batch_arrivals(self._n_nodes, self._recipients),
            n_lanes,
            self._state,
            self._shelves,
            put(quotas.astype(np.int64)),
            put(rows.astype(np.int64)),
            len(out) > 0,
            records,
            item_bytes=self._shelves.itemsize * self._n_nodes,
        )
        if len(out):
            self._device.fetch_into(out.view(np.uint32), records)


def token_paths(
    graph: Graph, *, hops: int, lanes: int, seed: int, walk: Walk = SIMPLE, first_lane: int = 0
) -> IntArray:
    """Return the nodes that tokens stand on after 0, 1, ... ``hops`` hops, one row a lane.

    Row k is the path of lane ``first_lane + k`` of :func:`iter_protocol`, with one token a replica and the same seed
    and walk: ``path[clock]`` is where it is at that clock. Takes 4 bytes a hop and lane.
    """
    validate.integer(1, hops=hops, lanes=lanes)
    validate.integer(0, first_lane=first_lane)
    from veilwalk.walks import _kernels_protocol as kernels

    key, tables = stream_key(seed), build_walk_tables(graph, walk)
    state = np.empty((lanes, kernels.N_COLUMNS), dtype=np.int64)
    kernels.place_tokens(np.uint64(graph.n_nodes), key, np.uint64(first_lane), state)
    paths = np.empty((lanes, hops + 1), dtype=np.int32)
    kernels.trace_paths(tables, key, _group_lanes(graph.n_nodes, lanes), state, paths)
    return paths


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
    validate.integer(1, updates=updates, tokens=tokens, replicas=replicas)
    for name, value in (("burn_in", burn_in), ("chunk_updates", chunk_updates)):
        if value is not None:
            validate.integer(0 if name == "burn_in" else 1, **{name: value})
    key = stream_key(seed)
    watching = _colluder_mask(graph, colluders)
    check_device(device)
    options: dict[str, Any] = {"recipients": recipients, "tokens": tokens, "key": key}
    lanes: Lanes | DeviceLanes
    if device == "cuda":
        lanes = DeviceLanes(open_cuda(), graph, law, walk, watching, **options)
    else:
        lanes = Lanes(graph, law, walk, watching, **options)
    chunk = chunk_updates if chunk_updates is not None else default_chunk_updates(graph)
    share = split_evenly(updates, min(tokens * replicas, updates))
    if device == "cuda" and chunk_updates is None:
        # Thousands of lanes are one call each time: a few updates of every one.
        chunk = max(chunk, min(_DEVICE_LANE_UPDATES * len(share), _DEVICE_CHUNK_UPDATES))
    chosen = range(len(share)) if only is None else only
    if chosen.step != 1 or not 0 <= chosen.start < chosen.stop <= len(share):
        raise InvalidParameterError("only", only, f"a range of lanes within 0..{len(share)}")
    return _chunks(lanes, chosen, share[chosen.start : chosen.stop], burn_in=burn_in, chunk=chunk, progress=progress)


def join_blank_legs(
    legs: Iterable[Updates], quotas: IntArray, *, train_probability: float, seed: int
) -> Iterator[Updates]:
    """Join the legs of a played replica into updates, until each token has made its quota.

    At the end of a leg the opener trains with that chance; else it seals the model again, and the leg is blank. An
    update goes from the maker before it to its own: its source and its sights are those of the first leg, its hops
    those of all, the rest that of the last. Coins depend on seed and token alone.
    """
    coins = [task_generator(seed, _BLANK, token) for token in range(len(quotas))]
    waiting, left = [np.empty(0, dtype=UPDATE_DTYPE) for _ in quotas], quotas.copy()
    sights = [name for name in UPDATE_DTYPE.names or () if "sight" in name]
    for chunk in legs:
        joined = []
        for token in np.flatnonzero(left):
            rows = chunk[chunk["token"] == token]
            ends = np.flatnonzero(coins[token].random(len(rows)) < train_probability)[: left[token]] + len(
                waiting[token]
            )
            rows = np.concatenate([waiting[token], rows])
            begins = np.append(0, ends + 1)
            waiting[token] = rows[begins[-1] :]
            if len(ends):
                updates, first = rows[ends], rows[begins[:-1]]
                updates["leg_hops"] = np.add.reduceat(rows["leg_hops"][: begins[-1]], begins[:-1])
                for name in ("source", *sights):
                    updates[name] = first[name]
                joined.append(updates)
                left[token] -= len(updates)
        if joined:
            yield np.concatenate(joined)
        if not left.any():
            return


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
    arguments = {"updates": updates, "seed": seed} | options
    n_lanes = min(options.get("tokens", 1) * options.get("replicas", 64), updates)
    size = _LANES if n_lanes > _FEW else _LANES // 2
    parts = run_jobs(
        _play_lanes,
        [[first, min(first + size, n_lanes)] for first in range(0, n_lanes, size)],
        common=(graph, law, arguments),
        executor=executor,
        store=store,
        what=None if store is None else _cache_key(graph, law, arguments),
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
    chunk_updates: int | None = None,
    collect: bool = False,
) -> int:
    """Return the bytes that :func:`iter_protocol` will take beyond graph and law.

    With ``collect``, those of :func:`run_protocol`, which keeps every update.
    """
    validate.integer(1, updates=updates, tokens=tokens, replicas=replicas)
    lanes = min(tokens * replicas, updates)
    chunk = chunk_updates if chunk_updates is not None else default_chunk_updates(graph)
    entries = law.nodes.size if isinstance(law, ExcludedRows) else check_rows(graph, law).nnz
    tables = entries * (4 + 8 + 8 + 4) + 33 * (graph.n_nodes + 1)
    # Last visits with tags of sets, and paths.
    lane_bytes = 8 * graph.n_nodes + 4 * _path_hops(graph.n_nodes)
    # The kernel's chunk and the one the caller still holds.
    chunks = 2 * min(updates, max(chunk, lanes)) * UPDATE_DTYPE.itemsize
    collected = 2 * updates * UPDATE_DTYPE.itemsize if collect else 0
    return estimate_table_bytes(graph, walk) + tables + lanes * lane_bytes + chunks + collected


def _path_hops(n_nodes: int) -> int:
    return min(max(n_nodes // 2, _LEAST_PATH), _MOST_PATH)


def _group_lanes(n_nodes: int, n_lanes: int) -> int:
    """Return how many lanes one thread walks in turn, few enough that every thread has some."""
    import numba

    most = _LARGE_GROUP if n_nodes >= _LARGE else _GROUP
    return max(1, min(most, -(-n_lanes // numba.get_num_threads())))


def _batch_arrivals(n_nodes: int, recipients: int) -> int:
    """Return how many of the 32 tokens of a warp should have arrived before they seal together.

    The more wait, the fewer walk meanwhile; the fewer wait, the more often a warp takes the time of sealing.
    """
    leg_hops, sealing_hops = n_nodes / (recipients + 1), _SEALING_HOPS * (1 + recipients)
    arrival_hops = leg_hops * np.cumsum(1.0 / np.arange(32, 0, -1))
    return int(np.argmax(np.arange(1, 33) / (arrival_hops + sealing_hops))) + 1


def _burn_in(lanes: Lanes | DeviceLanes, n_lanes: int, updates: int | None) -> None:
    """Play ``updates`` unseen; None means until every node was visited, and some more."""
    nothing = np.empty(0, dtype=UPDATE_DTYPE)
    if updates is None:
        while (unvisited := lanes.find_unvisited()).any():
            lanes.play(np.where(unvisited, _COVER_UPDATES, 0), nothing)
    lanes.play(np.full(n_lanes, _SETTLE_UPDATES if updates is None else updates), nothing)


def split_evenly(updates: int, n_lanes: int) -> IntArray:
    """Return how many of the updates each lane makes."""
    share = np.full(n_lanes, updates // n_lanes)
    share[: updates % n_lanes] += 1
    return share


def _chunks(
    lanes: Lanes | DeviceLanes, chosen: range, left: IntArray, *, burn_in: int | None, chunk: int, progress: Progress
) -> Iterator[Updates]:
    lanes.start(chosen)
    _burn_in(lanes, len(chosen), burn_in)
    done, updates = 0, int(left.sum())
    while done < updates:
        quotas = np.minimum(left, max(1, chunk // len(left)))
        out = lanes.allocate(int(quotas.sum()))
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
            "colluders", f"array of shape {mask.shape} and type {mask.dtype}", f"a mask of {graph.n_nodes} booleans"
        )
    return frozen(mask)


def _play_lanes(graph: Graph, law: LawRows, arguments: dict[str, Any], job: list[int]) -> Updates:
    """Play the lanes of one job."""
    return _in_order(np.concatenate(list(iter_protocol(graph, law, only=range(*job), **arguments))))


def _in_order(together: Updates) -> Updates:
    """Return updates in the order of their lanes: chunks interleave them."""
    lanes = together["replica"].astype(np.int64) * (int(together["token"].max()) + 1) + together["token"]
    return together[np.argsort(lanes, kind="stable")]


def _cache_key(graph: Graph, law: LawRows, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what is played, as the names of files have it."""
    walk, colluders = arguments.get("walk", SIMPLE), arguments.get("colluders")
    plain = {key: value for key, value in arguments.items() if key not in {"walk", "colluders"}}
    return {
        "kind": "protocol",
        "graph": graph.digest,
        "law": law_digest(law),
        "walk": walk.kind,
        "colluders": None if colluders is None else np.flatnonzero(colluders),
    } | plain
