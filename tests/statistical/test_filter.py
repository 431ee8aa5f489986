"""Who uses everything, on played runs: calibrated, better than who uses less, and better than mutants of itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.helpers.known_runs import know

from veilwalk.audit import AuditSettings, audit, choose_colluders, estimate_over_lanes
from veilwalk.audit._filter import EVERY, ExactFilter, MemberLog, record_segments
from veilwalk.audit._members import pair_successive, thin_rows
from veilwalk.audit._play import Run, play_updates
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import barabasi_albert, distances, random_regular

SETTINGS = AuditSettings(updates=30_000, seed=11, colluders=5)
ROWS = 1_000


@cache
def scheme(kind: str) -> Scheme:
    """RRG(40, 3) at distances 2 to 4."""
    return choose_scheme(random_regular(40, 3, seed=1), "paper", support=(2, 4), walk=kind)


@cache
def played(kind: str) -> tuple[Run, BoolArray]:
    """Return a run and its five colluders."""
    colluders = choose_colluders(scheme(kind).graph, 5, SETTINGS.seed)
    return play_updates(scheme(kind), SETTINGS, colluders), np.isin(np.arange(40), colluders)


@cache
def openings(kind: str) -> IntArray:
    """Return openings by colluders, of what somebody else made."""
    run, member = played(kind)
    rows = np.flatnonzero(member[run.sightings.destination])
    ends = pair_successive(rows, run.truth.lane[rows])
    return thin_rows(ends[~member[run.truth.source[ends[:, 1]]]], ROWS)


def logs(kind: str, ends: IntArray, member: BoolArray) -> list[MemberLog]:
    """Return what these members saw."""
    run, _ = played(kind)
    return record_segments(know(scheme(kind), SETTINGS, run), ends, member)


def make_filter(kind: str, *, counted: bool = True) -> ExactFilter:
    """Return the filter of a walk."""
    return ExactFilter(scheme(kind), distinct_counts=EVERY if counted else 0)


@cache
def guesses(kind: str) -> FloatArray:
    """Return what the coalition infers."""
    _, member = played(kind)
    return make_filter(kind).infer_opened(logs(kind, openings(kind), member), member)


def off(kind: str, weights: FloatArray, rows: IntArray) -> float:
    """How far the mean top posterior is from the hit ratio, in half-widths of a 95% interval."""
    truth = played(kind)[0].truth
    miss = weights.max(axis=1) - hits(kind, weights, rows)
    found = estimate_over_lanes(miss, truth.lane[rows])
    return abs(found.mean) / ((found.high - found.low) / 2)


def hits(kind: str, weights: FloatArray, rows: IntArray) -> FloatArray:
    """Where the first guess is the source, ties shared."""
    mine = weights[np.arange(len(rows)), played(kind)[0].truth.source[rows]]
    top = weights.max(axis=1)
    return np.where(mine == top, 1.0 / (weights == top[:, np.newaxis]).sum(axis=1), 0.0)


def surprise(kind: str, weights: FloatArray, rows: IntArray) -> FloatArray:
    """Minus the logarithm of the true source's weight: on average least for the exact posterior."""
    return -np.log(np.maximum(weights[np.arange(len(rows)), played(kind)[0].truth.source[rows]], 1e-6))


@pytest.mark.parametrize("kind", ["simple", "non-backtracking"])
def test_the_coalition_is_calibrated_and_its_mutants_are_worse(kind: str) -> None:
    """Mutants: who forgets what was drawn, takes every ciphertext for new, or does not mind what was not seen."""
    run, member = played(kind)
    ends, rows = openings(kind), openings(kind)[:, 1]
    weights = guesses(kind)
    assert off(kind, weights, rows) < 1.5
    seen = logs(kind, ends, member)
    rng, law = np.random.default_rng(2), scheme(kind).law.matrix.toarray()
    forgetful = [replace(log, recipients=rng.choice(40, size=1, p=law[log.node[0]])) for log in seen]
    careless = [replace(log, new=np.r_[False, np.diff(log.clock) > 1]) for log in seen]
    # What a mutant holds for impossible it has no guess for.
    with np.errstate(invalid="ignore"):
        mutants = (
            make_filter(kind).infer_opened(forgetful, member),
            make_filter(kind, counted=False).infer_opened(careless, member),
            make_filter(kind).infer_opened(seen, np.zeros(40, dtype=np.bool_)),
        )
    for mutant in mutants:
        lost = surprise(kind, np.nan_to_num(mutant), rows) - surprise(kind, weights, rows)
        assert estimate_over_lanes(lost, run.truth.lane[rows]).low > 0


