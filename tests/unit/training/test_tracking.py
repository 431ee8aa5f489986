"""Evaluations while a run goes on: tables in the folder, one callback, and the trackers that people have."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import Params, Partition, Point, StepContext, UpdateResult
from veilwalk.training import TRACKERS, open_tracker, trackers, train

POINT = Point(update=3, clock=4, hops=5, sent_bytes=6, seconds=0.5, loss=0.25, accuracy=0.75, scores={"f1": 0.5})


@dataclass(frozen=True)
class Scored:
    """A learner whose evaluations have scores of its own, one of them called like a column of the table."""

    stop_at: int = 0

    def init_params(self, rng: np.random.Generator) -> Params:  # noqa: ARG002
        """Return one number."""
        return {"a": np.zeros(1, np.float32)}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Add one."""
        if self.stop_at and params["a"][0] >= self.stop_at:
            raise KeyboardInterrupt
        return UpdateResult(params={"a": params["a"] + np.float32(1)}, num_examples=1)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:  # noqa: ARG002
        """Return scores that can be told apart."""
        value = float(params["a"][0])
        return {"loss": 1 / (1 + value), "accuracy": 0.5, "f1": value, "time": -value}

    @property
    def spec(self) -> str:
        """The same whether it stops or not: a run is resumed by it."""
        return "scored"


@pytest.fixture(scope="module")
def scheme() -> Scheme:
    return choose_scheme(random_regular(12, 3, seed=1), "uniform-node", support="2:3")


def kept(scheme: Scheme, out: Path, learner: Scored, **options: Any) -> list[tuple[str, Point]]:
    """Train in a folder, and return what a tracker was told."""
    told: list[tuple[str, Point]] = []
    rng = np.random.default_rng(0)
    rows = rng.random((60, 3)), rng.integers(2, size=60)
    about: dict[str, Any] = {"updates": 40, "evaluations": 8, "attack": 0, "compare": "plain-walk"} | options
    train(scheme, data=rows, learner=learner, out=out, track=lambda *what: told.append(what), **about)
    return told


def test_finding_a10_every_score_is_kept_and_told(scheme: Scheme, tmp_path: Path) -> None:
    """In the table, in the lines, in the record and to a tracker; the first columns are as they were."""
    told = kept(scheme, tmp_path / "run", Scored())
    with (tmp_path / "run" / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0])[:3] == ["algorithm", "dataset", "partitioner"]
    assert list(rows[0])[-2:] == ["f1", "score_time"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(told) == len(rows) == len(lines) > 10
    for (name, point), row, line in zip(told, rows, lines, strict=True):
        assert (name, point.update) == (row["algorithm"], int(row["round"])) == (line["algorithm"], line["update"])
        assert point.scores["f1"] == point.update == float(row["f1"]) == line["scores"]["f1"]
        assert float(row["score_time"]) == -point.update


def test_tables_are_there_before_the_end_and_the_same_after_a_stop(scheme: Scheme, tmp_path: Path) -> None:
    """A run that is interrupted has what it came to; resumed, nothing is told twice and nothing is missing."""
    with pytest.raises(KeyboardInterrupt):
        kept(scheme, tmp_path / "run", Scored(stop_at=25))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    with (tmp_path / "run" / "metrics.csv").open() as stream:
        assert next(csv.DictReader(stream))["round"] == "0"
    # Cut in the middle of a line, as a kill does.
    with (tmp_path / "run" / "metrics.jsonl").open("a") as stream:
        stream.write('{"algorithm": "priv')
    told = kept(scheme, tmp_path / "run", Scored(), resume=True)
    whole = kept(scheme, tmp_path / "whole", Scored())
    assert 0 < len(lines) < len(whole) == len(lines) + len(told)
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (tmp_path / "run" / name).read_text() == (tmp_path / "whole" / name).read_text()


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_missing_is_said_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, {"tensorboard": "tensorboardX"}.get(name, name), None)
    with pytest.raises(ConfigError, match=rf"pip install 'veilwalk\[{name}\]' brings it"):
        open_tracker(name, {})
    with pytest.raises(InvalidParameterError, match="track = 'tensorbord'"):
        open_tracker("tensorbord", {})


