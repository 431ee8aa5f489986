"""Private learning, end to end, on a small network."""

from __future__ import annotations

import csv
import json
import math
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.audit import AuditSettings, audit
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.core.records import Record
from veilwalk.learning import TrainingTrace, epsilon_of, train
from veilwalk.training import (
    Evidence,
    RunFolder,
    RunSpec,
    Scenario,
    _content,
    _run,
    attacked_rows,
    content_attack,
    gather_evidence,
    make_spec,
    route_anonymity,
    run_training,
)
from veilwalk.training._content import attack_bytes

Prepared = tuple[Scenario, TrainingTrace]
LEARNER = "softmax:learning_rate=0.3"
#: The private walk, and what a run compares it with unless told otherwise.
ALGORITHMS = ("private-walk", "paper-walk", "plain-walk", "gossip", "gossip-push", "fedavg", "central")
SMALL = make_spec(graph="rrg:30:3:seed=1", support="2:3", learner=LEARNER, updates=240, attack=60, evaluations=6)


def trained(settings: RunSpec, **options: Any) -> Record:
    return run_training(Scenario.from_spec(settings), **options).record()


@pytest.fixture(scope="module")
def record() -> Record:
    return trained(SMALL)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    scenario = Scenario.from_spec(SMALL)
    return scenario, scenario.trace("private-walk")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    folder = tmp_path_factory.mktemp("kept") / "run"
    return trained(SMALL, out=folder), folder


def test_the_record_says_what_was_gained_and_what_it_cost(record: Record) -> None:
    """Every algorithm, at the same updates; versioned."""
    found = record.to_dict()
    assert found["format"] == "veilwalk-train-1"
    assert list(found["algorithms"]) == list(ALGORITHMS)
    for run in found["algorithms"].values():
        assert run["updates"] == 240
        assert run["points"][0]["update"] == 0
        assert run["points"][-1]["accuracy"] == run["accuracy"] > 0.5
        assert run["bytes"] == run["hops"] * run["message_bytes"]
    private, plain, gossip = (found["algorithms"][name] for name in ("private-walk", "plain-walk", "gossip"))
    assert private["hops_per_update"] > 30
    assert plain["hops_per_update"] == 1
    assert gossip["hops_per_update"] == 3
    assert found["equal_hops"] == 240
    assert gossip["single_models"]["models"] == 16


def test_comparisons_name_the_maker_with_certainty(record: Record) -> None:
    """The neighbour it came from; nothing is left."""
    for name in ("plain-walk", "gossip", "central"):
        leak = record.result["algorithms"][name]["anonymity"]
        assert (leak["hit_ratio"], leak["node_entropy_nats"]) == (1.0, 0.0)
    assert record.result["algorithms"]["plain-walk"]["anonymity"]["blind_hit_ratio"] == pytest.approx(1 / 3)


def test_the_exact_hit_ratio_is_what_an_audit_measures(prepared: Prepared, record: Record) -> None:
    """Guesses scored against played truth agree with the closed sum; the prior's alone would not."""
    scenario, _ = prepared
    settings = AuditSettings(observers=("prior", "last-hop"), updates=200_000, seed=3)
    found = audit(scenario.scheme, settings).record().result["observers"]
    exact = record.result["algorithms"]["private-walk"]["anonymity"]
    low, high = found["last-hop"]["overall"]["hit_ratio_interval"]
    assert low <= exact["hit_ratio"] <= high
    assert not low <= exact["blind_hit_ratio"] <= high
    entropy_low, entropy_high = found["last-hop"]["overall"]["node_entropy_nats_interval"]
    assert entropy_low - 1e-4 <= exact["node_entropy_nats"] <= entropy_high + 1e-4
    assert exact["prior_node_entropy_nats"] == pytest.approx(found["prior"]["overall"]["node_entropy_nats"], abs=5e-3)
    assert exact["node_entropy_bits"] == pytest.approx(exact["node_entropy_nats"] / math.log(2))


def test_the_rows_by_return_time_add_up(record: Record) -> None:
    """Shares to one, weighted means to the whole; short returns leave less."""
    leak = record.result["algorithms"]["private-walk"]["anonymity"]
    rows = leak["by_return_time"]
    assert sum(row["share"] for row in rows) == pytest.approx(1, abs=1e-9)
    assert sum(row["share"] * row["node_entropy_nats"] for row in rows) == pytest.approx(leak["node_entropy_nats"])
    assert sum(row["share"] * row["hit_ratio"] for row in rows) == pytest.approx(leak["hit_ratio"])
    assert rows[0]["node_entropy_nats"] < rows[-2]["node_entropy_nats"]
    assert leak["worst_destination"]["node_entropy_nats"] < leak["node_entropy_nats"]


