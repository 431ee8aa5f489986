"""Nothing before the noise shows whether a node has data, whatever model it receives and whatever its learner does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns.chaos_plan import tally_plan

from veilwalk.core.walk import Walk
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import (
    LinearLearner,
    MlpLearner,
    Params,
    Partition,
    Protection,
    SoftmaxLearner,
    StepContext,
    UpdateResult,
    apply_update,
)
from veilwalk.node import RunRules
from veilwalk.node.cluster import prepare_cluster
from veilwalk.node.members import Manifest, array_specs, encode_params, load_root_public_key
from veilwalk.node.peer import load_config
from veilwalk.node.peer._trainer import Task, TrainingJob

N_FEATURES, N_CLASSES, N_ROWS = 5, 3, 6
CLIP, NOISE = 0.25, 1.5
torch = pytest.importorskip("torch")


class Fragile(SoftmaxLearner):
    """Fails in a way of its own as soon as there are rows and a number of the model is large."""

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return an update, or fail as the size of the model says."""
        result = super(SoftmaxLearner, self).update(params, data, ctx)
        largest = max(float(np.abs(array).max()) for array in params.values())
        if not len(data) or not largest > 4:
            return result
        match int(np.log2(largest)) % 7 if np.isfinite(largest) else 0:
            case 0:
                raise MemoryError
            case 1:
                raise SystemExit
            case 2:
                return replace(result, params={"weight": result.params["weight"]})
            case 3:
                return replace(result, params={n: a.astype(np.float64) for n, a in result.params.items()})
            case 4:
                return replace(result, params={n: a[:1] for n, a in result.params.items()})
            case 5:
                ctx.state["unwritable"] = np.array([object()])
                return result
            case _:
                return replace(result, params=dict.fromkeys(result.params, np.ones(7, dtype=np.int8)))


def torch_learner() -> Any:
    from veilwalk.learning.torch_learner import TorchLearner

    return TorchLearner(module_fn=lambda: torch.nn.Linear(N_FEATURES, N_CLASSES), batch_size=0)


SIZES: dict[str, Any] = {"n_features": N_FEATURES, "n_classes": N_CLASSES, "batch_size": 0}
LEARNERS: dict[str, Any] = {
    "softmax": SoftmaxLearner(**SIZES),
    "momentum": SoftmaxLearner(**SIZES, momentum=0.9, local_steps=2),
    "mlp": MlpLearner(**SIZES, hidden=4),
    "linear": LinearLearner(**SIZES | {"n_classes": 0}),
    "torch": torch_learner(),
    "fragile": Fragile(**SIZES),
}
BY_ROW = ["softmax", "mlp", "linear", "torch"]


def rows(name: str, seed: int, largest: float = 1.0) -> Partition:
    """Some rows with labels that fit the learner; the last one has the largest numbers."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(0, 1, (N_ROWS, N_FEATURES)).astype(np.float32)
    features[-1] *= np.float32(largest)
    labels = rng.uniform(0, 1, N_ROWS).astype(np.float32) if name == "linear" else rng.integers(0, N_CLASSES, N_ROWS)
    return Partition(features, labels)


@st.composite
def received_models(draw: st.DrawFn, name: str, *, finite: bool = False) -> dict[str, Any]:
    """A model that somebody sent: of one size, of many sizes, or with numbers that are none."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first = LEARNERS[name].init_params(rng)
    kind = draw(st.sampled_from(["constant", "signs", "sizes", "usual"] + ([] if finite else ["broken"])))
    # A manifest bounds the norm; most of what is below 1 is alike.
    power = draw(st.integers(-5, 17) if finite else st.integers(-149, 127))
    model: dict[str, Any] = {}
    for key, array in first.items():
        signs = rng.choice([-1.0, 1.0], array.shape)
        powers = rng.integers(-149, max(power, -148), array.shape)
        sizes = {
            "constant": np.full(array.shape, 2.0**power),
            "signs": signs * 2.0**power,
            "sizes": signs * 2.0**powers,
            "usual": rng.normal(size=array.shape),
            "broken": np.where(rng.random(array.shape) < 0.3, rng.choice([np.nan, np.inf, -np.inf]), signs),
        }
        model[key] = sizes[kind].astype(array.dtype)
    return model