def test_what_a_tracker_cannot_do_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store, no server, nobody logged in: theirs to say, and no fault of ours; at the start and later."""

    class Failing(Shaped):
        def log(self, values: Mapping[str, float]) -> None:
            del values
            raise OSError("no route\nto host")

    monkeypatch.setitem(sys.modules, "wandb", Failing())
    with (
        pytest.raises(ConfigError, match=r"^--track wandb:here failed: no route to host$"),
        trackers(["wandb:here"], {}) as told,
    ):
        told("private-walk", POINT)
    monkeypatch.setitem(sys.modules, "wandb", object())
    with pytest.raises(ConfigError, match=r"^--track wandb failed: .*init"):
        open_tracker("wandb", {})


class Shaped:
    """What wandb and trackio have in common."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def init(self, **about: Any) -> None:
        """Begin."""
        self.heard.append(about)

    def log(self, values: Mapping[str, float]) -> None:
        """Hear."""
        self.heard.append(dict(values))

    def finish(self) -> None:
        """End."""
        self.heard.append("finished")


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_one_adapter_serves_both_and_closes_whatever_happens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Shaped()
    monkeypatch.setitem(sys.modules, name, library)

    def failing() -> None:
        with trackers([f"{name}:here"], {"seed": 1}) as told:
            told("private-walk", POINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    begun, logged, ended = library.heard
    assert begun == {"project": "here", "config": {"seed": 1}}
    assert logged["private-walk/f1"] == 0.5
    assert logged["private-walk/update"] == 3
    assert ended == "finished"


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    """The real package: records of the event file, in TensorFlow's framing, hold name, step and number."""
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    from tensorboardX.proto.event_pb2 import Event

    with trackers([f"tensorboard:{tmp_path}"], {"seed": 1}) as told:
        told("private-walk", POINT)
        told("private-walk", replace(POINT, update=4, loss=0.125))
    (path,) = tmp_path.iterdir()
    data, events = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    found = [
        (value.tag, event.step, value.simple_value)
        for event in events
        for value in event.summary.value
        if value.tag.endswith(("/loss", "/f1"))
    ]
    assert sorted(found) == [
        ("private-walk/f1", 3, 0.5),
        ("private-walk/f1", 4, 0.5),
        ("private-walk/loss", 3, 0.25),
        ("private-walk/loss", 4, 0.125),
    ]


def test_mlflow_keeps_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, in a folder of its own; no server."""
    mlflow: Any = pytest.importorskip("mlflow", reason="too large for every test run: pip install 'veilwalk[mlflow]'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with trackers(["mlflow:here"], {"seed": 1}) as told:
        told("private-walk", POINT)
        run = mlflow.active_run().info.run_id
    client = mlflow.MlflowClient()
    (metric,) = client.get_metric_history(run, "private-walk/f1")
    assert (metric.step, metric.value) == (3, 0.5)
    assert client.get_run(run).data.params == {"seed": "1"}


def test_wandb_writes_a_run_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, offline: its file holds the name of the number."""
    pytest.importorskip("wandb", reason="too large for every test run: pip install 'veilwalk[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with trackers(["wandb:here"], {"seed": 1}) as told:
        told("private-walk", POINT)
    (path,) = tmp_path.rglob("*.wandb")
    # A process of its own writes the file, and ends after we have gone on.
    deadline = time.monotonic() + 60
    while b"private-walk/f1" not in path.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_trackio_writes_a_run_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, in a folder of its own."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio", reason="too large for every test run: pip install 'veilwalk[trackio]'")
    with trackers(["trackio:here"], {"seed": 1}) as told:
        told("private-walk", POINT)
    assert any(b"private-walk/f1" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
