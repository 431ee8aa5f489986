"""Blank legs and small networks: against plays and tables made here, and what an active maker may still do."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.present import present

from veilwalk.audit import warn_few_members
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.stats import Estimate
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import Scheme, choose_scheme, design, evaluate_scheme, recommend, save_scheme
from veilwalk.design._openings import estimate_coalition
from veilwalk.graphs import Graph, complete, random_regular, ring

STRAIGHT = Walk("non-backtracking")
SMALL = random_regular(12, 3, seed=3)


def legs_of(scheme: Scheme, updates: int, tokens: int = 1) -> np.ndarray:
    """Play and sort by token."""
    records = np.concatenate(list(scheme.iter_updates(updates=updates, seed=5, tokens=tokens, replicas=1)))
    return records[np.argsort(records["token"], kind="stable")]


def test_without_blank_legs_a_play_is_what_it_was() -> None:
    """To the last bit."""
    scheme = choose_scheme(SMALL, "far:2", walk=STRAIGHT, recipients=2)
    trained = np.concatenate(list(scheme.iter_trained(updates=500, seed=5)))
    assert np.array_equal(trained, legs_of(scheme, 500))


@pytest.mark.parametrize("tokens", [1, 3])
def test_updates_are_runs_of_legs(tokens: int) -> None:
    """Each from a maker to the next, by as many legs as a coin takes; makers follow each other, and no hop is lost."""
    scheme = choose_scheme(SMALL, "far:2", walk=STRAIGHT, recipients=2, train_probability=0.5)
    trained = np.concatenate(list(scheme.iter_trained(updates=3_000, seed=5, tokens=tokens)))
    assert len(trained) == 3_000
    legs = legs_of(scheme, 9_000, tokens)
    n_legs = []
    for token in range(tokens):
        updates, all_legs = trained[trained["token"] == token], legs[legs["token"] == token]
        assert np.array_equal(updates["source"][1:], updates["destination"][:-1])
        ends = np.searchsorted(all_legs["clock"], updates["clock"])
        assert np.array_equal(all_legs["clock"][ends], updates["clock"])
        assert np.array_equal(all_legs["last_hop"][ends], updates["last_hop"])
        assert updates["leg_hops"].sum() == all_legs["leg_hops"][: ends[-1] + 1].sum()
        n_legs += np.diff(ends, prepend=-1).tolist()
    # Geometric: mean 2, variance 2; a mutant that always trains has the mean 1.
    assert np.mean(n_legs) == pytest.approx(2.0, abs=4 * math.sqrt(2.0 / len(n_legs)))
    assert np.mean(np.array(n_legs) == 1) == pytest.approx(0.5, abs=0.04)
    again = np.concatenate(list(scheme.iter_trained(updates=3_000, seed=5, tokens=tokens)))
    assert np.array_equal(again, trained)


def _next_makers(scheme: Scheme, chance: float) -> tuple[float, float]:
    """The best guess of who trains next by set, and the price, by powers of absorbing chains over every set."""
    size, recipients = scheme.graph.n_nodes, scheme.recipients
    adjacent = np.array([[node in scheme.graph.neighbours(row) for node in range(size)] for row in range(size)])
    moves = adjacent / adjacent.sum(axis=1, keepdims=True)
    opens, hops, laws = np.zeros((size, size)), np.zeros(size), []
    for source in range(size):
        choices = np.flatnonzero(scheme.law.matrix[[source]].toarray()[0])
        sets = list(itertools.combinations(choices, recipients))
        for chosen in map(list, sets):
            rest = np.setdiff1d(np.arange(size), chosen)
            visits = np.linalg.solve((np.eye(len(rest)) - moves[np.ix_(rest, rest)]).T, (rest == source).astype(float))
            law = np.zeros(size)
            law[chosen] = visits @ moves[np.ix_(rest, chosen)]
            opens[source] += law / len(sets)
            hops[source] += visits.sum() / len(sets)
            laws.append((source, 1 / len(sets), law))
    prior = np.linalg.matrix_power(opens, 300)[0]
    makers = sum(chance * (1 - chance) ** blank * np.linalg.matrix_power(opens, blank + 1) for blank in range(200))
    guess = sum(
        prior[source] * weight * (chance * law + (1 - chance) * law @ makers).max() for source, weight, law in laws
    )
    return float(guess), float(prior @ hops / chance)


@pytest.mark.parametrize("chance", [0.5, 0.2])
def test_blank_legs_are_priced_and_hide_who_trains_next(chance: float) -> None:
    """A mutant that divides the guess by the legs, or the price not at all, is told apart."""
    scheme = choose_scheme(SMALL, "far:2", recipients=2, train_probability=chance)
    guess, price = _next_makers(scheme, chance)
    result = evaluate_scheme(scheme, colluders=[])
    assert result.price.hops == pytest.approx(price, rel=1e-9)
    assert scheme.price.hops == pytest.approx(price, rel=1e-9)
    assert present(result.exposure.predecessor_guess).mean == pytest.approx(guess, rel=1e-9)
    plain = evaluate_scheme(choose_scheme(SMALL, "far:2", recipients=2), colluders=[])
    assert guess > chance * present(plain.exposure.predecessor_guess).mean + 0.01
    assert result.summary()["train_probability"] == chance
    # Who seals for one victim knows the next maker for certain, and now in no more than so many cases and a few.
    assert "blank" in repr(scheme)


def test_files_carry_the_defences(tmp_path: Path) -> None:
    """And what is given beside a file goes before it."""
    path = tmp_path / "scheme.npz"
    save_scheme(path, choose_scheme(SMALL, "far:2", recipients=3, train_probability=0.5, most_updates=40))
    stored = choose_scheme(SMALL, path)
    assert (stored.recipients, stored.train_probability, stored.most_updates) == (3, 0.5, 40)
    assert choose_scheme(SMALL, path, train_probability=1.0).train_probability == 1.0
    save_scheme(path, choose_scheme(SMALL, "far:2", recipients=3))
    assert (choose_scheme(SMALL, path).train_probability, choose_scheme(SMALL, path).most_updates) == (1.0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("train_probability", 0.0), ("train_probability", 1.5), ("train_probability", math.nan), ("most_updates", -1)],
)
def test_bad_defences_are_refused(name: str, value: float) -> None:
    """In one line, by name."""
    with pytest.raises(InvalidParameterError) as refused:
        choose_scheme(SMALL, "far:2", **{name: value})  # type: ignore[arg-type]
    assert refused.value.name == name
    with pytest.raises(InvalidParameterError, match="train_probability"):
        design(SMALL, "far:2", train_probability=0.5)


@pytest.mark.parametrize(("recipients", "worst", "within"), [(1, 0.717, 0.01), (4, 1.0, 0.001)])
def test_the_worst_case_of_an_opener_includes_its_return_time(recipients: int, worst: float, within: float) -> None:
    """On 14 nodes the auditor says 69.5% [63, 76] and 100%; last hops alone say 13% and 30%."""
    scheme = choose_scheme("rrg:14:3:seed=1", "far:2", walk=STRAIGHT, recipients=recipients)
    exposure = evaluate_scheme(scheme, colluders=[]).exposure
    assert present(exposure.worst_percent_hit_ratio).mean == pytest.approx(worst, abs=within)
    assert present(exposure.return_hit_ratio).mean > present(exposure.hit_ratio).mean


def test_played_return_times_agree_with_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one recipient both exist; a mutant that forgets return times says 12%."""
    scheme = choose_scheme("rrg:14:3:seed=1", "far:2", walk=STRAIGHT)
    exact = evaluate_scheme(scheme, colluders=[]).exposure
    monkeypatch.setattr("veilwalk.design._openings._CHANNEL_ARCS", 0)
    played = evaluate_scheme(scheme, colluders=[]).exposure
    for name in ("return_hit_ratio", "worst_percent_hit_ratio"):
        estimate: Estimate = present(getattr(played, name))
        assert estimate.low - 0.01 < present(getattr(exact, name)).mean < estimate.high + 0.01


