"""The trackers of ``examples/trackers.py``: with stand-ins for libraries, and with the real ones where installed."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from examples.trackers import TRACKERS

from veilwalk.learning import Point

POINT = Point(update=3, clock=4, hops=5, sent_bytes=6, seconds=0.5, loss=0.25, accuracy=0.75, scores={"f1": 0.5})


class Shaped:
    """What wandb and trackio have in common."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def init(self, **about: Any) -> None:
        """Begin."""
        self.calls.append(about)

    def log(self, values: Mapping[str, float]) -> None:
        """Receive numbers."""
        self.calls.append(dict(values))

    def finish(self) -> None:
        """End."""
        self.calls.append("finished")


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_one_adapter_serves_both_and_closes_whatever_happens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Shaped()
    monkeypatch.setitem(sys.modules, name, library)

    def fail() -> None:
        with TRACKERS[name]("here", {"seed": 1}) as track:
            track("private-walk", POINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    begun, logged, ended = library.calls
    assert begun == {"project": "here", "config": {"seed": 1}}
    assert logged["private-walk/f1"] == 0.5
    assert logged["private-walk/update"] == 3
    assert ended == "finished"


def test_mlflow_keeps_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, in a folder of its own; no server."""
    mlflow: Any = pytest.importorskip("mlflow", reason="too large for every test run: pip install mlflow-skinny")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "runs").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with TRACKERS["mlflow"]("here", {"seed": 1}) as track:
        track("private-walk", POINT)
        run = mlflow.active_run().info.run_id
    client = mlflow.MlflowClient()
    (metric,) = client.get_metric_history(run, "private-walk/f1")
    assert (metric.step, metric.value) == (3, 0.5)
    assert client.get_run(run).data.params == {"seed": "1"}


def test_wandb_writes_a_run_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, offline: its file holds the name of the number."""
    pytest.importorskip("wandb", reason="too large for every test run: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with TRACKERS["wandb"]("here", {"seed": 1}) as track:
        track("private-walk", POINT)
    (path,) = tmp_path.rglob("*.wandb")
    # A process of its own writes the file, and ends after we have gone on.
    deadline = time.monotonic() + 60
    while b"private-walk/f1" not in path.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_trackio_writes_a_run_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, in a folder of its own."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    pytest.importorskip("trackio", reason="too large for every test run: pip install trackio")
    with TRACKERS["trackio"]("here", {"seed": 1}) as track:
        track("private-walk", POINT)
    assert any(b"private-walk/f1" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
