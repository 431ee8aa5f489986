"""Rehearsals: an observer that knows graph, law and kind of walk plays tokens of its own and counts what it would see.

That needs no chain, so any walk can be rehearsed. Tokens are followed over every hop, and what may happen at a hop is
counted with its probability given the path (see ``_kernels_paths``), so that one hop tells as much as many played
updates would. Nothing is taken from the run that is attacked.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit.inference._kernels_paths import follow
from veilwalk.audit.inference.sealed import Sets
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.progress import Progress
from veilwalk.core.randomness import task_generator
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw
from veilwalk.engine import iter_jobs
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths

# A stream of its own: the tokens that are rehearsed are not those that are attacked.
_REHEARSAL_TASK = 0x72656865
# Hops in all cost no more than so many multiplications, unless those are very few hops.
_WORK = 10_000_000_000
_FEWEST_HOPS = 4_000_000
# A lane is long enough to forget how it began and to pass every node many times.
_WARM_PER_NODE, _HOPS_PER_NODE = 20, 200
_FEWEST_LANES, _HOPS_AT_ONCE = 8, 1_000_000
# What is sealed for several is followed for so many legs, twice, until hardly a set would have left it unopened.
_FOLLOWED_LEGS = 2 * 18
# More of those: what tells sources apart is smaller, and joined sightings add up the noise.
_SEVERAL_WORK = 25_000_000_000
#: The weight of so many visits is granted to what is known beforehand, in every table of counts.
TRUSTED_VISITS = 20
#: Distances that are told apart of who opens what colluders saw.
TOLD_DISTANCES = 12


@dataclass(frozen=True, eq=False)
class Lanes:
    """Some lanes, walked and followed; hops before ``warm`` still know how the lane began.

    Where there are several recipients, ``made`` and ``openers`` are those of ``_kernels_sealed.follow_sets``, and
    ``relayed`` is empty.
    """

    paths: IntArray
    made: FloatArray
    relayed: FloatArray
    warm: int
    openers: FloatArray


def rehearse(scene: Scene, progress: Progress, executor: Executor | None = None) -> None:
    """Play tokens of the scheme and let every counter of the scene see them, a few lanes at a time.

    Lanes are walked and followed as jobs, and counted here.
    """
    if not scene.counters:
        return
    graph, walk, settings = scene.graph, scene.scheme.walk, scene.settings
    hops = int(min(max(_affordable_hops(scene), _FEWEST_HOPS), settings.rehearsed_hops * graph.n_nodes))
    lane_hops = (_WARM_PER_NODE + _HOPS_PER_NODE) * graph.n_nodes
    n_lanes, at_once = max(_FEWEST_LANES, hops // lane_hops), max(_FEWEST_LANES, _HOPS_AT_ONCE // lane_hops)
    member = colluder_numbers(graph.n_nodes, scene.colluders)
    sets = sets_of(scene)
    seed = int(task_generator(settings.seed, _REHEARSAL_TASK).integers(1 << 63))
    jobs = [[first, min(at_once, n_lanes - first), lane_hops] for first in range(0, n_lanes, at_once)]
    script = _Script(graph, walk, seed, scene.law, sets, member, None if sets is None else scene.apart)
    followed = iter_jobs(_followed, jobs, common=(script,), executor=executor, stage="rehearsing", progress=progress)
    # Counted in the order of the lanes, so that sums have the same bits wherever they were followed.
    for paths, made, relayed, openers in followed:
        for counter in scene.counters:
            counter.add(Lanes(paths, made, relayed, _WARM_PER_NODE * graph.n_nodes, openers))


@dataclass(frozen=True, eq=False)
class _Script:
    """What is needed to rehearse, wherever that is done."""

    graph: Graph
    walk: Walk
    seed: int
    law: DestinationLaw
    sets: Sets | None
    member: IntArray
    apart: IntArray | None


def _followed(script: _Script, job: list[int]) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Walk and follow the lanes of one job: the first, how many, and how far."""
    first, lanes, hops = job
    paths = token_paths(script.graph, hops=hops, lanes=lanes, seed=script.seed, walk=script.walk, first_lane=first)
    if script.sets is None:
        return paths, *follow_paths(paths, script.law, script.member), np.zeros((0, 0, 0))
    made, openers = follow_sealed(paths, script.sets, script.member, script.apart)
    return paths, made, np.zeros((0, script.graph.n_nodes)), openers


def sets_of(scene: Scene) -> Sets | None:
    """Return the law of sets of a scene, the same for all who ask; None where there is one recipient."""
    return scene.once(Sets, lambda: Sets.of(scene.scheme))


def _affordable_hops(scene: Scene) -> float:
    """A hop multiplies a row of the law, and at a colluder goes over all nodes; or over all that may be unopened."""
    if scene.scheme.recipients > 1:
        return _SEVERAL_WORK / (_FOLLOWED_LEGS * scene.scheme.openings.hops)
    return _WORK / (scene.law.matrix.nnz / scene.graph.n_nodes + len(scene.colluders))


def follow_sealed(
    paths: IntArray, sets: Sets, member: IntArray, apart: IntArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return ``made`` and, where distances are given, ``openers`` of :func:`_kernels_sealed.follow_sets`."""
    from veilwalk.audit.inference._kernels_sealed import follow_sets

    made = np.empty((len(paths), 3, paths.shape[1]))
    counts = 0 if apart is None else len(paths)
    openers = np.zeros((counts, TOLD_DISTANCES, TOLD_DISTANCES, TOLD_DISTANCES))
    distances = np.zeros((0, 0), dtype=np.int64) if apart is None else apart.astype(np.int64)
    follow_sets(paths, *sets.arguments(), member, distances, made, openers)
    return made, openers.sum(axis=0)


def follow_paths(paths: IntArray, law: DestinationLaw, member: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return ``made`` and ``relayed`` of :func:`_kernels_paths.follow`."""
    rows = law.matrix
    made = np.empty((len(paths), 2, paths.shape[1]))
    relayed = np.zeros((len(paths), int(member.max(initial=-1)) + 1, len(member)))
    follow(paths, rows.indptr, rows.indices, rows.data, member, made, relayed)
    return made, relayed.sum(axis=0)


def colluder_numbers(n_nodes: int, colluders: IntArray) -> IntArray:
    """Return the number of each colluder, -1 for all other nodes."""
    member = np.full(n_nodes, -1)
    member[colluders] = np.arange(len(colluders))
    return member
