"""Ratings in MovieLens' format, their factorisation, and what a threshold on the loss tells of who was trained on."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.graphs import random_regular
from veilwalk.learning import (
    FactorisationLearner,
    Learner,
    Params,
    Partition,
    apply_update,
    check_learner,
    load_data,
    make_learner,
    parse_partition_spec,
    partitions_of,
    row_losses,
)
from veilwalk.training import Scenario, TrainSettings, run_training, threshold_auc

N_USERS, N_ITEMS = 24, 30


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return made-up ratings in the format of the real file: sparse ids, halves, a time that nobody reads."""
    rng = np.random.default_rng(4)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(N_USERS):
        for item in rng.choice(N_ITEMS, size=12, replace=False):
            rating = np.clip(round(2 * (3 + np.sin(user) + np.cos(item) + rng.normal(0, 0.6))) / 2, 0.5, 5)
            lines.append(f"{user + 1},{item * 7 + 1},{rating},964982703")
    path = tmp_path_factory.mktemp("ratings") / "ratings.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_ratings_are_numbered_and_held_out_by_user(sample: Path) -> None:
    """Three of every ten of each user; users and items from 0 without a gap; ratings as they stand."""
    data = load_data(f"ratings:{sample}", seed=1)
    assert (len(data.train), len(data.test), data.n_features, data.n_classes) == (24 * 9, 24 * 3, 2, 0)
    assert np.bincount(data.test.features[:, 0].astype(int)).tolist() == [3] * N_USERS
    items = np.concatenate((data.train.features[:, 1], data.test.features[:, 1]))
    assert set(np.unique(items)) <= set(range(N_ITEMS))
    assert set(np.unique(data.train.labels)) <= set(np.arange(1, 11) / 2)
    assert data.owner == 0
    assert np.array_equal(data.columns["user"], data.train.features[:, 0])
    assert not np.array_equal(data.test.features, load_data(f"ratings:{sample}", seed=2).test.features)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("userId,movieId,stars\n1,2,3\n", "has no column rating"),
        ("userId,movieId,rating\n1,2,good\n1,3,4\n", "line 2, column rating: 'good' is not a number"),
        ("userId,movieId,rating\n1,2,3\n2,2,4\n", "no user has two ratings"),
    ],
)
def test_a_file_that_holds_no_ratings_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """In one line that says what is missing."""
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(InputFileError, match=message):
        load_data(f"ratings:{path}")


def test_made_up_ratings_have_the_shape_of_the_real_ones(tmp_path: Path) -> None:
    """The example writes a file that the loader reads: users with twenty ratings or more each."""
    example = Path(__file__).parents[3] / "examples" / "comparisons" / "make_ratings.py"
    made = runpy.run_path(str(example))
    made["main"](str(tmp_path / "ratings.csv"), "60")
    data = load_data(f"ratings:{tmp_path / 'ratings.csv'}")
    rated = np.bincount(np.concatenate((data.train.features[:, 0], data.test.features[:, 0])).astype(int))
    assert len(rated) == 60
    assert rated.min() >= 20
    assert 6_000 < rated.sum() < 14_000
    assert (data.train.labels.min(), data.train.labels.max()) == (0.5, 5.0)


def test_users_are_grouped_in_their_order(sample: Path) -> None:
    """24 users on 10 nodes: four of three, six of two; more nodes than users cannot be."""
    data = load_data(f"ratings:{sample}")
    graph = random_regular(10, 3, seed=1)
    parts = partitions_of(parse_partition_spec("groups:user", graph=graph, seed=0), data)
    users = [sorted(set(part.features[:, 0].astype(int).tolist())) for part in parts]
    assert [len(one) for one in users] == [3, 3, 3, 3, 2, 2, 2, 2, 2, 2]
    assert [user for one in users for user in one] == list(range(24))
    with pytest.raises(InvalidParameterError, match="at most 24"):
        partitions_of(parse_partition_spec("groups:user", graph=random_regular(26, 3, seed=1), seed=0), data)


def updated(learner: Learner, params: Params, data: Partition) -> Params:
    """Return the model after one update."""
    return apply_update(learner, params, data, seed=1, node=0, step=0, state={}).params


