"""The filter by sampled paths on played runs: calibrated, better than who knows less, and better than its mutants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.helpers.known_runs import know

from veilwalk.audit import AuditSettings, choose_colluders, estimate_over_lanes
from veilwalk.audit._filter import MemberLog, SampledFilter, record_segments
from veilwalk.audit._members import pair_successive, thin_rows
from veilwalk.audit._play import Run, play_updates
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import random_regular

SETTINGS = AuditSettings(updates=20_000, seed=11, colluders=5)
GRAPH = random_regular(40, 3, seed=1)
WALKS = ("simple", "non-backtracking")
ROWS = 600


def scheme(kind: str, recipients: int = 4) -> Scheme:
    """RRG(40, 3), sealed for four at distance 3 or more."""
    return Scheme(GRAPH, choose_scheme(GRAPH, "far:3").law, Walk(kind), recipients=recipients)


@cache
def played(kind: str) -> tuple[Run, BoolArray, IntArray]:
    """Return a run, its five colluders, and openings by them of what somebody else made."""
    colluders = choose_colluders(GRAPH, 5, SETTINGS.seed)
    run, member = play_updates(scheme(kind), SETTINGS, colluders), np.isin(np.arange(40), colluders)
    rows = np.flatnonzero(member[run.sightings.destination])
    ends = pair_successive(rows, run.truth.lane[rows])
    return run, member, thin_rows(ends[~member[run.truth.source[ends[:, 1]]]], ROWS)


@cache
def watched(kind: str) -> list[MemberLog]:
    """Return what the colluders saw."""
    run, member, ends = played(kind)
    return record_segments(know(scheme(kind), SETTINGS, run), ends, member)


def guesses(kind: str, logs: list[MemberLog], *, recipients: int = 4, own_draws: bool = True) -> FloatArray:
    """Return what they infer."""
    one = scheme(kind, recipients)
    filtered = SampledFilter(one, counted=True, particles=300, own_draws=own_draws)
    return filtered.infer_opened(logs, played(kind)[1])


def hits(weights: FloatArray, source: IntArray) -> FloatArray:
    """Where the first guess is the source, ties shared."""
    mine, top = weights[np.arange(len(source)), source], weights.max(axis=1)
    return np.where(mine == top, 1.0 / (weights == top[:, np.newaxis]).sum(axis=1), 0.0)


def surprise(weights: FloatArray, source: IntArray) -> FloatArray:
    """Minus the logarithm of the true source's weight: on average least for the exact posterior."""
    return -np.log(np.maximum(weights[np.arange(len(source)), source], 1e-3))


@pytest.mark.parametrize("kind", WALKS)
def test_it_is_calibrated_and_its_mutants_are_worse(kind: str) -> None:
    """Mutants: who forgets own draws, or takes one recipient for all there are."""
    run, _, ends = played(kind)
    logs, source, lanes = watched(kind), run.truth.source[ends[:, 1]], run.truth.lane[ends[:, 1]]
    found = guesses(kind, logs)
    miss = estimate_over_lanes(found.max(axis=1) - hits(found, source), lanes)
    assert miss.low < 0.0 < miss.high
    mutants = {
        "forgetful": guesses(kind, logs, own_draws=False),
        "one recipient": guesses(kind, [replace(log, recipients=log.recipients[:1]) for log in logs], recipients=1),
    }
    assert hits(mutants["forgetful"], source).mean() < hits(found, source).mean()
    for name, weights in mutants.items():
        worse = estimate_over_lanes(surprise(weights, source) - surprise(found, source), lanes)
        assert worse.low > 0.0, name


@pytest.mark.parametrize("kind", WALKS)
def test_who_knows_more_is_never_worse(kind: str) -> None:
    """Two of five colluders know less than all five, of what those two opened."""
    run, member, ends = played(kind)
    few = np.isin(np.arange(40), np.flatnonzero(member)[:2])
    rows = np.flatnonzero(few[run.sightings.destination])
    own = pair_successive(rows, run.truth.lane[rows])
    own = thin_rows(own[np.isin(own[:, 1], ends[:, 1])], 150)
    logs = record_segments(know(scheme(kind), SETTINGS, run), own, few)
    one = scheme(kind)
    source, lanes = run.truth.source[own[:, 1]], run.truth.lane[own[:, 1]]
    less = SampledFilter(one, counted=True, particles=300).infer_opened(logs, few)
    all_logs = [log for log, last in zip(watched(kind), ends[:, 1], strict=True) if last in set(own[:, 1])]
    more = guesses(kind, all_logs)
    gain = estimate_over_lanes(surprise(less, source) - surprise(more, source), lanes)
    assert gain.low > 0.0
    assert hits(more, source).mean() > hits(less, source).mean()


def smooth(kind: str, logs: list[MemberLog], *, shares_keys: bool) -> tuple[FloatArray, IntArray]:
    """Return the makers of all updates of these segments, and their rows."""
    filtered = SampledFilter(scheme(kind), counted=True, particles=300, shares_keys=shares_keys)
    return filtered.infer_all(logs, played(kind)[1])


@pytest.mark.parametrize("kind", WALKS)
def test_smoothing_is_calibrated_and_never_worse_than_filtering(kind: str) -> None:
    """Paired on the same updates: before and after beats before, shared keys beat none, and the unheld is no secret.

    The mutant shares keys and believes that no member is a recipient of anything.
    """
    run, member, ends = played(kind)
    few, known = thin_rows(ends, 120), know(scheme(kind), SETTINGS, run)
    logs = record_segments(known, few, member)
    keyed = record_segments(known, few, member, shares_keys=True)
    weights, rows = smooth(kind, logs, shares_keys=False)
    shared, _ = smooth(kind, keyed, shares_keys=True)
    source, lanes = run.truth.source[rows], run.truth.lane[rows]
    unheld = ~np.isin(rows, np.concatenate([log.row for log in logs]))
    for posterior in (weights, shared):
        for part in (np.ones(len(rows), dtype=np.bool_), unheld):
            found = posterior[part]
            miss = estimate_over_lanes(found.max(axis=1) - hits(found, source[part]), lanes[part])
            assert miss.low - 0.01 < 0.0 < miss.high + 0.01
    filtered, at = SampledFilter(scheme(kind), counted=True, particles=300).infer_first_sights(logs, member)
    places = np.searchsorted(rows, at)

    def gain(worse: FloatArray, better: FloatArray, among: IntArray) -> float:
        """Return the lower end of what is gained."""
        surprises = surprise(worse, source[among]) - surprise(better, source[among])
        return estimate_over_lanes(surprises, lanes[among]).low

    every = np.arange(len(rows))
    assert gain(filtered, weights[places], places) > 0.0
    assert gain(weights, shared, every) > 0.0
    blind = np.tile(np.where(member, 0.0, 1.0 / (~member).sum()), (int(unheld.sum()), 1))
    assert gain(blind, weights[unheld], np.flatnonzero(unheld)) > 0.0
    deaf = [replace(log, shared=np.where(np.arange(log.shared.shape[1]) < 0, log.shared, -1)) for log in keyed]
    assert gain(smooth(kind, deaf, shares_keys=True)[0], shared, every) > 0.0
