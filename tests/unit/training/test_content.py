"""Attackers who look at content: what each names, how far its posterior can be trusted, and what noise leaves them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from veilwalk.core.arrays import FloatArray
from veilwalk.learning import LinearLearner, Partition, Partitions, SoftmaxLearner, StepContext, train
from veilwalk.training import (
    Evidence,
    EvidenceCollector,
    Scenario,
    attacked_rows,
    content_attack,
    gather_evidence,
    make_spec,
    route_anonymity,
    run_training,
)
from veilwalk.training._content import linear_updates

BASE = make_spec(graph="rrg:30:3:seed=1", support="2:3", updates=500, attack=140)
HOWS = {
    "batch 32": BASE,
    "local steps": BASE.change(learner="softmax:learning_rate=0.1:local_steps=5:batch_size=8"),
    "some noise": BASE.change(clip=0.1, noise=0.3),
    "much noise": BASE.change(clip=0.1, noise=100.0),
}


@cache
def route() -> FloatArray:
    scenario = Scenario.from_spec(BASE)
    trace = scenario.trace("private-walk")
    return route_anonymity(scenario.scheme, trace, attacked_rows(trace, BASE.checks.attack)).posteriors


@cache
def gathered(how: str) -> tuple[Scenario, Evidence]:
    scenario = Scenario.from_spec(HOWS[how])
    trace = scenario.trace("private-walk")
    return scenario, gather_evidence(scenario, trace, attacked_rows(trace, BASE.checks.attack))


@cache
def attackers(how: str) -> dict[str, dict[str, Any]]:
    return {row["attacker"]: row for row in content_attack(*gathered(how), route())}


@pytest.mark.parametrize("how", ["batch 32", "local steps"])
@pytest.mark.parametrize("label", ["route and content: gradient", "content alone: gradient"])
def test_the_update_itself_names_its_maker(how: str, label: str) -> None:
    """A sampled batch and several local steps are no protection; it stands first."""
    assert attackers(how)[label]["hit_ratio"] > 0.98
    assert next(iter(attackers(how))).endswith("gradient")


@pytest.mark.parametrize("learner", [
    SoftmaxLearner(n_features=4, n_classes=3, learning_rate=0.5, batch_size=0, local_steps=5),
    LinearLearner(n_features=4, learning_rate=0.1, batch_size=0, local_steps=5),
])  # fmt: skip
def test_updates_of_all_candidates_together_are_those_of_each(learner: SoftmaxLearner | LinearLearner) -> None:
    """To rounding, for parts of different sizes, of which one is empty; one step less is another update."""
    source = np.random.default_rng(3)
    drawn = source.normal(size=(12, 4)).astype(np.float32)
    labels = source.integers(3, size=12) if learner.n_classes else source.normal(size=12).astype(np.float32)
    parts = Partitions.of_parts([Partition(drawn[a:b], labels[a:b]) for a, b in ((0, 1), (1, 1), (1, 7), (7, 12))])
    params = {name: value + np.float32(0.3) for name, value in learner.init_params(source).items()}
    context = StepContext(rng=source, step=0)
    single = [learner.update(params, part, context).params for part in parts]
    changes = np.stack([np.concatenate([(one[name] - params[name]).ravel() for name in params]) for one in single])
    np.testing.assert_allclose(linear_updates(learner, params, parts), changes, atol=1e-6)
    assert np.abs(changes[1]).max() == 0
    fewer = linear_updates(replace(learner, local_steps=4), params, parts)
    assert np.abs(fewer - changes).max() > 1e-3


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
    settings = BASE.change(walks=3, updates=150)
    scenario = Scenario.from_spec(settings)
    trace = scenario.trace("private-walk")
    rows = attacked_rows(trace, 60)
    counts = gather_evidence(scenario, trace, rows).by_name["count"]
    for row, found in zip(rows, counts, strict=True):
        earlier = (trace.node[:row] == trace.node[row]) & (trace.model[:row] == trace.model[row])
        assert (np.ptp(found[np.isfinite(found)]) > 0) == earlier.any()


def test_it_says_how_far_it_is() -> None:
    """By parts of the evidence, six for each delivery; the last word is all of them."""
    told: list[tuple[str, int, int]] = []
    scenario = Scenario.from_spec(BASE.change(updates=150))
    trace = scenario.trace("private-walk")
    rows = attacked_rows(trace, 20)
    gather_evidence(
        scenario,
        trace,
        rows,
        progress=lambda *said: told.append(said[:3]),
    )
    assert told == [("content attack", done, 20 * 6) for done in range(1, 20 * 6 + 1)]


def test_a_run_that_is_watched_gives_the_evidence_of_one_trained_again() -> None:
    """To the last bit, from the one training of the run; a resumed training, which is watched late, is not complete."""
    scenario = Scenario.from_spec(BASE.change(updates=200))
    trace = scenario.trace("private-walk")
    rows, task = attacked_rows(trace, 40), scenario.task("private-walk")
    collector = EvidenceCollector(scenario, trace, rows)
    watched = train(task, trace, evaluations=7, observe=collector.observe)
    again = gather_evidence(scenario, trace, rows)
    assert collector.is_complete(rows)
    assert not collector.is_complete(rows[:-1])
    assert np.array_equal(collector.evidence.sources, again.sources)
    for name, values in again.by_name.items():
        assert values.tobytes() == collector.evidence.by_name[name].tobytes()
    assert watched.updates == 200
    late = EvidenceCollector(scenario, trace, rows)
    late.observe(3, watched.params, watched.params)
    assert not late.is_complete(rows)


def test_a_run_trains_its_private_walk_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack watches; only a run that ends early is trained once more, and says the same of content."""
    runs: list[int] = []

    def count(*arguments: Any, **options: Any) -> Any:
        runs.append(1)
        return gather_evidence(*arguments, **options)

    monkeypatch.setattr("veilwalk.training._run.gather_evidence", count)
    spec = BASE.change(updates=150, attack=30, compare="none", evaluations=3)
    whole = run_training(Scenario.from_spec(spec)).record().result
    assert (runs, len(whole["content_attack"])) == ([], 11)
    early = spec.change(max_hops=int(0.9 * whole["algorithms"]["private-walk"]["hops"]))
    assert run_training(Scenario.from_spec(early)).record().result["content_attack"]
    assert runs == [1]
