"""Training in a process of its own: it answers, it is replaced when it dies, and it dies with its node."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.campaigns.chaos_plan import tally_plan
from tests.helpers.members import greet, message_for, offer

from veilwalk.core.errors import ConfigError, InvalidParameterError, LearnerError
from veilwalk.core.walk import SIMPLE
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import Partition, Protection, make_learner
from veilwalk.node import RunRules
from veilwalk.node.cluster import LEAST_DWELL_S, measured_dwell, prepare_cluster, trial_data
from veilwalk.node.members import (
    Manifest,
    RunFigures,
    array_specs,
    decode_params,
    encode_params,
    load_root_public_key,
    params_distance,
)
from veilwalk.node.peer import load_config
from veilwalk.node.peer._assemble import load_task
from veilwalk.node.peer._trainer import Task, TrainingJob, TrainingOutcome
from veilwalk.node.peer._worker import Worker

KILLER = '''
import os, signal, time
import numpy as np
from tests.campaigns.chaos_tally import Tally

class Killer(Tally):
    """Dies on some models, as a fault of a library would."""
    def update(self, params, data, ctx):
        if params["counts"][0] == 7 or data.features[0][1]:
            os.kill(os.getpid(), signal.SIGKILL)
        if params["counts"][0] == 8 or data.features[0][2]:
            time.sleep(1000)
        print("loss 0.3", flush=True)
        os.system("echo loss 0.3 >&2")
        return super().update(params, data, ctx)
'''


def until(done: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


@pytest.fixture
def cluster(tmp_path: Path) -> list[Path]:
    """Four nodes with a learner that counts."""
    return prepare_cluster(tmp_path / "cluster", tally_plan(parse_graph_spec("ring:4"), updates=20))


def manifest_of(config: Path) -> Manifest:
    return Manifest.load(config.parent.parent / "manifest.json", load_root_public_key(load_config(config).root))


@pytest.fixture
def started() -> Iterator[list[Worker]]:
    """Workers that are stopped when the test ends."""
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        worker.close()


def lesson(*counts: int, own: bytes | None = None) -> TrainingJob:
    body = np.array([*counts, 0], dtype="<i8").tobytes()
    return TrainingJob(received=body, own=own, iteration=3, step=1, state=b"")


def test_a_worker_does_what_the_task_does(cluster: list[Path], started: list[Worker]) -> None:
    """The same model, counts and memory, from plain bytes; at low priority."""
    worker = Worker(cluster[2])
    started.append(worker)
    worker.begin(manifest_of(cluster[2]), 2)
    task = load_task(load_config(cluster[2]), manifest_of(cluster[2]), index=2)
    assert worker.first() == task.first()
    assert worker.update(lesson(1, 0, 0, 0)) == task.update(lesson(1, 0, 0, 0))
    assert worker.reaches_target(worker.first()) is False
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    pid = worker.pid
    worker.close()
    assert is_gone(pid)


@pytest.fixture
def killers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Four nodes whose learner dies of a model that begins with 7, and n1's always; of 8, and n2's, it never ends."""
    (tmp_path / "killer.py").write_text(KILLER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.delitem(sys.modules, "killer", raising=False)
    from killer import Killer  # type: ignore[import-not-found]

    plan = tally_plan(parse_graph_spec("ring:4"), updates=20)
    learner = Killer(n_features=4, n_classes=1)
    return prepare_cluster(
        tmp_path / "cluster", replace(plan, learner=learner, spec=plan.spec.change(learner="killer:Killer"))
    )


@pytest.mark.parametrize(
    "case",
    [
        (0, 7, ("updates", "refused")),
        (1, 7, ("learner_failures",)),
        (2, 8, ("learner_failures", "out_of_time", "out_of_time")),
    ],
)
def test_finding_16_a_worker_that_dies_or_hangs_is_replaced(
    case: tuple[int, int, tuple[str, ...]],
    killers: list[Path],
    started: list[Worker],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of a message: the node's own model is trained. Of its own data: what came goes on. Then it works again.

    Nothing that a learner prints is seen: a line, and its time, would say that the node trained.
    """
    index, poison, counts = case
    worker = Worker(killers[index])
    started.append(worker)
    worker.begin(manifest_of(killers[index]), index, limit_s=None if poison == 7 else 0.3)
    pid = worker.pid
    found = worker.update(lesson(poison, 0, 0, 0))
    assert found.counts == counts
    assert is_gone(pid)
    assert np.frombuffer(found.model, dtype="<i8")[0] == (1 if index == 0 else poison)
    if index == 0:
        assert worker.update(lesson(3, 0, 0, 0)).counts == ("updates",)
    assert capfd.readouterr() == ("", "")


def test_a_learner_that_never_loads_ends_the_start(
    killers: list[Path], started: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, and the process is gone; where memory runs out the kernel is to take it before the node."""
    monkeypatch.setattr("veilwalk.node.peer._worker._LEAST_LOADING_S", 0.1)
    # Nothing is written into it: to open it for reading never ends.
    os.mkfifo(killers[0].parent / "fifo.npz")
    killers[0].write_text(killers[0].read_text().replace('data = "data.npz"', 'data = "fifo.npz"'))
    worker = Worker(killers[0])
    started.append(worker)
    until(lambda: Path(f"/proc/{worker.pid}/oom_score_adj").read_text() == "500\n")
    pid = worker.pid
    with pytest.raises(LearnerError, match=r"not loaded after 0\.2 s \(training_s\)"):
        worker.begin(manifest_of(killers[0]), 0, limit_s=0.2)
    assert is_gone(pid)


def test_what_does_not_fit_is_refused_at_the_start(cluster: list[Path], started: list[Worker]) -> None:
    """By the process that trains, in one line, with the exit code of bad input."""
    np.savez(cluster[0].parent / "data.npz", features=np.zeros((1, 9)), labels=np.zeros(1, dtype=np.int64))
    worker = Worker(cluster[0])
    started.append(worker)
    with pytest.raises(ConfigError, match="9"):
        worker.begin(manifest_of(cluster[0]), 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_finding_16_a_worker_dies_with_its_node(cluster: list[Path], number: signal.Signals) -> None:
    """However hard the node is stopped; and the node does not load the learner itself."""
    log = cluster[0].parent / "log.jsonl"
    with log.open("wb") as stream:
        node = subprocess.Popen([sys.executable, "-m", "veilwalk.node", str(cluster[0])], stderr=stream)
    try:
        until(lambda: b'"started"' in log.read_bytes())
        (worker,) = map(int, Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split())
        node.send_signal(number)
        assert node.wait(20) == (-number if number is signal.SIGKILL else 0)
        until(lambda: is_gone(worker))
    finally:
        node.kill()
        node.wait()


def test_finding_16_the_dwell_is_chosen_by_a_trial_and_overruns_are_counted(
    network: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as much again as the slowest update; a training that takes longer is counted."""

    class Slow:
        def __init__(self, learner: Any, naps: list[float]) -> None:
            self.init_params, self.evaluate, self._learner, self._naps = (
                learner.init_params,
                learner.evaluate,
                learner,
                naps,
            )

        def update(self, *values: Any) -> Any:
            """Take a while."""
            time.sleep(self._naps.pop())
            return self._learner.update(*values)

    async def main() -> Any:
        net = network(4, starts=False, rules=RunRules(walk=SIMPLE, updates=400, late_hops=1e9, dwell_s=0.2))
        task = net.parts["n1"].task
        net.change("n1", task=replace(task, learner=Slow(task.learner, [0.3, 0.0])))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq in (1, 2):
            await offer(connection, seq, message_for(net, "n1", counts=[0.0] * 4, iteration=seq))
            await net.until(lambda seq=seq: net.tally("updates") == seq)
        await net.until(lambda: net.tally("dwell_overruns") == 1)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("dwell_overruns") == 1
    task = net.parts["n0"].task
    slept = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: slept[0])
    monkeypatch.setattr(time, "sleep", lambda nap: slept.append(slept.pop() + nap))
    assert measured_dwell(task.learner, task.data, Protection()) == LEAST_DWELL_S
    # The first, here the last, also loads what a learner needs.
    assert measured_dwell(
        Slow(task.learner, [0.01, 0.06, 0.01, 0.01, 0.01, 0.5]), task.data, Protection()
    ) == pytest.approx(0.09, abs=0.006)
    with pytest.raises(ConfigError, match="--dwell"):
        measured_dwell(Slow(task.learner, []), task.data, Protection())


def test_noise_and_clipping_are_the_simulators_and_the_noise_is_the_systems(cluster: list[Path]) -> None:
    """Its spread is the multiplier times the clip; two updates of the same step get different noise."""
    learner = make_learner("softmax", n_features=40, n_classes=10)
    data = trial_data(rows=50, n_features=40, n_classes=10)
    first = dict(learner.init_params(np.random.default_rng(0)))
    manifest = replace(manifest_of(cluster[0]), arrays=array_specs(first))

    def update(*, step: int = 0, **rules: Any) -> dict[str, Any]:
        whole = RunRules(walk=SIMPLE, updates=9, late_hops=9, **rules)
        task = Task(learner=learner, data=data, manifest=manifest, index=0, rules=whole)
        body = encode_params(manifest, first)
        learnt = task.update(TrainingJob(received=body, own=None, iteration=0, step=step, state=b""))
        return dict(decode_params(manifest, learnt.model))

    plain, clipped = update(), update(clip=1e-3)
    assert params_distance(plain, first) > 1e-2
    assert params_distance(clipped, first) == pytest.approx(1e-3, rel=1e-3)
    one, other = update(clip=0.5, noise=2.0), update(clip=0.5, noise=2.0)
    assert params_distance(one, other) > 1
    spread = np.concatenate([(one[name] - plain[name]).ravel() for name in one])
    assert np.std(spread) == pytest.approx(1.0, rel=0.2)
    with pytest.raises(InvalidParameterError, match="clip"):
        RunRules(walk=SIMPLE, updates=9, late_hops=9, noise=1.0)
    # Rows for themselves: step size x noise x clip / rows; after its share of updates a node hands on what came.
    one, other = update(clip=0.5, noise=20.0, rows=10), update(clip=0.5, noise=20.0, rows=10)
    spread = np.concatenate([(one[name] - other[name]).ravel() for name in one])
    assert np.std(spread) == pytest.approx(0.1 * 20 * 0.5 / 10 * 2**0.5, rel=0.2)
    spent = update(clip=0.5, noise=2.0, most_updates=3, step=3)
    assert params_distance(spent, first) == 0
    for train_probability in (0.0, 1.5):
        with pytest.raises(InvalidParameterError, match="train_probability"):
            RunRules(walk=SIMPLE, updates=9, late_hops=9, train_probability=train_probability)
    with pytest.raises(InvalidParameterError, match=r"^rows = 10"):
        RunRules(walk=SIMPLE, updates=9, late_hops=9, rows=10)


@pytest.mark.parametrize("noise", [2.0, 0.0])
def test_what_hangs_under_noise_is_tried_again_without_data(
    cluster: list[Path], monkeypatch: pytest.MonkeyPatch, noise: float
) -> None:
    """The same model, so that nobody sees that data made it hang; without noise, this node's own model."""
    worker = object.__new__(Worker)
    figures = RunFigures(late_hops=9.0, clip=0.5, noise=noise)
    worker._task = replace(manifest_of(cluster[0]), figures=figures), 0
    attempts: list[TrainingJob] = []

    def hang_once(attempt: TrainingJob) -> TrainingOutcome:
        attempts.append(attempt)
        if len(attempts) == 1:
            raise TimeoutError
        return TrainingOutcome(model=b"", state=b"", counts=("updates",))

    monkeypatch.setattr(worker, "_ask", hang_once)
    monkeypatch.setattr(worker, "_replace", lambda: None)
    asked = lesson(1, 0, 0, 0)
    assert worker.update(asked).counts == ("updates", "out_of_time")
    assert attempts[0] == asked
    assert attempts[1] == (replace(asked, without_data=True) if noise else replace(asked, received=None))


def test_an_update_without_data_does_not_ask_them(cluster: list[Path]) -> None:
    """Whatever the rows would do to the learner; with them the owner is told that it failed."""
    learner = make_learner("softmax", n_features=4, n_classes=3)
    first = dict(learner.init_params(np.random.default_rng(0)))
    # Labels beyond the classes make the learner fail.
    data = Partition(np.ones((5, 4), dtype=np.float32), np.full(5, 99))
    rules = RunRules(walk=SIMPLE, updates=9, late_hops=9, clip=0.5, noise=2.0)
    manifest = replace(manifest_of(cluster[0]), arrays=array_specs(first))
    task = Task(learner=learner, data=data, manifest=manifest, index=0, rules=rules)
    asked = TrainingJob(received=encode_params(manifest, first), own=None, iteration=0, step=0, state=b"")
    assert task.update(asked).counts == ("updates", "learner_failures")
    assert task.update(replace(asked, without_data=True)).counts == ("updates",)


@pytest.mark.parametrize("payload", ["fp32", "int8"])
def test_an_untrained_model_is_worked_on_as_long_as_a_trained_one(cluster: list[Path], payload: str) -> None:
    """By chance, or after the share: the learner makes an update each time, and nothing of it is kept."""
    made: list[int] = []
    learner = make_learner("softmax:momentum=0.5", n_features=4, n_classes=3)
    first = dict(learner.init_params(np.random.default_rng(0)))

    class Counting:
        init_params, evaluate = learner.init_params, learner.evaluate

        def update(self, params: Any, data: Any, ctx: Any) -> Any:
            """Count it."""
            made.append(ctx.step)
            return learner.update(params, data, ctx)

    manifest = replace(manifest_of(cluster[0]), arrays=array_specs(first))
    manifest = replace(manifest, spec=manifest.spec.change(payload=payload))
    rules = RunRules(walk=SIMPLE, updates=9, late_hops=9, most_updates=3)
    data = trial_data(rows=50, n_features=4, n_classes=3)
    task = Task(learner=Counting(), data=data, manifest=manifest, index=0, rules=rules)
    body = encode_params(manifest, {name: array + np.float32(0.1) for name, array in first.items()})
    asked = TrainingJob(received=body, own=None, iteration=4, step=2, state=b"")
    trained = task.update(asked)
    assert trained.model != body
    assert trained.counts == ("updates",)
    state = trained.state or b""
    assert state
    blank = task.update(replace(asked, state=state, is_blank=True))
    # Not counted as an update, so that it is no part of the run's.
    assert (blank.model, blank.state, blank.moved, blank.counts) == (body, None, None, ("passed_on",))
    spent = task.update(replace(asked, state=state, step=3))
    assert (spent.model, spent.state, spent.moved, spent.counts) == (body, state, None, ("passed_on",))
    assert made == [2, 2, 3]