def test_route_posteriors_of_a_run_are_proper(prepared: Prepared) -> None:
    """They sum to one, and hold the truth possible."""
    scenario, trace = prepared
    rows = np.arange(0, 240, 7)
    route = route_anonymity(scenario.scheme, trace, rows)
    assert route.posteriors.sum(axis=1) == pytest.approx(np.ones(len(rows)))
    assert (route.posteriors[np.arange(len(rows)), trace.source[rows]] > 0).all()


@pytest.mark.parametrize(("recipients", "kind"), [(1, "exact, "), (3, "estimated from ")])
def test_a_run_says_how_its_anonymity_is_known(recipients: int, kind: str) -> None:
    """Exact where the network is small enough, measured where updates are sealed for several."""
    found = trained(SMALL.change(walk="non-backtracking", attack=0, compare="none", recipients=recipients))
    leak = found.result["algorithms"]["private-walk"]["anonymity"]
    assert leak["kind"].startswith(kind)
    assert 0 < leak["hit_ratio"] < 0.3
    assert ("hit_ratio_interval" in leak) == (recipients == 3)


def test_several_tokens_save_time_and_promise_nothing() -> None:
    """The stated rule is an average; what routes tell is that of one token, and it says why."""
    one, three = (trained(SMALL.change(walks=tokens, compare="none", attack=0)).result for tokens in (1, 3))
    first, third = one["algorithms"]["private-walk"], three["algorithms"]["private-walk"]
    assert third["seconds_modelled"] < 0.6 * first["seconds_modelled"]
    assert third["single_models"]["models"] == 3
    assert first["anonymity"]["walks"] is None
    assert "sealed independently" in third["anonymity"]["walks"]


def test_attacked_deliveries_have_a_past(prepared: Prepared) -> None:
    """The destination has a model of its own, and the token was somewhere before."""
    _, trace = prepared
    rows = attacked_rows(trace, 60)
    assert len(rows) == 60
    for row in rows:
        assert trace.node[row] in trace.node[:row]
        assert trace.source[row] == trace.node[row - 1]
    assert len(attacked_rows(trace, 10_000)) < 240
    assert len(attacked_rows(trace.first(1), 10)) == 0


def test_evidence_is_what_the_attacker_could_compute(prepared: Prepared) -> None:
    """One delivery by hand: models from training that stops there, losses candidate by candidate."""
    scenario, trace = prepared
    rows = attacked_rows(trace, 60)
    evidence = gather_evidence(scenario, trace, rows)
    place = 31
    row = int(rows[place])
    node = int(trace.node[row])
    own = int(np.flatnonzero(trace.node[:row] == node)[-1])
    task = scenario.task("private-walk")
    received, before, earlier = (
        train(task, trace.first(stop), evaluations=1).params for stop in (row, row - 1, own + 1)
    )
    for candidate in (0, 7, 19, 29):
        if candidate == node:
            continue
        part = scenario.partitions[candidate]
        losses = [float(scenario.learner.evaluate(params, part)["loss"]) for params in (received, earlier, before)]
        found = {name: evidence.by_name[name][place, candidate] for name in ("loss", "drop", "step")}
        assert found["loss"] == pytest.approx(-losses[0], rel=1e-4)
        assert found["drop"] == pytest.approx(losses[1] - losses[0], rel=1e-3, abs=1e-4)
        assert found["step"] == pytest.approx(losses[2] - losses[0], rel=1e-3, abs=1e-4)
    assert np.isneginf(evidence.by_name["loss"][place, node])
    assert evidence.sources[place] == trace.source[row]


def scored(scenario: Scenario, evidence: Any, route: Any, sources: Any) -> dict[str, dict[str, Any]]:
    named = dict.fromkeys(("residual", "direction", "step", "count", "drop", "loss"), evidence)
    return {row["attacker"]: row for row in content_attack(scenario, Evidence(named, sources), route)}


def test_good_evidence_names_the_maker_and_noise_adds_nothing(prepared: Prepared) -> None:
    """Perfect evidence wins whatever the route says; noise leaves the route's hits; evidence turned round is no use."""
    scenario, trace = prepared
    rows = attacked_rows(trace, 60)
    sources = trace.source[rows]
    route = route_anonymity(scenario.scheme, trace, rows).posteriors
    noise = np.random.default_rng(1).normal(size=route.shape)
    noise[np.arange(60), trace.node[rows]] = -np.inf
    telling = noise.copy()
    telling[np.arange(60), sources] += 20
    perfect = scored(scenario, telling, route, sources)
    assert perfect["content alone: loss"]["hit_ratio"] == 1.0
    assert perfect["route and content: drop"]["hit_ratio"] == 1.0
    blank = scored(scenario, noise, route, sources)
    assert blank["route and content: loss"]["hit_ratio"] == pytest.approx(blank["route alone"]["hit_ratio"], abs=0.05)
    # Several standard deviations of the noise, so it is all but ignored; telling evidence is taken at its word.
    assert blank["route and content: loss"]["temperature_nats"] > 5
    assert perfect["route and content: loss"]["temperature_nats"] < 5
    turned = scored(scenario, np.where(np.isfinite(telling), -telling, telling), route, sources)
    assert turned["content alone: loss"]["hit_ratio"] < 0.2
    low, high = perfect["content alone: loss"]["hit_ratio_interval"]
    assert low == pytest.approx(0.025 ** (1 / 60))
    assert high == 1.0


