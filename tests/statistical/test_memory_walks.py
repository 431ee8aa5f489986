"""Observers that rehearse, against exact ones where there are such; and what does not turn back costs and hides."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
from scipy import stats

from veilwalk.audit import AuditSettings, audit, choose_colluders, make_plan
from veilwalk.audit._attack import fit_inference, grant_knowledge
from veilwalk.audit._play import play_updates
from veilwalk.core.progress import silent
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import parse_graph_spec

GRAPH = parse_graph_spec("rrg:60:3:seed=1")
Results = dict[str, dict[str, Any]]


def walking(walk: str) -> Scheme:
    """One law under any walk."""
    return choose_scheme(GRAPH, "uniform-node", support=(2, 4), walk=walk)


def all_but(walk: str, *left_out: str) -> tuple[str, ...]:
    """All observers that suit a walk that is rehearsed, but some."""
    names = make_plan(walking(walk), AuditSettings(posterior="rehearsed")).names
    return tuple(name for name in names if name not in left_out)


@cache
def results(walk: str, posterior: str, observers: tuple[str, ...]) -> Results:
    """Audit 100,000 updates with 8 colluders; the run is the same for every kind of posterior."""
    found = audit(walking(walk), observers=observers, updates=100_000, seed=5, colluders=8, posterior=posterior)
    return {name: found[name].report for name in found}


def inside(row: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    """Whether each mean lies in the other's interval."""
    low, high = row[f"{name}_interval"]
    other_low, other_high = other[f"{name}_interval"]
    return bool(low < other[name] < high and other_low < row[name] < other_high)


def calibrated(row: dict[str, Any]) -> bool:
    """Whether the top posterior lies in the 99.9% interval of the hit ratio."""
    low, high = row["hit_ratio_interval"]
    half = (high - low) / 2 * stats.t.ppf(0.9995, 63) / stats.t.ppf(0.975, 63)
    return bool(abs(row["top_posterior"] - row["hit_ratio"]) < half)


def test_rehearsed_first_sights_are_the_exact_ones() -> None:
    """On the simple walk: entropy and hit ratio within the exact one's interval and the other way round.

    The named mutant is the destination alone, by its last hop: it lies outside.
    """
    names = ("first-sight", "last-hop")
    exact, found = (results("simple", kind, names)["first-sight"]["overall"] for kind in ("exact", "rehearsed"))
    assert inside(exact, found, "node_entropy_nats")
    assert inside(exact, found, "hit_ratio")
    assert calibrated(found)
    other = results("simple", "exact", names)["last-hop"]["overall"]
    assert not inside(other, found, "node_entropy_nats")


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
@pytest.mark.parametrize("observer", ["return-time", "last-hop"])
def test_rehearsed_return_times_are_the_exact_ones(walk: str, observer: str) -> None:
    """Never below the exact entropy, above it by 0.003 nats overall and 0.05 in the shortest percent; the prior is not.

    Both score the same updates, so that sampling does not come between them.
    """
    names = ("prior", "return-time", "last-hop")
    exact, found = (results(walk, kind, names)[observer] for kind in ("exact", "rehearsed"))
    assert exact["posterior"] == "exact"
    assert found["posterior"].startswith("estimated from simulated walks")
    assert calibrated(found["overall"])
    assert found["overall"]["hit_ratio"] == pytest.approx(exact["overall"]["hit_ratio"], rel=0.04)
    mutant = results(walk, "exact", names)["prior"]
    truth, estimated, blind = (
        np.array([row["node_entropy_nats"] for row in (table["overall"], table["by_return_time"][0])])
        for table in (exact, found, mutant)
    )
    assert np.all(estimated - truth > -0.0005)
    assert np.all(estimated - truth < [0.003, 0.05])
    assert np.all(blind - truth > [0.003, 0.05])