def test_factorisation_is_a_learner_that_learns(sample: Path) -> None:
    """It keeps the contract, its step is the slope of its loss, and the error falls."""
    data = load_data(f"ratings:{sample}", seed=1)
    spec = f"factorisation:users={N_USERS}:items={N_ITEMS}:factors=4:learning_rate=0.5:batch_size=1000"
    learner = make_learner(spec, n_features=2, n_classes=0)
    assert isinstance(learner, FactorisationLearner)
    check_learner(learner, data.train)
    params: Params = {
        name: np.float32(10) * value for name, value in learner.init_params(np.random.default_rng(1)).items()
    }
    made = updated(learner, params, data.train)
    for name, at in (("user", (3, 1)), ("item", (5, 2))):
        high, low = (dict(params) | {name: params[name].copy()} for _ in range(2))
        high[name][at] += 1e-2
        low[name][at] -= 1e-2
        slope = (learner.evaluate(high, data.train)["loss"] - learner.evaluate(low, data.train)["loss"]) / 2e-2
        assert made[name][at] - params[name][at] == pytest.approx(-0.5 * slope, rel=2e-2, abs=1e-5)
    for _ in range(60):
        params = updated(learner, params, data.train)
    found = learner.evaluate(params, data.test)
    assert found["rmse"] == pytest.approx(found["loss"] ** 0.5)
    assert found["rmse"] < 1.6
    with pytest.raises(InvalidParameterError, match="items"):
        make_learner("factorisation:items=5", n_features=2, n_classes=0).evaluate(params, data.train)
    with pytest.raises(InvalidParameterError, match="no ratings"):
        make_learner("factorisation", n_features=4, n_classes=2)


def test_the_area_under_the_curve_by_counting() -> None:
    """Every pair compared by hand; a mutant that takes the losses the other way round is its complement."""
    rng = np.random.default_rng(2)
    members, others = rng.integers(0, 6, 13).astype(float), rng.integers(1, 7, 17).astype(float)
    pairs = [1.0 if a < b else 0.5 if a == b else 0.0 for a in members for b in others]
    assert threshold_auc(members, others) == pytest.approx(np.mean(pairs))
    assert threshold_auc(-members, -others) == pytest.approx(1 - np.mean(pairs))
    with pytest.raises(InvalidParameterError, match="rows"):
        threshold_auc(members, others[:0])


def test_a_learner_without_row_losses_is_asked_row_by_row() -> None:
    """As those with them say."""

    class Plain:
        def __init__(self, inner: FactorisationLearner) -> None:
            self.init_params, self.update, self.evaluate = inner.init_params, inner.update, inner.evaluate

    learner = FactorisationLearner(n_features=2, n_classes=0, users=3, items=3)
    rows = Partition(np.array([[0, 1], [2, 2]], dtype=np.float32), np.array([3.0, 1.5], dtype=np.float32))
    params = learner.init_params(np.random.default_rng(0))
    assert row_losses(Plain(learner), params, rows) == pytest.approx(row_losses(learner, params, rows))


def test_who_overfits_is_inferred_and_who_does_not_learn_is_not(sample: Path) -> None:
    """A model fitted hard to few rows gives its maker's rows away; one that never moved tells next to nothing."""
    spec = f"factorisation:users={N_USERS}:items={N_ITEMS}:factors=12:batch_size=64"
    common: dict[str, Any] = {
        "graph": "rrg:12:3:seed=1",
        "data": f"ratings:{sample}",
        "partition": "groups:user",
        "updates": 120,
        "attack": 0,
        "compare": "gossip,central",
        "membership": 48,
        "scheme": "paper",
        "evaluations": 2,
    }
    found = {}
    for rate in (1e-6, 0.4):
        asked = TrainSettings(**common, learner=f"{spec}:local_steps=20:learning_rate={rate}")
        found[rate] = run_training(Scenario.of(asked), asked).record().result["membership"]
    assert found[0.4]["central"] is None
    assert found[0.4]["private-walk"]["updates"] == 48
    assert found[0.4]["gossip"]["auc"] > 0.6
    assert found[0.4]["private-walk"]["auc"] > 0.6
    assert found[1e-6]["private-walk"]["auc"] == pytest.approx(0.5, abs=0.06)
