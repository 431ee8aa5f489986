"""The auditor's exact laws and posteriors against played protocols; each test also rejects a named mutant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from veilwalk.audit import (
    Audit,
    AuditSettings,
    audit,
    choose_colluders,
    estimate_over_lanes,
    score_posteriors,
)
from veilwalk.audit._observers import ExactSights
from veilwalk.audit._play import Run, Sightings, play_updates
from veilwalk.audit._timings import LawTiming
from veilwalk.chains import DeliveryLaw, NodeChain
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw, choose_scheme
from veilwalk.design._law import law_by_distance
from veilwalk.graphs import Graph, distances, parse_graph_spec, random_regular

PASS, FAIL = 1e-6, 1e-6
SUPPORT = DistanceSupport(2, 5)
SETTINGS = AuditSettings(updates=60_000, seed=5, colluders=10)
EXACT = ("prior", "return-time", "last-hop", "first-sight")


@dataclass(frozen=True)
class Played:
    """One graph, one law, one run, and all exact delivery laws."""

    graph: Graph
    law: DestinationLaw
    run: Run
    apart: IntArray
    deliveries: list[DeliveryLaw]
    audit: Audit

    def overall(self, observer: str) -> dict[str, Any]:
        """Return what an observer learns from all updates."""
        return self.audit[observer].overall


@pytest.fixture(scope="module")
def played() -> Played:
    """RRG(60, 3) at distances 2 to 5."""
    graph = random_regular(60, 3, seed=1)
    scheme = choose_scheme(graph, "uniform-distance", support=SUPPORT)
    run = play_updates(scheme, SETTINGS, choose_colluders(scheme.graph, 10, SETTINGS.seed))
    deliveries = list(NodeChain.simple(graph).deliveries(scheme.law.matrix.toarray(), 500))
    found = audit(scheme, SETTINGS, observers=(*EXACT, "repeated"))
    return Played(graph, scheme.law, run, distances(graph).astype(np.int64), deliveries, found)


# Return-time bins: finely where they are short; the last goes to the horizon and beyond.
BINS = np.array([4, 6, 8, 10, 12, 15, 20, 30, 45, 70, 100, 150, 220, 320])


def cells(times: IntArray, away: IntArray, nearer: npt.NDArray[Any]) -> IntArray:
    """Number the cells: return-time bin, distance of the source, whether the last hop is nearer to it."""
    index = np.searchsorted(BINS, times, side="right") - 1
    return np.asarray((index * SUPPORT.size + away - SUPPORT.lo) * 2 + nearer)


def expected_cells(played: Played, law: DeliveryLaw, joint: FloatArray) -> FloatArray:
    """Probability of every cell at one destination, times past the horizon counted with the last bin."""
    whole = np.concatenate((joint, law.beyond[np.newaxis]))[int(BINS[0]) :]
    times = np.arange(int(BINS[0]), len(joint) + 1)
    nearer = played.apart[law.neighbours][:, law.sources] < played.apart[law.destination, law.sources]
    away = played.apart[law.destination, law.sources]
    place = cells(times[:, None, None], away[None, None, :], nearer[None])
    return np.asarray(
        np.bincount(place.ravel(), weights=whole.ravel(), minlength=len(BINS) * SUPPORT.size * 2), dtype=np.float64
    )


def p_value(played: Played, joint_of: Callable[[DeliveryLaw], FloatArray]) -> float:
    """Chi-square of the sampled deliveries against laws, all destinations pooled."""
    seen, source = played.run.sightings, played.run.truth.source
    away = played.apart[seen.destination, source]
    got = np.bincount(
        cells(seen.return_time, away, played.apart[seen.last_hop, source] < away),
        minlength=len(BINS) * SUPPORT.size * 2,
    )
    counts = np.bincount(seen.destination, minlength=60)
    want = sum(
        (counts[law.destination] * expected_cells(played, law, joint_of(law)) for law in played.deliveries),
        np.zeros(len(got)),
    )
    assert not got[want == 0].any()
    rare = want < 20
    observed = np.append(got[~rare], got[rare].sum())
    expected = np.append(want[~rare], want[rare].sum())
    kept = expected > 0
    scale = observed[kept].sum() / expected[kept].sum()
    return float(stats.chisquare(observed[kept], expected[kept] * scale).pvalue)


def test_sampled_deliveries_follow_the_exact_law(played: Played) -> None:
    """Return time, distance of the source and side of the last hop; a law whose last hop is uniform is rejected."""
    assert p_value(played, lambda law: law.joint) > PASS

    def uniform_last_hop(law: DeliveryLaw) -> FloatArray:
        return np.broadcast_to(law.joint.mean(axis=1, keepdims=True), law.joint.shape)

    assert p_value(played, uniform_last_hop) < FAIL


def test_a_return_is_not_two_independent_hitting_times(played: Played) -> None:
    """The convolution of the ways there and back, with the right prior over sources, is rejected."""
    step = played.graph.adjacency.toarray() / played.graph.degrees[:, None]
    horizon = len(played.deliveries[0].joint)
    to = np.zeros((60, 60, horizon))
    for target in range(60):
        arriving = step[:, target]
        for time in range(1, horizon):
            to[:, target, time] = np.where(np.arange(60) == target, 0.0, arriving)
            arriving = step @ to[:, target, time]

    def convolution(law: DeliveryLaw) -> FloatArray:
        total = law.joint.sum(axis=0) + law.beyond
        there, back = to[law.destination, law.sources], to[law.sources, law.destination]
        size = 2 * horizon
        product = np.fft.rfft(there, size) * np.fft.rfft(back, size)
        both = np.maximum(np.fft.irfft(product, size)[:, :horizon], 0.0)
        return np.asarray(both.T[:, np.newaxis, :] * total)

    assert p_value(played, convolution) < FAIL


def wide_interval(row: dict[str, Any]) -> tuple[float, float]:
    """The 99.9% interval of the hit ratio, from the 95% one by the quotient of Student's quantiles."""
    low, high = row["hit_ratio_interval"]
    half = (high - low) / 2 * stats.t.ppf(0.9995, 63) / stats.t.ppf(0.975, 63)
    return row["hit_ratio"] - half, row["hit_ratio"] + half


