"""Models that some nodes spoil, and nodes that test what they receive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError, TrainingError
from veilwalk.graphs import random_regular
from veilwalk.learning import (
    Acceptance,
    Held,
    Params,
    Partition,
    Partitions,
    Poison,
    Protection,
    SoftmaxLearner,
    Training,
    TrainingTask,
    gossip_trace,
    load_checkpoint,
    plain_trace,
    train,
)

GRAPH = random_regular(20, 3, seed=3)
TRACE = plain_trace(GRAPH, updates=400, seed=5)
STRICT = Acceptance(max_loss_ratio=1.1)


def task(**options: Any) -> TrainingTask:
    """Three classes that lie apart, twenty nodes with thirty rows each."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(3, 6))

    def rows(count: int) -> Partition:
        labels = rng.integers(3, size=count)
        return Partition((middles[labels] + 0.7 * rng.normal(size=(count, 6))).astype(np.float32), labels)

    learner = SoftmaxLearner(n_features=6, n_classes=3, learning_rate=0.3)
    parts = Partitions.of_parts([rows(30) for _ in range(20)])
    return TrainingTask(
        learner=learner, partitions=parts, held_out=rows(600), seed=2, mod=Protection(fade=20), **options
    )


def accuracy(run: Training) -> float:
    """Of the model that the run ends with."""
    found = run.points[-1].accuracy
    assert found is not None
    return found


CLEAN = train(task(), TRACE, evaluations=4)


@pytest.mark.parametrize("kind", ["sign-flip:10", "nan", "random:3"])
def test_t10_a_tenth_of_poisoners_costs_less_than_two_points(kind: str) -> None:
    """With the tests; without them the run is lost, which is what shows that there was something to refuse."""
    poison = Poison.parse(kind, 0.1)
    run = train(task(acceptance=STRICT, poison=poison), TRACE, evaluations=4)
    assert accuracy(run) > accuracy(CLEAN) - 0.02
    assert run.received["refused_poisoned"] > 0
    if kind == "nan":
        assert run.received["accepted_poisoned"] == 0
        with pytest.raises(TrainingError, match="accept finite refuses that"):
            train(task(poison=poison), TRACE, evaluations=4)
    else:
        assert accuracy(train(task(poison=poison), TRACE, evaluations=4)) < accuracy(CLEAN) - 0.1


def test_tests_that_refuse_nothing_change_nothing() -> None:
    """An honest run ends with the same bits whether models are tested or not, where no test fails."""
    tested = train(task(acceptance=Acceptance(max_loss_ratio=100)), TRACE, evaluations=4)
    assert tested.received == {
        "refused_honest": 0,
        "refused_poisoned": 0,
        "accepted_poisoned": 0,
        "newer_held": 0,
        "age": 400,
    }
    for name, array in CLEAN.params.items():
        assert tested.params[name].tobytes() == array.tobytes()


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    """What nodes hold, how old models are and what was refused is in the checkpoint."""
    about: dict[str, Any] = {"acceptance": STRICT, "poison": Poison.parse("sign-flip:10", 0.1)}
    whole = train(task(**about), TRACE, evaluations=4)
    path = tmp_path / "c.npz"

    class StopError(Exception):
        pass

    def stop(done: int, _total: int, point: Any) -> None:
        if point is not None and 20 < done < 400:
            raise StopError

    with pytest.raises(StopError):
        train(task(**about), TRACE, evaluations=4, checkpoint=path, tell=stop)
    assert 0 < load_checkpoint(path, identity=None).done < 400
    went_on = train(task(**about), TRACE, evaluations=4, checkpoint=path)
    assert went_on.received == whole.received
    assert went_on.points == whole.points
    for name, array in whole.params.items():
        assert went_on.params[name].tobytes() == array.tobytes()
        assert load_checkpoint(path, identity=None).honest_models[0][name].tobytes() == array.tobytes()


def loss_of(params: Params) -> float:
    """A loss that is the number itself."""
    return float(params["a"][0])


def test_a_model_is_held_against_the_best_that_was_accepted() -> None:
    """By loss as a ratio, by norm for each update in between; what is not finite never passes."""
    held = Held(params={"a": np.array([2.0])}, age=10, loss=1.0)

    def accepted(rule: Acceptance, value: float, age: int = 11) -> bool:
        return rule.test({"a": np.array([value])}, held, age=age, loss_of=loss_of)[0]

    assert accepted(STRICT, 1.1)
    assert not accepted(STRICT, 1.11)
    # The mutant compares with the loss of the node's own model, 2: it would let this through.
    assert not accepted(STRICT, 2.2)
    # A model of 2 is good enough for a node that refused it twice: it was lucky once, and forgets it.
    refused = held
    for _ in range(2):
        passed, least = STRICT.test({"a": np.array([2.0])}, refused, age=11, loss_of=loss_of)
        assert not passed
        refused = Held(params=held.params, age=10, loss=least)
    assert STRICT.test({"a": np.array([2.0])}, refused, age=11, loss_of=loss_of) == (True, 2.0)
    assert accepted(Acceptance(max_step=0.5), 2.5)
    assert not accepted(Acceptance(max_step=0.5), 2.6)
    assert accepted(Acceptance(max_step=0.5), 2.6, age=12)
    for bad in (np.nan, np.inf):
        assert not accepted(Acceptance(), bad)
    assert accepted(Acceptance(), 1e30)


def test_a_model_without_any_loss_is_forgotten_like_others() -> None:
    """Anybody can make one for rows of one class; were it the measure for ever, all honest models would be refused."""
    rule, held, losses = Acceptance(max_loss_ratio=1.5), Held(params={}, loss=2.0), []
    assert rule.test({}, held, age=1, loss_of=lambda _: 0.0) == (True, 0.0)
    is_accepted, least = False, 0.0
    while not is_accepted:
        is_accepted, least = rule.test({}, Held(params={}, loss=least), age=1, loss_of=lambda _: 1.0)
        losses.append(least)
        assert len(losses) < 60


def test_a_drift_that_shows_in_no_step_goes_through() -> None:
    """What the tests do not catch, kept so that nobody claims more: all poisoners push one way, an update's length."""
    run = train(task(acceptance=STRICT, poison=Poison.parse("drift", 0.1)), TRACE, evaluations=4)
    assert run.received["accepted_poisoned"] > 10 * run.received["refused_poisoned"]


@pytest.mark.parametrize(
    "text", ["los:2", "loss", "loss:-1", "loss:0", "loss:1,loss:2", "norm:x", "loss:.", "loss:1.2.3", "none,loss:2", ""]
)
def test_tests_that_cannot_be_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParameterError, match="accept"):
        Acceptance.parse(text)


def test_words_become_rules() -> None:
    assert Acceptance.parse("none") is None
    assert Acceptance.parse("finite") == Acceptance()
    assert Acceptance.parse("loss:1.5,norm:2e-1") == Acceptance(max_loss_ratio=1.5, max_step=0.2)
    assert Poison.parse("none", 0.1) is None
    assert Poison.parse("sign-flip", 0.1) == Poison(kind="sign-flip", scale=10, share=0.1)
    for text, share in (("flip", 0.1), ("nan:x", 0.1), ("nan", 1.0), ("random:0", 0.1)):
        with pytest.raises(InvalidParameterError):
            Poison.parse(text, share)


def test_gossip_is_neither_tested_nor_spoilt() -> None:
    with pytest.raises(InvalidParameterError, match="gossip"):
        train(task(acceptance=STRICT), gossip_trace(GRAPH, rounds=1))