def test_noise_is_accounted_against_everybody() -> None:
    """The node with most updates, sender known, and no smaller figure; central has none."""
    settings = SMALL.change(noise=2.0, clip=0.1, attack=0)
    found = trained(settings).result["privacy"]
    trace = Scenario.from_spec(settings).trace("private-walk")
    most = int(np.bincount(trace.node).max())
    known = epsilon_of(2.0, 1e-5, updates=most)
    private = found["algorithms"]["private-walk"]
    assert private["most_updates_of_a_node"] == most
    assert private["epsilon_sender_known"] == pytest.approx(known)
    assert found["algorithms"]["gossip"]["most_updates_of_a_node"] == 8
    assert set(found["algorithms"]) == {*ALGORITHMS} - {"central"}
    assert found["against"] == "everybody, sender known"
    assert "against everybody together, sender known" in found["sentence"]


def test_a_run_that_ended_because_of_what_it_learnt_counts_all_it_might_have_made() -> None:
    """When it ended is told by the data. A budget of hops is not: what lies beyond it could never be made."""
    whole = SMALL.change(noise=0.5, clip=0.1, attack=0, compare="none")
    most = trained(whole).result["privacy"]["algorithms"]["private-walk"]
    early = trained(whole.change(target_accuracy=0.3)).result
    assert early["algorithms"]["private-walk"]["updates"] < whole.end.updates
    assert early["privacy"]["algorithms"]["private-walk"] == most
    short = trained(whole.change(max_hops=1000)).result["privacy"]["algorithms"]["private-walk"]
    assert short["most_updates_of_a_node"] < most["most_updates_of_a_node"]


def test_what_an_older_version_kept_of_epsilon_is_not_believed(tmp_path: Path) -> None:
    """It may hold a figure for unknown senders."""
    settings = SMALL.change(noise=2.0, clip=0.1, attack=0, compare="none", updates=40)
    scenario = Scenario.from_spec(settings)
    first = run_training(scenario, out=tmp_path / "run").record()
    part = tmp_path / "run" / "parts" / "attribution.json"
    part.write_text(json.dumps(json.loads(part.read_text()) | {"privacy": {"sentence": "epsilon <= 0.1"}}))
    again = run_training(scenario, out=tmp_path / "run", resume=True).record()
    assert again.result["privacy"] == first.result["privacy"]


def test_a_run_folder_holds_everything(kept: tuple[Record, Path]) -> None:
    """Settings, versions, trace, checkpoints, model, record, tidy table."""
    done, folder = kept
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "config.toml",
        "run.json",
        "trace.npz",
        "model.npz",
        "record.json",
        "metrics.csv",
        "metrics.jsonl",
        "parts/attribution.json",
        "run.lock",
    } | {f"checkpoints/{name}.npz" for name in ALGORITHMS}
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    columns = "algorithm,dataset,partitioner,alpha,peer,round,time,accuracy,loss,hops,bytes"
    assert ",".join(rows[0]) == columns
    assert {row["algorithm"] for row in rows} == set(ALGORITHMS)
    assert (rows[0]["dataset"], rows[0]["partitioner"], rows[0]["alpha"]) == ("digits", "dirichlet", "0.3")
    last = [row for row in rows if row["algorithm"] == "private-walk"][-1]
    assert int(last["round"]) == 240
    assert float(last["accuracy"]) == done.result["algorithms"]["private-walk"]["accuracy"]
    assert (folder / "record.json").read_text() == done.to_json()