@pytest.mark.parametrize("kind", ["simple", "non-backtracking"])
def test_who_uses_everything_beats_who_uses_less(kind: str) -> None:
    """First sight, asked about the same updates, by more than chance."""
    found = audit(scheme(kind), SETTINGS, observers="first-sight")
    told = estimate_over_lanes(
        hits(kind, guesses(kind), openings(kind)[:, 1]), played(kind)[0].truth.lane[openings(kind)[:, 1]]
    )
    for one in found.findings.values():
        assert told.low > one.hit_ratio


@pytest.mark.parametrize("counted", [True, False])
def test_more_members_know_more(counted: bool) -> None:
    """Two of the five, then all of them, of what the two opened; and counts tell a little."""
    run, member = played("simple")
    few = np.isin(np.arange(40), np.flatnonzero(member)[:2])
    rows = np.flatnonzero(few[run.sightings.destination])
    ends = pair_successive(rows, run.truth.lane[rows])
    ends = thin_rows(ends[~member[run.truth.source[ends[:, 1]]]], 300)
    everyone = np.flatnonzero(member[run.sightings.destination])
    more = pair_successive(everyone, run.truth.lane[everyone])
    more = more[np.isin(more[:, 1], ends[:, 1])]
    ends = ends[np.isin(ends[:, 1], more[:, 1])]
    filtered = make_filter("simple", counted=counted)
    two, five = (filtered.infer_opened(logs("simple", pairs, who), who) for pairs, who in ((ends, few), (more, member)))
    assert five.max(axis=1).mean() > two.max(axis=1).mean() + 0.02
    assert hits("simple", five, more[:, 1]).mean() > hits("simple", two, ends[:, 1]).mean()


def test_a_destination_with_a_memory_knows_more() -> None:
    """Twice what return time and last hop tell, and calibrated."""
    found = audit(scheme("simple"), SETTINGS, observers="last-hop,memory", scored_by_filter=ROWS)
    row = found["memory"].overall
    low, high = found["memory"].interval
    assert low < row["top_posterior"] < high
    assert low > found["last-hop"].hit_ratio


def test_a_relay_is_certain_as_often_as_the_chain_says() -> None:
    """On trees, hubs and regular graphs, for walks that turn and those that do not."""
    hubs = barabasi_albert(40, 2, seed=1)
    for graph, kind in ((hubs, "simple"), (hubs, "metropolis"), (scheme("simple").graph, "lazy")):
        one = choose_scheme(graph, "uniform-node", support=(2, 3), walk=kind)
        facts = audit(one, updates=100_000, observers="neighbour", scored_by_filter=50)["neighbour"].scored.facts
        predicted = one.certain_to_a_relay()
        assert predicted is not None
        assert facts["certain_to_a_relay"] == pytest.approx(predicted, abs=4 * (0.25 / 100_000) ** 0.5)
    straight = choose_scheme(hubs, "uniform-node", support=(2, 3), walk="non-backtracking")
    assert straight.certain_to_a_relay() == 0.0


def test_linked_updates_compose() -> None:
    """Each doubling names more, for the coalition and for one relay; four of the coalition's name most."""
    asked = "linked-neighbour,linked-coalition"
    found = audit(scheme("simple"), SETTINGS, observers=asked, scored_by_filter=ROWS)
    for one in found.findings.values():
        ratios = [row["hit_ratio"] for row in one.by_linked_updates]
        assert ratios == sorted(ratios)
        for row in one.by_linked_updates:
            low, high = row["hit_ratio_interval"]
            assert low - 0.03 < row["top_posterior"] < high + 0.03
    four = next(row for row in found["linked-coalition"].by_linked_updates if row["linked"] == 4)
    assert four["hit_ratio"] > 0.7


def test_spread_colluders_are_far_apart() -> None:
    """Nobody is chosen twice, and the nearest two are farther apart than random ones ever are."""
    graph = random_regular(60, 3, seed=1)
    apart = distances(graph).astype(np.int64) + 60 * np.eye(60, dtype=np.int64)
    nearest = {
        placement: [
            int(apart[np.ix_(chosen, chosen)].min())
            for seed in range(10)
            if len(set((chosen := choose_colluders(graph, 8, seed, placement=placement)).tolist())) == 8
        ]
        for placement in ("random", "spread")
    }
    assert len(nearest["spread"]) == len(nearest["random"]) == 10
    assert min(nearest["spread"]) > max(nearest["random"])
    with pytest.raises(InvalidParameterError, match=r"^placement = 'near'"):
        AuditSettings(placement="near")