def test_few_members_get_the_best_of_any_network_and_are_warned() -> None:
    """Twelve sites: all linked keeps most; two that collude learn so much that noise is better."""
    search = recommend(members=12)
    assert search.meets_floor
    assert search.scheme.graph.digest == complete(12).digest
    assert {row.scheme.graph.digest for row in search.candidates} == {
        complete(12).digest,
        random_regular(12, 3, seed=0).digest,
    }
    assert "--epsilon" in str(warn_few_members(search.scheme))
    assert recommend(members=4).scheme.graph.digest == complete(4).digest
    assert warn_few_members(choose_scheme(random_regular(22, 3, seed=1))) is None
    with pytest.raises(InvalidParameterError, match="members"):
        recommend(members=2)


def test_two_neighbours_on_a_ring_name_whom_they_enclose() -> None:
    """Three members in a ring of five: the two colluders know the third that lies alone between them.

    A mutant that looks at first sights alone names fewer.
    """
    line = str(warn_few_members(choose_scheme(ring(5), "far:2", walk=SIMPLE)))
    assert int(re.findall(r"name it in (\d+)%", line)[0]) > 90


def test_two_of_fourteen_are_the_strongest_coalition() -> None:
    """The interval has the mean of single audits, 39 to 50%; a mutant that looks at first sights names a seventh."""
    scheme = choose_scheme("rrg:14:3:seed=1", "far:2", walk=STRAIGHT, recipients=4)
    line = str(warn_few_members(scheme))
    low, high = map(int, re.findall(r"name it in (\d+)% to (\d+)%", line)[0])
    assert 35 < low < 47 < high < 60


def test_what_members_read_who_share_keys() -> None:
    """A tenth of 300: as the audit counts it, 63.4%, by other draws; who opens alone is 10%, what they hold is 76%."""
    graph = random_regular(300, 3, seed=1)
    for recipients, share in ((1, 0.102), (16, 0.634)):
        scheme = choose_scheme(graph, "far:4", walk=STRAIGHT, recipients=recipients)
        _, _, read = estimate_coalition(scheme, 0.1, hops=scheme.price.hops)
        assert read.low - 0.02 < share < read.high + 0.02
        assert read.high - read.low < 0.08


def test_a_path_of_two_walks_is_no_network() -> None:
    """Two members have nobody to hide among; a star of three does, badly."""
    star = choose_scheme(Graph.from_edges(3, np.array([[0, 1], [0, 2]])))
    assert star.law.name == "far:1"
    assert star.price.kind == "exact"
