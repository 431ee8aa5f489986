"""Evaluations while a run goes on: tables in the folder, one callback, and the trackers that people have."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import Params, Partition, Point, StepContext, UpdateResult
from veilwalk.training import open_trackers, train

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
    about: dict[str, Any] = {
        "updates": 40,
        "evaluations": 8,
        "attack": 0,
        "compare": "plain-walk",
        "decay": "none",
    } | options
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


def test_a_tracker_that_is_missing_is_one_line_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with (
        pytest.raises(ConfigError, match=r"pip install 'veilwalk\[tensorboard\]' brings it"),
        open_trackers(["tensorboard"], {}),
    ):
        pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("spec", "need"),
    [("tensorbord", "tensorboard"), *((f"{name}:here", "examples/trackers.py") for name in ("wandb", "mlflow"))],
)
def test_other_trackers_are_refused_by_name(spec: str, need: str) -> None:
    """With what there is; those of version 0.2 with where they are."""
    with pytest.raises(InvalidParameterError, match=need) as refused, open_trackers([spec], {}):
        pytest.fail("it was opened")
    assert refused.value.name == "track"


def test_what_a_tracker_cannot_do_is_said_in_one_line(tmp_path: Path) -> None:
    """A folder that cannot be made, which is known at the first evaluation."""
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    (tmp_path / "file").write_text("no folder")
    with (
        pytest.raises(ConfigError, match=r"^--track failed: .*file") as refused,
        open_trackers([f"tensorboard:{tmp_path / 'file' / 'events'}"], {}) as track,
    ):
        track("private-walk", POINT)
    assert "\n" not in str(refused.value)


def test_finding_b3_events_may_lie_in_the_folder_of_the_run(tmp_path: Path, run: Cli) -> None:
    """The documented line: the folder of the run is empty when the run begins it; resumed, the run adds no events."""
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    out, events = tmp_path / "run", tmp_path / "run" / "events"
    small = ["--graph", "rrg:12:3:seed=1", "--scheme", "paper", "--updates", "20", "--attack", "0", "--compare", "none"]
    track = ["--out", str(out), "--track", f"tensorboard:{events}"]
    code, _, err = run(["train", *small, "--audit", "none", *track])
    assert (code, err) == (0, "")
    (path,) = events.iterdir()
    assert {tag for tag, _, _ in read_scalars(path)} >= {"private-walk/loss", "private-walk/accuracy"}
    assert (out / "record.json").exists()
    assert run(["train", "--resume", *track])[0] == 0
    assert [one.name for one in events.iterdir()] == [path.name]


def read_scalars(path: Path) -> list[tuple[str, int, float]]:
    """Return name, step and number of every scalar in an event file, which has TensorFlow's framing."""
    from tensorboardX.proto.event_pb2 import Event

    data, events = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        events.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return [(value.tag, event.step, value.simple_value) for event in events for value in event.summary.value]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    """The real package: name, step and number."""
    pytest.importorskip("tensorboardX", reason="the extra tensorboard is not installed")
    with open_trackers([f"tensorboard:{tmp_path}"], {"seed": 1}) as track:
        track("private-walk", POINT)
        track("private-walk", replace(POINT, update=4, loss=0.125))
    (path,) = tmp_path.iterdir()
    scalars = [scalar for scalar in read_scalars(path) if scalar[0].endswith(("/loss", "/f1"))]
    assert sorted(scalars) == [
        ("private-walk/f1", 3, 0.5),
        ("private-walk/f1", 4, 0.5),
        ("private-walk/loss", 3, 0.25),
        ("private-walk/loss", 4, 0.125),
    ]