@pytest.mark.parametrize("observer", EXACT)
def test_exact_posteriors_are_calibrated(played: Played, observer: str) -> None:
    """The most likely source is right as often as its posterior says."""
    row = played.overall(observer)
    low, high = wide_interval(row)
    assert low < row["top_posterior"] < high
    assert row["blind_hit_ratio"] < row["hit_ratio"] or observer == "prior"


def test_overconfident_posteriors_are_not_calibrated(played: Played) -> None:
    """The named mutant: the last-hop posterior squared, as if every sighting counted twice."""
    seen, source = played.run.sightings, played.run.truth.source
    gaps: dict[int, list[FloatArray]] = {1: [], 2: []}
    lanes = []
    for law in played.deliveries:
        rows = np.flatnonzero(seen.destination == law.destination)
        honest = LawTiming(law, 60).posterior(seen.take(rows), use_last_hop=True).weights
        for power, found in gaps.items():
            sharpened = honest**power / (honest**power).sum(axis=1, keepdims=True)
            scores = score_posteriors(sharpened, source[rows], played.apart[law.destination], SUPPORT)
            found.append(scores[:, 3] - scores[:, 4])
        lanes.append(played.run.truth.lane[rows])
    for power, calibrated in ((1, True), (2, False)):
        gap = estimate_over_lanes(np.concatenate(gaps[power]), np.concatenate(lanes))
        # Five standard errors and more for the mutant; the honest one is inside its own interval.
        assert (abs(gap.mean) < 2.5 * (gap.high - gap.mean)) == calibrated


def test_observers_who_see_more_learn_more(played: Played) -> None:
    """Node entropy falls from prior to return time to last hop, and with each linked update."""
    entropy = {name: played.overall(name)["node_entropy_nats"] for name in EXACT}
    assert entropy["prior"] > entropy["return-time"] > entropy["last-hop"]
    linked = played.audit["repeated"].by_linked_updates
    assert [row["linked"] for row in linked] == [1, 2, 4, 8]
    assert all(a["node_entropy_nats"] > b["node_entropy_nats"] for a, b in pairwise(linked))
    assert linked[0]["node_entropy_nats"] == pytest.approx(entropy["last-hop"], rel=1e-9)


def test_a_sample_of_destinations_says_so_in_its_interval() -> None:
    """With 64 of 120 destinations the interval comes from their spread, and covers what all of them give."""
    graph = parse_graph_spec("rrg:120:3:seed=1")
    scheme = choose_scheme(graph, "uniform-node", support=(2, 6))
    asked: dict[str, Any] = {"updates": 100_000, "seed": 5, "observers": ("return-time",), "horizon": 200}
    whole, part = (audit(scheme, exact_nodes=most, **asked)["return-time"] for most in (120, 119))
    assert (whole.how, part.how) == (
        "exact",
        "exact at up to 64 destinations, with all return times above 200 hops taken as one",
    )
    assert part.report["scored_updates"] < 0.6 * whole.report["scored_updates"]
    low, high = part.overall["node_entropy_nats_interval"]
    assert low < whole.node_entropy_nats < high
    tight_low, tight_high = whole.overall["node_entropy_nats_interval"]
    assert high - low > 2 * (tight_high - tight_low)


