"""Stop anywhere, go on, end with the same bits."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, InputFileError, RecordError
from veilwalk.graphs import random_regular
from veilwalk.learning import (
    Params,
    Partition,
    Partitions,
    Point,
    SoftmaxLearner,
    Training,
    TrainingState,
    TrainingTask,
    TrainingTrace,
    gossip_trace,
    load_checkpoint,
    plain_trace,
    save_checkpoint,
    train,
)

GRAPH = random_regular(12, 3, seed=3)
POINT = Point(update=3, clock=4, hops=5, sent_bytes=6, seconds=0.1, loss=1 / 3, accuracy=None)


def task() -> TrainingTask:
    """Softmax with momentum, so that nodes keep something."""
    rng = np.random.default_rng(0)
    parts = [Partition(rng.normal(size=(9, 4)).astype(np.float32), rng.integers(3, size=9)) for _ in range(12)]
    learner = SoftmaxLearner(n_features=4, n_classes=3, batch_size=5, momentum=0.9)
    return TrainingTask(learner=learner, partitions=parts, held_out=Partitions.of_parts(parts).rows, seed=2)


def state() -> TrainingState:
    """Something of every kind."""
    return TrainingState(
        models=[{"a": np.arange(3.0), "b": np.ones((2, 2), np.float32)} for _ in range(2)],
        node_states=[{"velocity/a": np.ones(3)}, {}],
        done=3,
        points=[POINT],
    )


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    """Every array with its bits and type, every number to the last digit."""
    save_checkpoint(tmp_path / "c.npz", state(), identity="x")
    found = load_checkpoint(tmp_path / "c.npz", identity="x")
    assert found.points == [POINT]
    assert (found.done, found.finished) == (3, None)
    for mine, saved in zip(found.models, state().models, strict=True):
        assert list(mine) == ["a", "b"]
        assert mine["b"].dtype == np.float32
        assert mine["a"].tobytes() == saved["a"].tobytes()
    assert found.node_states[0]["velocity/a"].tolist() == [1, 1, 1]
    assert found.node_states[1] == {}


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """By name of the run."""
    save_checkpoint(tmp_path / "c.npz", state(), identity="x")
    with pytest.raises(ConfigError, match="is of another run"):
        load_checkpoint(tmp_path / "c.npz", identity="y")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "other"])
def test_an_unreadable_checkpoint_is_refused_and_left_alone(tmp_path: Path, damage: str) -> None:
    """One line that names the file; the file stays."""
    path = tmp_path / "c.npz"
    save_checkpoint(path, state(), identity="x")
    whole = path.read_bytes()
    middle = whole.index(np.arange(3.0).tobytes()) + 9
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    broken = {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "empty": b"",
        "text": b"nothing of the kind",
        "other": (tmp_path / "other.npz").read_bytes(),
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(InputFileError, match=r"checkpoint .*c\.npz cannot be read"):
        load_checkpoint(path, identity="x")
    assert path.read_bytes() == broken


class KilledError(Exception):
    """Stands for a kill."""


def stopped_and_resumed(trace: TrainingTrace, folder: Path, at: int) -> Training:
    """Train, die at an update, go on."""
    path = folder / f"{at}.npz"

    def die(row: int, before: Params, after: Params) -> None:
        if row == at:
            raise KilledError

    with pytest.raises(KilledError):
        train(task(), trace, checkpoint=path, observe=die, evaluations=12)
    return train(task(), trace, checkpoint=path, evaluations=12)


@pytest.mark.parametrize("algorithm", ["plain-walk", "gossip"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, algorithm: str) -> None:
    """Parameters, evaluations and reason, wherever it was stopped; momentum and counts are part of that."""
    trace = (
        plain_trace(GRAPH, updates=96, seed=1, tokens=2) if algorithm == "plain-walk" else gossip_trace(GRAPH, rounds=8)
    )
    whole = train(task(), trace, evaluations=12)
    for at in (0, 1, 17, 50, 95):
        resumed = stopped_and_resumed(trace, tmp_path, at)
        assert resumed.points == whole.points
        assert resumed.reason == whole.reason
        for mine, other in zip(resumed.models, whole.models, strict=True):
            assert all(mine[name].tobytes() == other[name].tobytes() for name in other)


def test_forgetting_what_nodes_keep_would_be_noticed(tmp_path: Path) -> None:
    """Named mutant: a checkpoint that loses the momentum of the nodes."""
    trace = plain_trace(GRAPH, updates=96, seed=1)
    path = tmp_path / "c.npz"
    identity = f"{trace.digest} "
    with pytest.raises(KilledError):
        train(task(), trace, checkpoint=path, evaluations=12, observe=lambda row, *_: _stop(row))
    found = load_checkpoint(path, identity=identity)
    found.node_states = [{} for _ in found.node_states]
    save_checkpoint(path, found, identity=identity)
    wrong = train(task(), trace, checkpoint=path, evaluations=12)
    assert wrong.params["weight"].tobytes() != train(task(), trace).params["weight"].tobytes()


def _stop(row: int) -> None:
    if row == 60:
        raise KilledError


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    """Resuming it only reads."""
    trace = plain_trace(GRAPH, updates=40, seed=1)
    first = train(task(), trace, checkpoint=tmp_path / "c.npz")
    seen: list[int] = []
    again = train(task(), trace, checkpoint=tmp_path / "c.npz", observe=lambda row, *_: seen.append(row))
    assert seen == []
    assert again.points == first.points


def test_another_trace_does_not_go_on_from_it(tmp_path: Path) -> None:
    """The order of updates is part of the run's name."""
    train(task(), plain_trace(GRAPH, updates=40, seed=1), checkpoint=tmp_path / "c.npz")
    with pytest.raises(ConfigError, match="another run"):
        train(task(), plain_trace(GRAPH, updates=40, seed=2), checkpoint=tmp_path / "c.npz")


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, exit code of storage, the old file whole, no litter."""
    path = tmp_path / "c.npz"
    save_checkpoint(path, state(), identity="x")
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match=r"cannot write .*c\.npz: No space left on device") as caught:
        save_checkpoint(path, state(), identity="y")
    assert caught.value.exit_code == 4
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.npz"]


def test_checkpoints_are_not_written_more_often_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last, when there is no time between."""
    from veilwalk.learning import _training

    written: list[int] = []
    monkeypatch.setattr(_training, "save_checkpoint", lambda _, held, **__: written.append(held.done))
    train(task(), plain_trace(GRAPH, updates=40, seed=1), checkpoint=tmp_path / "c.npz", every_s=3600.0)
    assert written == [0, 40]
