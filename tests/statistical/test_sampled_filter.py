"""The filter by sampled paths on played runs: calibrated, better than who knows less, and better than its mutants."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veilwalk.audit import AuditSettings, Run, choose_colluders, estimate, play
from veilwalk.audit.inference.filter import MemberLog, segments
from veilwalk.audit.inference.sampled_filter import SampledFilter
from veilwalk.audit.observers._filtered import following, thinned
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme, far_law
from veilwalk.graphs import random_regular

SETTINGS = AuditSettings(updates=20_000, seed=11, colluders=5)
GRAPH = random_regular(40, 3, seed=1)
WALKS = ("simple", "non-backtracking")
ROWS = 600


def scheme(kind: str, recipients: int = 4) -> Scheme:
    """RRG(40, 3), sealed for four at distance 3 or more."""
    return Scheme(GRAPH, far_law(GRAPH, 3), Walk(kind), recipients=recipients)


@cache
def played(kind: str) -> tuple[Run, BoolArray, IntArray]:
    """Return a run, its five colluders, and openings by them of what somebody else made."""
    colluders = choose_colluders(GRAPH, 5, SETTINGS.seed)
    run, member = play(scheme(kind), SETTINGS, colluders), np.isin(np.arange(40), colluders)
    rows = np.flatnonzero(member[run.seen.destination])
    ends = following(rows, run.truth.lane[rows])
    return run, member, thinned(ends[~member[run.truth.source[ends[:, 1]]]], ROWS)


@cache
def watched(kind: str) -> list[MemberLog]:
    """Return what the colluders saw."""
    run, member, ends = played(kind)
    return segments(scheme(kind), SETTINGS, seen=run.seen, lanes=run.truth.lane, ends=ends, member=member)


def guesses(kind: str, logs: list[MemberLog], *, recipients: int = 4, own_draws: bool = True) -> FloatArray:
    """Return what they infer."""
    one = scheme(kind, recipients)
    filtered = SampledFilter(one, one.chain.states, counted=True, particles=300, own_draws=own_draws)
    return filtered.opened(logs, played(kind)[1])


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
    miss = estimate(found.max(axis=1) - hits(found, source), lanes)
    assert miss.low < 0.0 < miss.high
    mutants = {
        "forgetful": guesses(kind, logs, own_draws=False),
        "one recipient": guesses(kind, [replace(log, drawn=log.drawn[:1]) for log in logs], recipients=1),
    }
    assert hits(mutants["forgetful"], source).mean() < hits(found, source).mean()
    for name, weights in mutants.items():
        worse = estimate(surprise(weights, source) - surprise(found, source), lanes)
        assert worse.low > 0.0, name


@pytest.mark.parametrize("kind", WALKS)
def test_who_knows_more_is_never_worse(kind: str) -> None:
    """Two of five colluders know less than all five, of what those two opened."""
    run, member, ends = played(kind)
    few = np.isin(np.arange(40), np.flatnonzero(member)[:2])
    rows = np.flatnonzero(few[run.seen.destination])
    own = following(rows, run.truth.lane[rows])
    own = thinned(own[np.isin(own[:, 1], ends[:, 1])], 150)
    logs = segments(scheme(kind), SETTINGS, seen=run.seen, lanes=run.truth.lane, ends=own, member=few)
    one = scheme(kind)
    source, lanes = run.truth.source[own[:, 1]], run.truth.lane[own[:, 1]]
    less = SampledFilter(one, one.chain.states, counted=True, particles=300).opened(logs, few)
    all_logs = [log for log, last in zip(watched(kind), ends[:, 1], strict=True) if last in set(own[:, 1])]
    more = guesses(kind, all_logs)
    gain = estimate(surprise(less, source) - surprise(more, source), lanes)
    assert gain.low > 0.0
    assert hits(more, source).mean() > hits(less, source).mean()