def test_hops_per_update_are_what_the_design_predicts(played: Played) -> None:
    """Within 1%; assuming that every pair were as far apart as two nodes at random misses by more."""
    hitting = NodeChain.simple(played.graph).mean_hitting_times()
    measured = played.audit.hops_per_update.mean
    assert measured == pytest.approx(played.law.mean_hops(hitting), rel=0.01)
    assert played.audit.hops_per_update_predicted == pytest.approx(played.law.mean_hops(hitting), rel=1e-12)
    assert played.audit.hops_per_update.low < measured < played.audit.hops_per_update.high
    at_random = hitting.sum() / (60 * 59)
    assert measured != pytest.approx(at_random, rel=0.01)


def test_one_seed_one_record(two_threads: int) -> None:
    """Every byte of it, on one thread and on two; another seed gives another."""
    graph = random_regular(30, 3, seed=4)
    scheme = choose_scheme(graph, "paper", support=(2, 3))

    def record(seed: int, threads: int) -> str:
        numba.set_num_threads(threads)
        return audit(scheme, updates=1000, seed=seed, colluders=4).record().to_json()

    one = record(1, 1)
    assert one == record(1, two_threads)
    assert record(2, two_threads).replace('"seed": 2', '"seed": 1') != one


# Colluders: mean top posterior in percent and entropy in bits, from the table of the threat model.
TABLE = {3: (1.5, 8.18), 15: (6.6, 7.74), 30: (13.2, 6.98), 60: (24.8, 5.49), 90: (36.3, 4.09)}


def first_sights(destination: int, came_from: IntArray) -> Sightings:
    size = len(came_from)
    return Sightings.empty(size, destination=np.full(size, destination), first_sight_from=came_from)


def coalition(graph: Graph, matrix: FloatArray, colluders: IntArray) -> tuple[float, float, float]:
    """Exact means over sources and exits: top posterior, entropy in bits, and the mutant's top posterior."""
    free = np.setdiff1d(np.arange(300), colluders)
    step = graph.adjacency.toarray() / 4
    system, into = np.eye(len(free)) - step[np.ix_(free, free)], step[np.ix_(free, colluders)]
    # Sources are equally likely: the chance of each last free node is its mean over them.
    weight = np.linalg.solve(system.T, np.full(len(free), 1 / len(free))) * into.sum(axis=1)
    assert weight.sum() == pytest.approx(1, rel=1e-10)
    chain = NodeChain.simple(graph)
    adversary = ExactSights(chain, matrix, colluders)
    guess = adversary.posterior(first_sights(int(colluders[0]), free)).weights
    entropy = -(guess * np.log2(np.where(guess > 0, guess, 1.0))).sum(axis=1)
    # Only which colluder it was: the largest of the joint over sources, summed over colluders.
    only_who = np.linalg.solve(system, into).max(axis=0).sum() / len(free)
    return float(weight @ guess.max(axis=1)), float(weight @ entropy), float(only_who)


def test_the_table_of_the_threat_model_is_reproduced() -> None:
    """First sight on RRG(300, 4): posterior within 8%, entropy within 0.12 bits; forgetting from whom misses."""
    # At k = 90 sets differ by 0.15 bits (standard deviation): 40 of them put the mean within 0.024.
    rng = np.random.default_rng(9)
    found: dict[int, list[tuple[float, float, float]]] = {k: [] for k in TABLE}
    for seed in range(1, 6):
        graph = random_regular(300, 4, seed=seed)
        support = DistanceSupport(1, int(distances(graph).max()), allow_neighbours=True)
        matrix = law_by_distance(graph, support, np.ones(support.hi + 1)).matrix.toarray()
        for k, rows in found.items():
            rows += [coalition(graph, matrix, np.sort(rng.choice(300, k, replace=False))) for _ in range(8)]
    for k, (percent, bits) in TABLE.items():
        top, entropy, only_who = np.mean(found[k], axis=0)
        assert 100 * top == pytest.approx(percent, rel=0.08)
        assert entropy == pytest.approx(bits, abs=0.12)
        assert 100 * only_who != pytest.approx(percent, rel=0.08)
    assert 100 * np.mean(found[30], axis=0)[2] == pytest.approx(4, abs=1)
