"""The filter by sampled paths against a twin that carries every story along, and against the exact filter."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from tests.helpers.known_runs import know
from tests.helpers.token_stories import GRAPH, LAW, Twin, members

from veilwalk.audit import AuditSettings, Coalition, audit, choose_colluders
from veilwalk.audit._coalitions import play_cheaters
from veilwalk.audit._filter import EVERY, ExactFilter, MemberLog, SampledFilter, record_segments
from veilwalk.audit._kernels_coalitions import GUESS, MAKER, ONE_VICTIM
from veilwalk.audit._members import FilterObserver, LoneObserver
from veilwalk.audit._play import play_updates
from veilwalk.core.arrays import BoolArray, FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme, choose_scheme
from veilwalk.graphs import random_regular

SETTINGS = AuditSettings(updates=1_200, replicas=4, seed=5)
FAR = choose_scheme(GRAPH, "far:2").law
PATHS = 20_000


def watched(scheme: Scheme, settings: AuditSettings, member: BoolArray, *, longest: int, most: int) -> list[MemberLog]:
    """Return segments of a run that are not too long and end with what somebody else made."""
    run = play_updates(scheme, settings)
    lanes, clock = run.truth.lane, run.sightings.clock
    rows = np.flatnonzero(member[run.sightings.destination])
    ends = np.array(
        [
            (first, last)
            for first, last in pairwise(rows)
            if lanes[first] == lanes[last] and last > first + 1 and clock[last] - clock[first] <= longest
        ][:most]
    )
    return record_segments(know(scheme, settings, run), ends, member)


def apart(one: FloatArray, other: FloatArray | list[FloatArray]) -> FloatArray:
    """Return the total variation between posteriors, row by row."""
    return np.asarray(np.abs(one - np.array(other)).sum(axis=1) / 2)


def sampled(scheme: Scheme, *, counted: bool, own_draws: bool = True, particles: int = PATHS) -> SampledFilter:
    """Return the filter with many paths."""
    return SampledFilter(scheme, counted=counted, particles=particles, own_draws=own_draws)


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
    logs = watched(scheme, SETTINGS, member, longest=24, most=5)
    assert len(logs) == 5
    found = sampled(scheme, counted=counted).infer_opened(logs, member)
    told = [Twin(kind, law, recipients, counted=counted).answers(log, member) for log in logs]
    assert apart(found, [weights for weights, _ in told]).max() < 0.02
    mutant = Twin(kind, law, recipients, counted=counted, redrawn=True)
    assert apart(found, [mutant.answers(log, member)[0] for log in logs]).max() > 0.05
    first, rows = sampled(scheme, counted=False).infer_first_sights(logs, member)
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
    logs = watched(scheme, settings, member, longest=10**9, most=12)
    exact = ExactFilter(scheme, distinct_counts=EVERY).infer_opened(logs, member)
    few, many = (sampled(scheme, counted=True, particles=n).infer_opened(logs, member) for n in (100, 1_000))
    assert apart(many, exact).mean() < 0.05
    assert apart(many, exact).mean() < apart(few, exact).mean()
    forgetful = sampled(scheme, counted=True, own_draws=False, particles=1_000).infer_opened(logs, member)
    assert apart(forgetful, exact).mean() > 0.1


def test_answers_depend_on_the_seed_and_on_nothing_else() -> None:
    """The same again to the last digit, whatever the threads; other paths with another seed."""
    scheme, settings, member = small()
    logs = watched(scheme, settings, member, longest=400, most=4)
    once, again = (sampled(scheme, counted=False, particles=50).infer_all(logs, member) for _ in range(2))
    np.testing.assert_array_equal(once[0], again[0])
    np.testing.assert_array_equal(once[1], again[1])
    other = SampledFilter(scheme, counted=False, particles=50, seed=9)
    assert (other.infer_all(logs, member)[0] != once[0]).any()


def test_every_update_is_answered_once() -> None:
    """Of those between two openings by members, but for the first, which a member made."""
    scheme, settings, member = small()
    logs = watched(scheme, settings, member, longest=400, most=4)
    filtered = sampled(scheme, counted=True, particles=50)
    weights, rows = filtered.infer_all(logs, member)
    np.testing.assert_array_equal(rows, np.concatenate([log.row[0] + 2 + np.arange(log.updates) for log in logs]))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert filtered.lost == 0.0
    assert not weights[:, member].any()


def test_observers_of_several_recipients_say_that_paths_were_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """With how many; no relay is certain where the token does not turn; the coalition answers for all honest updates.

    Members read more than they open, and hold more than they read.
    """
    for kind in (FilterObserver, LoneObserver):
        monkeypatch.setattr(kind.__init__, "__defaults__", (60, True))
    monkeypatch.setattr(Coalition.__init__, "__defaults__", (60, True, True))
    graph = random_regular(40, 3, seed=1)
    several = Scheme(graph, choose_scheme(graph, "far:3").law, Walk("non-backtracking"), recipients=4)
    asked = "memory,neighbour,coalition,linked-coalition"
    found = audit(several, observers=asked, updates=4_000, colluders=5, scored_by_filter=64)
    for name in ("memory", "neighbour", "coalition"):
        assert found[name].how == "estimated from 60 sampled paths"
        assert found[name].scored.facts["particles"] == 60
    assert found["neighbour"].scored.facts["certain_to_a_relay"] == 0.0
    report = found["coalition"].report
    shares = {row["of"]: row["share"] for row in report["by_knowledge"]}
    assert 0.0 < shares["opened"] < shares["read"] < 1.0 - shares["never held"]
    assert shares["read"] + shares["held, not read"] + shares["never held"] == pytest.approx(1.0)
    assert sum(row["updates"] for row in report["by_maker"][:-1]) == report["scored_updates"]
    linked = {(row["of"], row["linked"]) for row in found["linked-coalition"].by_linked_updates}
    assert {("opened", 2), ("read", 1), ("read", 2)} <= linked
    rows = {row["name"]: row["share"] for row in found.members}
    assert rows["opens"] == pytest.approx(5 / 40, abs=0.03)
    assert rows["reads"] > 1.5 * rows["opens"]
    assert rows["makes"] == pytest.approx(rows["reads"], abs=0.1)
    assert rows["active-maker"] > 0.7
    assert rows["eclipse-3"] == pytest.approx(1.0)
    assert rows["eclipse-2"] == pytest.approx(1 / 3)
    assert rows["eclipse-1"] == 0.0


def test_members_that_cheat_know_whom_they_seal_for() -> None:
    """The next maker, but where the path begins; honest members of the same run expect nobody.

    With the simple walk a relay that hands a ciphertext over and gets another one back knows who made it, too.
    """
    graph = random_regular(40, 3, seed=1)
    several = Scheme(graph, choose_scheme(graph, "far:3").law, Walk("non-backtracking"), recipients=4)
    member = np.isin(np.arange(40), choose_colluders(graph, 4, 7))
    victim = int(np.flatnonzero(~member)[0])
    run, lanes = play_cheaters(several, member, aim=ONE_VICTIM, victim=victim, updates=6_000)
    mine = run[:, MAKER] == victim
    assert (run[mine, GUESS] == victim).mean() > 0.7
    assert mine.mean() > 2.5 / 40
    assert set(np.unique(lanes)) <= set(range(32))
    honest, _ = play_cheaters(several, member, updates=6_000)
    assert (honest[:, GUESS] == -1).all()
    assert (honest[:, MAKER] == victim).mean() < 2.0 / 40
    blank, _ = play_cheaters(several, member, aim=ONE_VICTIM, victim=victim, updates=6_000, train_probability=0.5)
    expected = blank[:, GUESS] == victim
    assert (blank[expected, MAKER] == victim).mean() == pytest.approx(0.5, abs=0.06)
    turning = Scheme(graph, several.law, Walk("simple"), recipients=4)
    assert turning.eclipse_shares == pytest.approx({1: 1 / 9, 2: 4 / 9, 3: 1.0})
    assert several.eclipse_shares == pytest.approx({1: 0.0, 2: 1 / 3, 3: 1.0})
    # With more than eight neighbours each: one, two and all of them.
    everybody = choose_scheme("complete:12", "far:1", walk="non-backtracking")
    assert everybody.eclipse_shares == pytest.approx({1: 0.0, 2: 2 / 110, 11: 1.0})


def test_rounding_leaves_a_posterior() -> None:
    """Differences of equal weights came out a little below nothing here, and ended the audit."""
    scheme = choose_scheme("rrg:14:3:seed=1", "far:2", walk="non-backtracking", recipients=4)
    found = audit(scheme, observers="coalition", colluders=2, updates=60_000, scored_by_filter=300, seed=9)["coalition"]
    low, high = found.overall["hit_ratio_interval"]
    assert low < found.overall["top_posterior"] < high


def test_what_would_take_hours_is_refused() -> None:
    """One relay of a thousand, followed through a thousand legs of a thousand hops."""
    large = choose_scheme(random_regular(1_000, 3, seed=1), "uniform-node", support=(2, 6))
    with pytest.raises(InvalidParameterError, match="observers = 'memory'"):
        audit(large, observers="memory", updates=10)
