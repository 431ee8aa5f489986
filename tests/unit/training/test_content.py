"""Attackers who look at content: what each names, how far its posterior can be trusted, and what noise leaves them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from veilwalk.core.arrays import FloatArray
from veilwalk.training import (
    Evidence,
    Scenario,
    TrainSettings,
    attacked_rows,
    content_attack,
    gather_evidence,
    route_anonymity,
)

BASE = TrainSettings(graph="rrg:30:3:seed=1", support="2:3", updates=500, attack=140)
HOWS = {
    "batch 32": BASE,
    "local steps": replace(BASE, learner="softmax:learning_rate=0.1:local_steps=5:batch_size=8"),
    "some noise": replace(BASE, clip=0.1, noise=0.3),
    "much noise": replace(BASE, clip=0.1, noise=100.0),
}


@cache
def route() -> FloatArray:
    scenario = Scenario.of(BASE)
    trace = scenario.trace("private-walk", updates=BASE.updates, seed=BASE.seed)
    return route_anonymity(scenario.scheme, trace, attacked_rows(trace, BASE.attack), seed=BASE.seed).posteriors


@cache
def gathered(how: str) -> tuple[Scenario, Evidence]:
    scenario = Scenario.of(HOWS[how])
    trace = scenario.trace("private-walk", updates=BASE.updates, seed=BASE.seed)
    return scenario, gather_evidence(scenario, trace, attacked_rows(trace, BASE.attack), seed=BASE.seed)


@cache
def attackers(how: str) -> dict[str, dict[str, Any]]:
    return {row["attacker"]: row for row in content_attack(*gathered(how), route())}


@pytest.mark.parametrize("how", ["batch 32", "local steps"])
@pytest.mark.parametrize("label", ["route and content: gradient", "content alone: gradient"])
def test_the_update_itself_names_its_maker(how: str, label: str) -> None:
    """A sampled batch and several local steps are no protection; it stands first."""
    assert attackers(how)[label]["hit_ratio"] > 0.98
    assert next(iter(attackers(how))).endswith("gradient")


def test_counting_beats_what_the_receiver_had() -> None:
    """With nothing but its own last model: far more than the fall of the loss, less than with the model before."""
    found = attackers("batch 32")
    assert found["route and content: count"]["hit_ratio"] > found["route and content: drop"]["hit_ratio"] + 0.1
    assert found["content alone: count"]["hit_ratio"] > found["content alone: drop"]["hit_ratio"] + 0.1
    assert found["route and content: count"]["hit_ratio"] < found["route and content: gradient"]["hit_ratio"] - 0.1


@pytest.mark.parametrize("how", HOWS)
def test_whoever_knows_more_does_no_worse(how: str) -> None:
    """Than the route alone, by more than chance, with any evidence; the strongest is first."""
    found = attackers(how)
    ratios = [row["hit_ratio"] for row in found.values()]
    assert ratios == sorted(ratios, reverse=True)
    for name in ("gradient", "step", "count", "drop"):
        assert found[f"route and content: {name}"]["hit_ratio"] >= found["route alone"]["hit_ratio"] - 0.03
        assert (
            found[f"route and content: {name}"]["node_entropy_nats"] <= found["route alone"]["node_entropy_nats"] + 0.01
        )
        assert "data" in found[f"content alone: {name}"]["granted"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", ["gradient", "count"])
def test_posteriors_promise_what_they_hold(how: str, name: str) -> None:
    """The mean of the largest weight is the hit ratio, within its interval."""
    row = attackers(how)[f"route and content: {name}"]
    low, high = row["hit_ratio_interval"]
    assert low <= row["mean_top_posterior"] <= high


def test_noise_leaves_what_the_route_says() -> None:
    """Some takes part of it away; much takes all."""
    some, much = attackers("some noise"), attackers("much noise")
    alone = much["route alone"]["hit_ratio"]
    assert some["route and content: gradient"]["hit_ratio"] > 0.4
    for name in ("gradient", "count"):
        assert much[f"route and content: {name}"]["hit_ratio"] == pytest.approx(alone, abs=0.03)
        assert much[f"content alone: {name}"]["hit_ratio"] < 0.12


def test_evidence_for_the_wrong_candidates_is_worth_nothing() -> None:
    """Scores shuffled over the candidates are found out by their temperature, and name nobody."""
    scenario, evidence = gathered("batch 32")
    rng, shuffled = np.random.default_rng(4), {}
    for part, values in evidence.by_name.items():
        shuffled[part] = values.copy()
        for row in shuffled[part]:
            candidates = np.flatnonzero(np.isfinite(row))
            row[candidates] = row[rng.permutation(candidates)]
    found = {row["attacker"]: row for row in content_attack(scenario, Evidence(shuffled, evidence.sources), route())}
    for name in ("gradient", "count", "step"):
        assert found[f"content alone: {name}"]["hit_ratio"] < 0.12
        assert found[f"route and content: {name}"]["hit_ratio"] < found["route alone"]["hit_ratio"] + 0.05


def test_several_tokens_are_counted_each_for_itself() -> None:
    """Whoever has only had another token has no difference to take apart: all candidates alike."""
    settings = replace(BASE, tokens=3, updates=150)
    scenario = Scenario.of(settings)
    trace = scenario.trace("private-walk", updates=150, seed=settings.seed, tokens=3)
    rows = attacked_rows(trace, 60)
    counts = gather_evidence(scenario, trace, rows, seed=settings.seed).by_name["count"]
    for row, found in zip(rows, counts, strict=True):
        earlier = (trace.node[:row] == trace.node[row]) & (trace.model[:row] == trace.model[row])
        assert (np.ptp(found[np.isfinite(found)]) > 0) == earlier.any()


def test_it_says_how_far_it_is() -> None:
    """By candidates tried, which are many for each delivery; the last word is all of them."""
    told: list[tuple[str, int, int]] = []
    scenario = Scenario.of(BASE)
    trace = scenario.trace("private-walk", updates=150, seed=BASE.seed)
    rows = attacked_rows(trace, 20)
    gather_evidence(
        scenario,
        trace,
        rows,
        seed=7,
        progress=lambda *said: told.append(said[:3]),
    )
    assert told[-1] == ("content attack", 20 * 6 * 30, 20 * 6 * 30)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert len(told) >= 20 * 6
