"""Flower apps as learners, by the real package: in the simulator, in real nodes, with the same bits twice."""

from __future__ import annotations

import json
import random
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.pages import list_commands, run_in, write_files

import veilwalk as vw
from veilwalk.core.errors import InvalidParameterError, LearnerError
from veilwalk.learning import Partition, StepContext, check_learner, make_learner, partition_numbers

pytest.importorskip("flwr", reason="flwr is not installed: make bridges runs these")
torch = pytest.importorskip("torch")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.client import NumPyClient  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402

PAGE = "run-your-flower-app"
CONFIG = {"local-epochs": 1, "batch-size": 16, "learning-rate": 0.1}
NODES = 10
SCHEME = vw.choose_scheme(vw.random_regular(NODES, 3, seed=1), "uniform-node", support=(2, 3))
QUICK: dict[str, Any] = {"data": "partitions", "compare": "none", "attack": 0, "audit": "none"}
# A step for one partition of those of the data.
Step = Callable[[float, Context], float]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the page's app, where Python looks."""
    assert write_files(PAGE, tmp_path) == ["private.py", "pyproject.toml", "quick/task.py", "quick/client_app.py"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "quick"]:
        del sys.modules[name]


def app_of(step: Step) -> ClientApp:
    """Return an app whose model is one number that ``step`` moves."""
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        (value,) = message.content["arrays"].to_numpy_ndarrays()
        moved = np.array(step(float(value), context))
        content = {"arrays": ArrayRecord({"value": as_array(moved)}), "metrics": MetricRecord({"num-examples": 3})}
        return Message(RecordDict(content), reply_to=message)

    def evaluate(message: Message, context: Context) -> Message:
        (value,) = message.content["arrays"].to_numpy_ndarrays()
        number = int(context.node_config["partition-id"])
        scores = MetricRecord({"val_loss": float(value) + number, "num-examples": 1 + number})
        return Message(RecordDict({"metrics": scores}), reply_to=message)

    app.train()(train)
    app.evaluate()(evaluate)
    return app


def as_array(value: np.ndarray[Any, Any]) -> Any:
    from flwr.app import Array

    return Array(value)


def one_number() -> dict[str, Any]:
    """Return the first model of those apps."""
    return {"value": np.array(0.0)}


def context_of(seed: int = 0, step: int = 0, **values: Any) -> StepContext:
    return StepContext(rng=np.random.default_rng(seed), step=step, **values)


def part_of(node: int, nodes: int = NODES) -> Partition:
    """Return the rows of a node: its number, twice."""
    return partition_numbers(nodes).train.take(slice(2 * node, 2 * node + 2))


def test_the_template_keeps_the_contract_and_learns(folder: Path) -> None:
    """Its own data, dropout of nothing, torch's global generator: the same model twice, and much better than chance."""
    learner = make_learner(
        "veilwalk.learning.flower_learner:flower_app:app=quick.client_app.app:initial=quick.task.Net",
        n_features=2,
        n_classes=1,
    )
    check_learner(learner, part_of(2))
    runs = [vw.train(SCHEME, learner=learner, updates=40, **QUICK) for _ in range(2)]
    assert list(runs[0].model) == ["hidden.weight", "hidden.bias", "last.weight", "last.bias"]
    for name, array in runs[0].model.items():
        assert np.array_equal(array, runs[1].model[name])
    result = runs[0].record().result
    assert result["algorithms"]["private-walk"]["accuracy"] > 0.7
    assert [site["rows"] for site in result["sites"]] == [20] * NODES
    assert folder.exists()


def test_the_page_can_be_followed(folder: Path) -> None:
    """Both commands, a resumed run and the script; what nodes end with has learnt."""
    simulated, nodes = list_commands(PAGE)
    trained = json.loads(run_in(folder, *shlex.split(simulated), "--compare", "none", "--updates", "40", "--json"))
    assert trained["algorithms"]["private-walk"]["accuracy"] > 0.7
    # The app is not among the values: the folder has it.
    run_in(folder, "veilwalk", "train", "--resume", "--out", "run")
    assert float(run_in(folder, "private.py")) > 0.7
    result = json.loads(run_in(folder, *shlex.split(nodes), "--dwell", "0.05", "--json", timeout_s=600))
    assert (result["updates"], result["accuracy"] > 0.5, result["counts"]["learner_failures"]) == (20, True, 0)
    assert "flower_app:app=quick.client_app.app" in (folder / "nodes" / "n0" / "node.toml").read_text()


def test_a_run_configuration_is_read_and_changed(folder: Path) -> None:
    """By the keys of pyproject.toml, underscores standing for hyphens; another key is refused by name."""
    spec = "veilwalk.learning.flower_learner:flower_app:app=quick.client_app.app:initial=quick.task.Net"
    learner: Any = make_learner(f"{spec}:local_epochs=3", n_features=2, n_classes=1)
    assert learner.config == CONFIG | {"num-server-rounds": 3, "local-epochs": 3}
    with pytest.raises(InvalidParameterError) as refused:
        make_learner(f"{spec}:local_epoch=3", n_features=2, n_classes=1)
    assert (refused.value.name, folder.exists()) == ("app", True)


@pytest.mark.parametrize("wrong", ["nowhere.app", "quick.client_app.nothing", "quick.task.load_data"])
def test_what_is_no_app_is_refused_by_name(folder: Path, wrong: str) -> None:
    """A module that is not there, a name that is not in it, a function that is no client_fn."""
    assert folder.exists()
    with pytest.raises((InvalidParameterError, LearnerError), match=r"app|client_fn"):
        make_learner(f"veilwalk.learning.flower_learner:flower_app:app={wrong}", n_features=2, n_classes=1)