class FixedNoise:
    """The same noise in both worlds, so that only the data make a difference."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(5)

    def standard_normal(self, shape: tuple[int, ...], /) -> Any:
        """Return the next numbers."""
        return self._rng.standard_normal(shape)


def update(name: str, protection: Protection, model: Params, data: Partition) -> Params:
    """Make one update as the simulator does, with fixed noise."""
    learner, secret = protection.learner(LEARNERS[name]), FixedNoise()
    return apply_update(
        learner, model, data, seed=1, node=0, step=0, state={}, mod=protection.mod(), secret=secret.standard_normal
    ).params


def assert_close(one: Params, other: Params, bound: float) -> None:
    """Check that two models differ by ``bound`` at most, and by what rounding to their own type may add."""
    total, rounding = 0.0, 0.0
    for name, array in one.items():
        assert np.array_equal(np.isfinite(array), np.isfinite(other[name]))
        usable = np.isfinite(array)
        left, right = array[usable].astype(np.float64), other[name][usable].astype(np.float64)
        total += float(np.sum((left - right) ** 2))
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.spacing(np.maximum(np.abs(array[usable]), np.abs(other[name][usable])))
        rounding += float(np.sum(np.nan_to_num(steps.astype(np.float64), nan=2.0**104) ** 2))
    assert total**0.5 <= bound * (1 + 1e-9) + 2 * rounding**0.5


@pytest.mark.parametrize("name", LEARNERS)
@given(data=st.data())
@settings(max_examples=60)
def test_a_node_with_data_is_within_the_clip_norm_of_one_without(name: str, data: st.DataObject) -> None:
    """With the same noise: whatever came, and whether or not the learner failed on it."""
    model = data.draw(received_models(name))
    mine = rows(name, data.draw(st.integers(0, 99)))
    protection = Protection(clip=CLIP, noise=NOISE)
    with np.errstate(all="ignore"):
        assert_close(
            update(name, protection, model, mine),
            update(name, protection, model, Partition(mine.features[:0], mine.labels[:0])),
            CLIP,
        )


@pytest.mark.parametrize("name", BY_ROW)
@given(data=st.data())
@settings(max_examples=60)
def test_one_row_moves_a_protected_step_by_its_share_at_most(name: str, data: st.DataObject) -> None:
    """With the same noise, whatever model came and however large the row is."""
    model = data.draw(received_models(name))
    mine = rows(name, data.draw(st.integers(0, 99)), largest=2.0 ** data.draw(st.integers(-20, 60)))
    protection = Protection(clip=CLIP, noise=NOISE, rows=N_ROWS)
    step_size = 0.1 if name == "torch" else LEARNERS[name].learning_rate
    with np.errstate(all="ignore"):
        assert_close(
            update(name, protection, model, mine),
            update(name, protection, model, Partition(mine.features[:-1], mine.labels[:-1])),
            step_size * CLIP / N_ROWS,
        )


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """A manifest to be filled in."""
    configs = prepare_cluster(tmp_path_factory.mktemp("run") / "c", tally_plan(parse_graph_spec("ring:4"), updates=20))
    root = load_root_public_key(load_config(configs[0]).root)
    return Manifest.load(configs[0].parent.parent / "manifest.json", root)


def visible(task: Task, model: bytes) -> tuple[object, ...]:
    """What others may see of an update besides its numbers: whether it was refused, and what goes on in its place."""
    learnt = task.update(TrainingJob(received=model, own=None, iteration=3, step=0, state=b""))
    counts = [count for count in learnt.counts if count != "learner_failures"]
    return learnt.own, learnt.state is None, counts, learnt.reached, len(learnt.model)


@pytest.mark.parametrize("unit", ["node", "record"])
@pytest.mark.parametrize("name", LEARNERS)
@given(data=st.data())
@settings(max_examples=25)
def test_a_node_with_data_refuses_what_one_without_refuses(
    manifest: Manifest, name: str, unit: str, data: st.DataObject
) -> None:
    """Through what real nodes run; broken models never get so far, for their bytes are refused before."""
    if unit == "record" and name not in BY_ROW:
        return
    model: Mapping[str, Any] = data.draw(received_models(name, finite=True))
    run = replace(manifest, arrays=array_specs(dict(model)))
    rules = RunRules(
        walk=Walk("simple"), updates=9, late_hops=9, clip=CLIP, noise=NOISE, rows=N_ROWS if unit == "record" else 0
    )
    mine = rows(name, data.draw(st.integers(0, 99)))
    empty = Partition(mine.features[:0], mine.labels[:0])
    body = encode_params(run, model)
    with np.errstate(all="ignore"):
        worlds = [
            visible(Task(learner=LEARNERS[name], data=part, manifest=run, index=0, rules=rules), body)
            for part in (mine, empty)
        ]
    assert worlds[0] == worlds[1]


@pytest.mark.parametrize("power", range(6, 15))
def test_the_model_of_an_outside_attacker_is_answered_alike(manifest: Manifest, power: int) -> None:
    """All numbers 2^11: of 150 nodes with data 148 refused it, of those without none. Which size does so depends."""
    rules = RunRules(walk=Walk("simple"), updates=9, late_hops=9, clip=0.03, noise=1.5)
    learner = SoftmaxLearner(n_features=64, n_classes=10, batch_size=0)
    first = learner.init_params(np.random.default_rng(0))
    model = {name: np.full_like(array, 2.0**power) for name, array in first.items()}
    run = replace(manifest, arrays=array_specs(model))
    rng = np.random.default_rng(3)
    for _ in range(20):
        part = Partition(rng.uniform(0, 1, (10, 64)).astype(np.float32), rng.integers(0, 10, 10))
        task = Task(learner=learner, data=part, manifest=run, index=0, rules=rules)
        assert visible(task, encode_params(run, model)) == (False, False, ["updates"], False, run.body_bytes)


def test_the_owner_of_a_simulated_run_is_told_of_failures(tmp_path: Path) -> None:
    """In a warning of the run; the models do not show it."""
    import veilwalk as vw

    run = vw.train(
        vw.choose_scheme(parse_graph_spec("rrg:20:3:seed=1")),
        data="digits",
        learner=_FailsWithData(n_features=64, n_classes=10),
        updates=30,
        attack=0,
        compare="none",
        clip=CLIP,
        noise=NOISE,
        out=tmp_path / "run",
    )
    assert run.trainings["private-walk"].learner_failures == 30
    assert any("failed at 30 of 30" in warning for warning in run.warnings)


class _FailsWithData(SoftmaxLearner):
    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Fail."""
        raise RuntimeError