def test_linked_updates_are_joined_from_rehearsed_likelihoods_too() -> None:
    """As from exact ones, within intervals; a single update tells less than four."""
    names = ("last-hop", "repeated")
    exact, found = (results("simple", kind, names)["repeated"]["by_linked_updates"] for kind in ("exact", "rehearsed"))
    for one, other in zip(exact[:3], found[:3], strict=True):
        assert one["linked"] == other["linked"]
        assert other["node_entropy_nats"] == pytest.approx(one["node_entropy_nats"], abs=0.01)
    assert found[2]["node_entropy_nats"] < found[0]["node_entropy_nats"] - 0.02


def test_every_observer_of_a_walk_that_does_not_turn_back_is_calibrated() -> None:
    """The top posterior is the hit ratio; who sees more is left with less."""
    walk = "non-backtracking"
    names = all_but(walk, "repeated", "linked-coalition", "linked-neighbour")
    found = results(walk, "rehearsed", names)
    for name in names:
        assert calibrated(found[name]["overall"]), name
    entropy = {name: found[name]["overall"]["node_entropy_nats"] for name in names}
    assert entropy["prior"] > entropy["return-time"] > entropy["last-hop"] > entropy["path"]


def test_colluders_and_path_learn_less_of_walks_that_do_not_turn_back() -> None:
    """First sight names fewer sources than against the simple walk, by more than the intervals."""
    names = ("first-sight", "last-hop")
    simple = results("simple", "exact", names)["first-sight"]
    found = results("non-backtracking", "rehearsed", names)["first-sight"]
    assert found["overall"]["hit_ratio_interval"][1] < simple["overall"]["hit_ratio_interval"][0]


def test_rehearsals_are_the_same_on_one_thread_and_two() -> None:
    """Every byte of the record; another seed gives another."""
    scheme = choose_scheme(GRAPH, "uniform-node", support=(2, 3), walk="non-backtracking")
    observers = ("return-time", "last-hop", "first-sight", "path")

    def record(seed: int, threads: int) -> str:
        before = numba.get_num_threads()
        numba.set_num_threads(min(threads, before))
        options: dict[str, Any] = {"posterior": "rehearsed", "rehearsed_hops": 20_000}
        found = audit(scheme, observers=observers, updates=1_000, seed=seed, colluders=6, **options)
        made = found.record().to_json()
        numba.set_num_threads(before)
        return made

    first = record(1, 1)
    assert first == record(1, 2)
    assert first != record(2, 2).replace('"seed": 2', '"seed": 1')


def test_impossible_sources_have_exactly_zero() -> None:
    """Colluders, nodes too far for the return time, and those that the law never has seal for one."""
    settings = AuditSettings(observers=("last-hop", "first-sight"), updates=5_000, colluders=8, posterior="rehearsed")
    plan = make_plan(walking("non-backtracking"), settings)
    run = play_updates(plan.scheme, settings, choose_colluders(plan.scheme.graph, 8, settings.seed))
    knowledge, seen, truth = grant_knowledge(plan, run), run.sightings, run.truth
    fit_inference(knowledge, plan.observers, silent)
    rehearsal = knowledge.rehearsal
    assert rehearsal is not None
    sights, deliveries = rehearsal.sights, rehearsal.deliveries
    assert sights is not None
    assert deliveries is not None
    member = np.isin(np.arange(60), run.colluders)
    rows = np.flatnonzero(member[seen.destination] & ~member[truth.source])[:200]
    never = knowledge.matrix[:, seen.destination[rows]].T == 0
    apart = knowledge.pair_distances.astype(np.int64)
    guess = sights.posterior(seen.take(rows)).weights
    assert np.all(guess[:, member] == 0)
    assert np.all(guess[never] == 0)
    assert np.all(guess[np.arange(len(rows)), truth.source[rows]] > 0)
    for row in rows[:50]:
        here, node = seen.take(np.array([row])), int(seen.destination[row])
        guess = deliveries.posterior(node, here, use_last_hop=True)[0]
        assert np.all(guess[2 * apart[node] > seen.return_time[row]] == 0)
        assert guess[truth.source[row]] > 0