class Averaging(NumPyClient):  # type: ignore[misc]
    """A client of the older style: its model moves towards the mean of its rows."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def get_parameters(self, config: Any) -> list[Any]:  # noqa: ARG002
        """Return the first model."""
        return [np.zeros(3, dtype=np.float32), np.zeros((), dtype=np.int64)]

    def fit(self, parameters: Any, config: Any) -> tuple[list[Any], int, dict[str, Any]]:
        """Return the model after a step; draws from NumPy's global stream."""
        mean, count = parameters
        noise = np.random.normal(0, 1e-3, size=3)  # noqa: NPY002
        assert config["server-round"] >= 1
        return [(mean + 0.2 * (self.rows.mean(0) - mean) + noise).astype(np.float32), count + 1], len(self.rows), {}

    def evaluate(self, parameters: Any, config: Any) -> tuple[float, int, dict[str, Any]]:  # noqa: ARG002
        """Return the mean squared error."""
        return float(np.square(self.rows - parameters[0]).mean()), len(self.rows), {"accuracy": 0.5}


def client_fn(context: Context) -> Any:
    number = int(context.node_config["partition-id"])
    return Averaging(np.random.default_rng(number).normal(1.0, 0.1, size=(10, 3))).to_client()


def test_a_numpy_client_needs_no_first_model() -> None:
    """By its client_fn, or the app that wraps it; arrays are numbered, whole numbers stay whole."""
    for app in (client_fn, ClientApp(client_fn)):
        learner = vw.from_flower(app)
        check_learner(learner, part_of(0))
        run = vw.train(SCHEME, learner=learner, updates=60, **QUICK)
        assert {name: array.dtype.str for name, array in run.model.items()} == {"0": "<f4", "1": "<i8"}
        assert np.allclose(run.model["0"], 1.0, atol=0.1)
        assert int(run.model["1"]) == 60
        assert run.record().result["algorithms"]["private-walk"]["accuracy"] == 0.5


def test_an_app_that_draws_elsewhere_is_refused_before_it_trains() -> None:
    """Its own generator, or what it keeps in a module; seeded by us, the three usual ones pass."""
    own, calls = np.random.default_rng(), []

    def keeps(value: float, context: Context) -> float:
        del context
        calls.append(value)
        return value + len(calls)

    steps: list[Step] = [lambda value, _: value + own.random(), keeps]
    for step in steps:
        with pytest.raises(LearnerError):
            vw.train(SCHEME, learner=vw.from_flower(app_of(step), initial=one_number), updates=3, **QUICK)
    seeded: Step = lambda value, _: value + random.random() + np.random.random() + float(torch.rand(()))  # noqa: E731, NPY002, S311
    before = random.getstate()
    vw.train(SCHEME, learner=vw.from_flower(app_of(seeded), initial=one_number), updates=3, **QUICK)
    assert random.getstate() == before


def test_state_stays_at_its_node() -> None:
    """Records of every kind come back at the node's next update, as bytes in the node's state, and at no other node."""

    def count(value: float, context: Context) -> float:
        state = context.state
        before = int(state["own"]["updates"]) if "own" in state else 0
        state["own"] = MetricRecord({"updates": before + 1})
        state["words"] = ConfigRecord({"last": f"update {before + 1}"})
        state["arrays"] = ArrayRecord([np.full(2, before)])
        return value + before

    learner, mine = vw.from_flower(app_of(count), initial=one_number), dict[str, Any]()
    params = learner.init_params(np.random.default_rng(0))
    values = [
        float(learner.update(params, part_of(1), context_of(step=step, state=mine)).params["value"])
        for step in range(3)
    ]
    assert values == [0.0, 1.0, 2.0]
    assert [array.dtype for array in mine.values()] == [np.uint8]
    assert float(learner.update(params, part_of(2), context_of()).params["value"]) == 0.0
    check_learner(learner, part_of(1))


def test_an_app_is_told_its_partition_and_scores_are_weighed() -> None:
    """Number and count of partitions; the loss is the mean over examples; of several partitions one is drawn."""
    learner = vw.from_flower(
        app_of(lambda _, context: context.node_config["partition-id"] + 10 * context.node_config["num-partitions"]),
        initial=one_number,
    )
    params = learner.init_params(np.random.default_rng(0))
    assert float(learner.update(params, part_of(4), context_of()).params["value"]) == 4 + 10 * NODES
    scores = learner.evaluate(params, partition_numbers(3).test)
    assert scores == {"loss": pytest.approx((0 * 1 + 1 * 2 + 2 * 3) / 6), "num_examples": 6.0}
    rows = partition_numbers(NODES).train
    drawn = {float(learner.update(params, rows, context_of(seed)).params["value"]) % 10 for seed in range(40)}
    assert drawn == set(range(NODES))


def test_torch_has_one_thread_inside_unless_asked() -> None:
    """And what it had before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    counts = []
    for threads in (1, 0):
        app = app_of(lambda *_: float(torch.get_num_threads()))
        learner = vw.from_flower(app, initial=one_number, threads=threads)
        params = learner.init_params(np.random.default_rng(0))
        counts.append(float(learner.update(params, part_of(0), context_of()).params["value"]))
        assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    assert counts == [1.0, 2.0]
