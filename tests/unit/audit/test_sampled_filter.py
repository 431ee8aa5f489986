"""The filter by sampled paths against a twin that carries every story along, and against the exact filter."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from tests.helpers.token_stories import GRAPH, LAW, Twin, members

from veilwalk.audit import AuditSettings, audit, choose_colluders, play
from veilwalk.audit.inference.filter import Filter, MemberLog, segments
from veilwalk.audit.inference.sampled_filter import SampledFilter
from veilwalk.audit.observers._filtered import Filtered, FilteredAlone
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme, choose_scheme, far_law
from veilwalk.graphs import random_regular

SETTINGS = AuditSettings(updates=1_200, replicas=4, seed=5)
FAR = far_law(GRAPH, 2)
PATHS = 20_000


def following(
    scheme: Scheme, settings: AuditSettings, member: BoolArray, *, longest: int, most: int
) -> list[MemberLog]:
    """Return segments of a run that are not too long and end with what somebody else made."""
    run = play(scheme, settings)
    lanes, clock = run.truth.lane, run.seen.clock
    rows = np.flatnonzero(member[run.seen.destination])
    ends = np.array(
        [
            (first, last)
            for first, last in pairwise(rows)
            if lanes[first] == lanes[last] and last > first + 1 and clock[last] - clock[first] <= longest
        ][:most]
    )
    return segments(scheme, settings, seen=run.seen, lanes=lanes, ends=ends, member=member)


def apart(one: FloatArray, other: FloatArray | list[FloatArray]) -> FloatArray:
    """Return the total variation between posteriors, row by row."""
    return np.asarray(np.abs(one - np.array(other)).sum(axis=1) / 2)


def sampled(scheme: Scheme, *, counted: bool, own_draws: bool = True, particles: int = PATHS) -> SampledFilter:
    """Return the filter with many paths."""
    return SampledFilter(scheme, scheme.chain.states, counted=counted, particles=particles, own_draws=own_draws)


@pytest.mark.parametrize(
    ("kind", "law", "recipients", "counted"),
    [
        ("simple", LAW, 1, True),
        ("lazy", LAW, 1, False),
        ("non-backtracking", LAW, 1, True),
        ("simple", FAR, 2, True),
        ("metropolis", FAR, 2, False),
        ("non-backtracking", FAR, 3, True),
    ],
)
def test_sampled_paths_give_what_all_stories_give(
    kind: str, law: DestinationLaw, recipients: int, counted: bool
) -> None:
    """For one recipient and for several; stories in which sets are redrawn at every hop are told apart."""
    scheme, member = Scheme(GRAPH, law, Walk(kind), recipients=recipients), members(2, 8)
    logs = following(scheme, SETTINGS, member, longest=24, most=5)
    assert len(logs) == 5
    found = sampled(scheme, counted=counted).opened(logs, member)
    told = [Twin(kind, law, recipients, counted=counted).answers(log, member) for log in logs]
    assert apart(found, [weights for weights, _ in told]).max() < 0.02
    mutant = Twin(kind, law, recipients, counted=counted, redrawn=True)
    assert apart(found, [mutant.answers(log, member)[0] for log in logs]).max() > 0.05
    first, rows = sampled(scheme, counted=False).first_sights(logs, member)
    assert len(first) == len(rows) > 0
    assert apart(first, [weights for _, sights in told for weights in sights]).max() < 0.02


@cache
def small() -> tuple[Scheme, AuditSettings, BoolArray]:
    """RRG(60, 3), the paper's scheme, six colluders."""
    graph, settings = random_regular(60, 3, seed=1), AuditSettings(updates=4_000, seed=3, replicas=8)
    member = np.isin(np.arange(60), choose_colluders(graph, 6, settings.seed))
    return choose_scheme(graph, "paper", support=(2, 4)), settings, member


def test_for_one_recipient_it_is_the_exact_filter_but_for_noise() -> None:
    """Also on segments of thousands of hops; and who forgets its own draws is told apart."""
    scheme, settings, member = small()
    logs = following(scheme, settings, member, longest=10**9, most=12)
    exact = Filter(scheme.chain.states, scheme.law.matrix, counted=True).opened(logs, member)
    few, many = (sampled(scheme, counted=True, particles=n).opened(logs, member) for n in (100, 1_000))
    assert apart(many, exact).mean() < 0.05
    assert apart(many, exact).mean() < apart(few, exact).mean()
    forgetful = sampled(scheme, counted=True, own_draws=False, particles=1_000).opened(logs, member)
    assert apart(forgetful, exact).mean() > 0.1


def test_answers_depend_on_the_seed_and_on_nothing_else() -> None:
    """The same again to the last digit, whatever the threads; other paths with another seed."""
    scheme, settings, member = small()
    logs = following(scheme, settings, member, longest=400, most=4)
    once, again = (sampled(scheme, counted=False, particles=50).held(logs, member) for _ in range(2))
    np.testing.assert_array_equal(once[0], again[0])
    np.testing.assert_array_equal(once[1], again[1])
    other = SampledFilter(scheme, scheme.chain.states, counted=False, particles=50, seed=9)
    assert (other.held(logs, member)[0] != once[0]).any()


def test_every_ciphertext_that_was_held_is_answered_once() -> None:
    """By when it was last held; the one at the end by its opening."""
    scheme, settings, member = small()
    logs = following(scheme, settings, member, longest=400, most=4)
    filtered = sampled(scheme, counted=False, particles=50)
    weights, rows = filtered.held(logs, member)
    expected: list[IntArray] = [log.row[log.new] for log in logs]
    np.testing.assert_array_equal(rows, np.concatenate(expected))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert filtered.lost == 0.0
    assert not weights[:, member].any()


def test_observers_of_several_recipients_say_that_paths_were_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With how many; no relay is certain where the token does not turn; of all updates fewer are named than of opened.

    The mutant of a coalition that is asked about what it opened only would expect to name as many of all.
    """
    for kind in (Filtered, FilteredAlone):
        monkeypatch.setattr(kind, "particles", 60)
    graph = random_regular(40, 3, seed=1)
    several = Scheme(graph, far_law(graph, 3), Walk("non-backtracking"), recipients=4)
    asked = "memory,neighbour,coalition,linked-coalition"
    found = audit(several, observers=asked, updates=4_000, colluders=5, scored_by_filter=64)
    for name in ("memory", "neighbour", "coalition"):
        assert found[name].how == "estimated: sampled paths, 60 at a time"
        assert found[name].scored.facts["particles"] == 60
    assert found["neighbour"].scored.facts["certain_to_a_relay"] == 0.0
    facts = found["coalition"].scored.facts
    assert 0.4 < facts["held_of_all"] < 1.0
    assert facts["expected_hits_of_all"] < 0.9 * found["coalition"].overall["top_posterior"]
    assert [row["linked"] for row in found["linked-coalition"].by_linked_updates][:2] == [1, 2]


def test_what_would_take_hours_is_refused() -> None:
    """One relay of a thousand, followed through a thousand legs of a thousand hops."""
    large = choose_scheme(random_regular(1_000, 3, seed=1), "uniform-node", support=(2, 6))
    with pytest.raises(InvalidParameterError, match="observers = 'memory'"):
        audit(large, observers="memory", updates=10)
