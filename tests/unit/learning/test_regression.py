"""Real labels: the gradient of the squared error, what refuses them, and a whole run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilwalk.cli._train import print_training
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.graphs import distances, parse_graph_spec
from veilwalk.learning import (
    Array,
    LinearLearner,
    MlpLearner,
    Params,
    Partition,
    StepContext,
    make_partitions,
    parse_partition_spec,
)
from veilwalk.report import training_report
from veilwalk.training import Scenario, make_spec, run_training


def some_data(n_rows: int = 12) -> Partition:
    rng = task_generator(0, 97)
    return Partition(rng.random((n_rows, 5), dtype=np.float32), rng.random(n_rows, dtype=np.float32))


def linear(params: Params, features: Array) -> Array:
    return features @ params["weight"][0] + params["bias"][0]  # type: ignore[no-any-return]


def network(params: Params, features: Array) -> Array:
    hidden = np.maximum(features @ params["hidden_weight"].T + params["hidden_bias"], 0)
    return hidden @ params["weight"][0] + params["bias"][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("learner", "outputs"),
    [
        (LinearLearner(n_features=5, batch_size=100, learning_rate=0.25), linear),
        (MlpLearner(n_features=5, n_classes=0, hidden=4, batch_size=100, learning_rate=0.25), network),
    ],
)
def test_a_step_goes_down_the_gradient_of_the_mean_squared_error(learner: LinearLearner, outputs: object) -> None:
    """Central differences agree; half the error, or the sum, would not."""
    data, rng = some_data(), task_generator(3)
    start = {
        name: rng.normal(size=array.shape).astype(np.float32)
        for name, array in learner.init_params(task_generator(0)).items()
    }
    moved = learner.update(start, data, StepContext(rng=task_generator(0), step=0)).params

    def loss(params: Params) -> float:
        return float(np.square(outputs(params, data.features.astype(np.float64)) - data.labels).mean())  # type: ignore[operator]

    for name, array in start.items():
        for index in np.ndindex(array.shape):
            ends = []
            for change in (1e-5, -1e-5):
                there = {key: value.astype(np.float64) for key, value in start.items()}
                there[name][index] += change
                ends.append(loss(there))
            slope = (ends[0] - ends[1]) / 2e-5
            assert (array[index] - moved[name][index]) / 0.25 == pytest.approx(slope, rel=1e-3, abs=1e-5)
    assert learner.example_losses(start, data).mean() == pytest.approx(loss(start), rel=1e-5)
    assert learner.evaluate(start, data)["r2"] == pytest.approx(1 - loss(start) / data.labels.var(), rel=1e-4)


def test_labels_that_are_all_the_same() -> None:
    """Explained by whoever says them, and by nobody else."""
    learner = LinearLearner(n_features=5)
    params = learner.init_params(task_generator(0))
    assert learner.evaluate(params, Partition(some_data().features, np.zeros(12, dtype=np.float32)))["r2"] == 1
    assert learner.evaluate(params, Partition(some_data().features, np.ones(12, dtype=np.float32)))["r2"] == 0


@pytest.mark.parametrize("spec", ["dirichlet:0.3", "shards:2"])
def test_what_shares_out_classes_refuses_real_labels(spec: str) -> None:
    """With what to use instead."""
    partitioner = parse_partition_spec(spec, graph=parse_graph_spec("ring:4"), seed=0)
    with pytest.raises(
        InvalidParameterError, match="must be iid, graph:CORRELATION or natural:COLUMN where labels are"
    ):
        make_partitions(partitioner, some_data())


def test_neighbours_hold_like_amounts() -> None:
    """Real labels by tenths: in a pure partition labels differ less between neighbours than between others."""
    graph, data = parse_graph_spec("ring:40"), some_data(400)
    parts = make_partitions(parse_partition_spec("graph:1", graph=graph, seed=1), data)
    assert sorted(len(part) for part in parts) == [10] * 40
    means = np.array([part.labels.mean() for part in parts])
    gaps, away = np.abs(means[:, None] - means), distances(graph)
    assert gaps[away == 1].mean() < 0.5 * gaps[away > 5].mean()


def test_columns_of_others_keep_real_labels() -> None:
    """From a mapping, as a datasets library gives it."""

    class Halves:
        num_partitions = 2

        def load_partition(self, partition_id: int) -> dict[str, list[object]]:
            return {"features": [[float(partition_id)]], "labels": [0.25]}

    parts = make_partitions(Halves(), some_data())
    assert [part.labels.tolist() for part in parts] == [[0.25], [0.25]]
    assert parts[0].labels.dtype == np.float32


@pytest.fixture
def prices(tmp_path: Path) -> str:
    """A table of houses."""
    rng = task_generator(5)
    lines = ["rooms,area,town,price"]
    for number in range(200):
        rooms, area = int(rng.integers(1, 8)), float(rng.uniform(30, 300))
        lines.append(f"{rooms},{area:.1f},t{number % 20},{20_000 * rooms + 1500 * area:.2f}")
    (tmp_path / "houses.csv").write_text("\n".join(lines))
    return f"csv:{tmp_path / 'houses.csv'}:label=price:group=town"


@pytest.mark.parametrize(
    ("learner", "partition"), [("linear", "iid"), ("mlp", "graph:0.2"), ("linear", "natural:town")]
)
def test_a_run_ends_with_what_is_explained(
    prices: str, tmp_path: Path, learner: str, partition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained by every algorithm, attacked, printed, reported; no accuracy anywhere, and nothing that misses it."""
    settings = make_spec(
        data=prices,
        learner=f"{learner}:learning_rate=0.1",
        partition=partition,
        graph="rrg:20:3:seed=1",
        support="2:3",
        updates=200,
        attack=20,
        audit="none",
        walks=2,
    )
    record = run_training(Scenario.from_spec(settings), out=tmp_path / "run").record()
    found = record.result["algorithms"]["private-walk"]
    assert (found["accuracy"], record.result["data"]["classes"]) == (None, 0)
    assert found["scores"]["r2"] > 0.8
    assert found["points"][-1]["scores"] == found["scores"]
    print_training(record)
    shown = capsys.readouterr().out
    assert f"{found['scores']['r2']:.3f}" in shown
    assert "accuracy" not in shown
    page = training_report(record, tmp_path / "report.html").read_text()
    assert f"<b>{found['scores']['r2']:.3f}</b>r2 on 40 held-out rows" in page


def test_the_classifier_is_refused_before_anything_is_trained(prices: str) -> None:
    """With the learners there are."""
    settings = make_spec(data=prices, partition="iid", graph="rrg:20:3:seed=1", support="2:3", updates=20)
    with pytest.raises(InvalidParameterError, match="learner = 'softmax': must be linear or mlp"):
        Scenario.from_spec(settings)