def test_resuming_a_finished_run_changes_nothing(
    kept: tuple[Record, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is walked, trained or attacked again."""
    first, folder = kept
    shutil.copytree(folder, tmp_path / "run")
    monkeypatch.setattr(_run, "route_anonymity", None)
    monkeypatch.setattr(_run, "gather_evidence", None)
    again = trained(SMALL, out=tmp_path / "run", resume=True)
    assert again.to_json() == first.to_json()


def test_a_changed_data_file_is_noticed(tmp_path: Path) -> None:
    """The name in the settings is the same, the rows are not."""
    rng = np.random.default_rng(0)
    path = tmp_path / "data.npz"

    def write(shift: float) -> None:
        np.savez(path, features=rng.random((200, 4)) + shift, labels=rng.integers(3, size=200))

    write(0.0)
    settings = SMALL.change(data=f"npz:{path}", attack=0, compare="none")
    trained(settings, out=tmp_path / "run")
    write(0.5)
    with pytest.raises(ValueError, match="is of another run"):
        trained(settings, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("name", ["trace.npz", "checkpoints/gossip.npz", "parts/attribution.json"])
def test_an_unreadable_part_of_a_run_is_named_and_left_alone(
    kept: tuple[Record, Path], tmp_path: Path, name: str
) -> None:
    """Nothing is trained over it."""
    shutil.copytree(kept[1], tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(b"garbage")
    with pytest.raises(InputFileError, match=Path(name).name):
        trained(SMALL, out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / name).read_bytes() == b"garbage"


def test_a_partition_must_have_a_part_for_each_node(tmp_path: Path) -> None:
    """A column with another number of values."""
    rng = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    np.savez(path, features=rng.random((200, 4)), labels=rng.integers(3, size=200), writer=np.arange(200) % 12)
    with pytest.raises(InvalidParameterError, match=r"partition = 'natural:writer': must be one that makes 30 parts"):
        Scenario.from_spec(SMALL.change(data=f"npz:{path}", partition="natural:writer"))


def test_stopping_early_is_said(tmp_path: Path) -> None:
    """Each algorithm for itself."""
    runs = trained(SMALL.change(target_accuracy=0.5, max_hops=3000, attack=0)).result["algorithms"]
    assert runs["plain-walk"]["reason"] == "accuracy 0.5 reached"
    assert runs["private-walk"]["updates"] < 240
    assert runs["central"]["updates"] < 240


def test_a_budget_that_allows_no_update_leaves_the_first_model() -> None:
    """It is said so, and what the scheme hides is told as ever."""
    found = trained(SMALL.change(max_hops=1, attack=0, compare="paper-walk")).result
    for run in found["algorithms"].values():
        assert (run["updates"], run["hops"], run["reason"]) == (0, 0, "budget of hops spent")
        assert run["anonymity"]["node_entropy_nats"] > 1
    assert found["sample"] is None


def test_a_smaller_payload_is_recorded_counted_and_another_run(tmp_path: Path) -> None:
    """Fewer bytes for every algorithm that sends; the folder keeps the word, and goes on by it."""
    settings = SMALL.change(payload="int8", learner="mlp:hidden=128", compare="gossip,central", updates=60, attack=0)
    run = run_training(Scenario.from_spec(settings), out=tmp_path / "run")
    plain = settings.change(payload="fp32")
    whole = run_training(Scenario.from_spec(plain))
    assert run.record().params["payload"] == "int8"
    assert whole.record().params["payload"] == "fp32"
    # 64 x 128 and 128 x 10 in matrices, and 138 beside them.
    assert sum(array.size for array in run.model.values()) == 9610
    for name in ("private-walk", "gossip"):
        assert run.trainings[name].costs.message_bytes < whole.trainings[name].costs.message_bytes
    assert run.trainings["gossip"].costs.message_bytes == 9472 + 9472 // 32 + 4 * 138
    one, two = (each.trainings["central"].params["weight"] for each in (run, whole))
    assert np.array_equal(one, two)
    assert RunFolder(tmp_path / "run").spec({}).learning.payload == "int8"


def test_an_attack_too_large_for_the_machine_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it would take; the rest is as ever, and a run that is gone on with says the same."""
    few = SMALL.change(updates=60, attack=22, compare="none")
    scenario = Scenario.from_spec(few)
    trace = scenario.trace("private-walk")
    needed = attack_bytes(scenario, trace, attacked_rows(trace, few.checks.attack))
    monkeypatch.setattr(_content, "DEFAULT_MEMORY_BYTES", needed)
    assert trained(few).result["content_attack"]
    monkeypatch.setattr(_content, "DEFAULT_MEMORY_BYTES", needed - 1)
    found = trained(few, out=tmp_path / "run").result
    assert found["content_attack"] is None
    assert found["sample"]["posterior"] is not None
    told = [note for note in found["warnings"] if note.startswith("the content attack is left out: with this model")]
    assert len(told) == 1
    assert trained(few, out=tmp_path / "run", resume=True).result["warnings"] == found["warnings"]


def test_the_memory_of_the_attack_is_what_it_takes() -> None:
    """Within a tenth of what is measured; a network whose candidates' updates outweigh all else."""
    few = SMALL.change(learner="mlp:hidden=150", updates=40, attack=1)
    scenario = Scenario.from_spec(few)
    trace = scenario.trace("private-walk")
    rows = attacked_rows(trace, few.checks.attack)
    predicted = attack_bytes(scenario, trace, rows)
    tracemalloc.start()
    gather_evidence(scenario, trace, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak == pytest.approx(predicted, rel=0.1)
