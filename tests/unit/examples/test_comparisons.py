"""What comparisons need beyond the package still runs: ratings, their factorisation, ARFF, membership inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.comparisons import arff_to_npz, make_ratings, membership, prepare_rows, ratings_to_npz
from examples.comparisons.factorisation import FactorisationLearner
from examples.comparisons.membership import infer_membership, row_losses, threshold_auc

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import Learner, Params, Partition, apply_update, check_learner, load_data, make_learner
from veilwalk.training import Scenario, make_spec

N_USERS, N_ITEMS, N_NODES = 24, 30, 10
LEARNER = "examples.comparisons.factorisation:FactorisationLearner"
ARFF = """@relation houses
@attribute income real
@attribute age integer
@attribute binaryClass {P, N}
@data
"""


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


@pytest.fixture(scope="module")
def archive(sample: Path) -> Path:
    """Return the same as npz."""
    ratings_to_npz.main(str(sample), str(sample.with_suffix(".npz")), str(N_NODES))
    return sample.with_suffix(".npz")


def test_ratings_are_numbered_and_held_out_by_user(archive: Path) -> None:
    """Three of every ten of each user; users and items from 0 without a gap; ratings as they stand; not scaled."""
    data = load_data(f"npz:{archive}", seed=1)
    assert (len(data.train), len(data.test), data.n_features, data.n_classes) == (24 * 9, 24 * 3, 2, 0)
    assert np.bincount(data.test.features[:, 0].astype(int)).tolist() == [3] * N_USERS
    items = np.concatenate((data.train.features[:, 1], data.test.features[:, 1]))
    assert set(np.unique(items)) <= set(range(N_ITEMS))
    assert set(np.unique(data.train.labels)) <= set(np.arange(1, 11) / 2)
    users = [np.unique(data.train.features[data.columns["node"] == node, 0]).tolist() for node in range(N_NODES)]
    assert [len(group) for group in users] == [3, 3, 3, 3, 2, 2, 2, 2, 2, 2]
    assert [user for group in users for user in group] == list(range(N_USERS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("userId,movieId,stars\n1,2,3\n", "has no column rating"),
        ("userId,movieId,rating\n1,2,good\n1,3,4\n", "column rating"),
        ("userId,movieId,rating\n1,2,3\n2,2,4\n", "no user has two ratings"),
    ],
)
def test_a_file_that_holds_no_ratings_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """In one line that says what is missing."""
    path = tmp_path / "ratings.csv"
    path.write_text(text)
    with pytest.raises(SystemExit, match=message):
        ratings_to_npz.main(str(path), str(tmp_path / "ratings.npz"), "2")


def test_made_up_ratings_have_the_shape_of_the_real_ones(tmp_path: Path) -> None:
    """Users with twenty ratings or more each, from a half to five."""
    make_ratings.main(str(tmp_path / "ratings.csv"), "60")
    users, _, ratings = ratings_to_npz.read_ratings(tmp_path / "ratings.csv")
    rated = np.bincount(users)
    assert len(rated) == 60
    assert rated.min() >= 20
    assert 6_000 < rated.sum() < 14_000
    assert (ratings.min(), ratings.max()) == (0.5, 5.0)


def update_model(learner: Learner, params: Params, data: Partition) -> Params:
    """Return the model after one update."""
    return apply_update(learner, params, data, seed=1, node=0, step=0, state={}).params


def test_factorisation_is_a_learner_that_learns(archive: Path) -> None:
    """It keeps the contract, its step is the slope of its loss, and the error falls."""
    data = load_data(f"npz:{archive}", seed=1)
    spec = f"{LEARNER}:users={N_USERS}:items={N_ITEMS}:factors=4:learning_rate=0.5:batch_size=1000"
    learner = make_learner(spec, n_features=2, n_classes=0)
    check_learner(learner, data.train)
    params: Params = {
        name: np.float32(10) * value for name, value in learner.init_params(np.random.default_rng(1)).items()
    }
    moved = update_model(learner, params, data.train)
    for name, place in (("user", (3, 1)), ("item", (5, 2))):
        high, low = (dict(params) | {name: params[name].copy()} for _ in range(2))
        high[name][place] += 1e-2
        low[name][place] -= 1e-2
        slope = (learner.evaluate(high, data.train)["loss"] - learner.evaluate(low, data.train)["loss"]) / 2e-2
        assert moved[name][place] - params[name][place] == pytest.approx(-0.5 * slope, rel=2e-2, abs=1e-5)
    for _ in range(60):
        params = update_model(learner, params, data.train)
    scores = learner.evaluate(params, data.test)
    assert scores["rmse"] == pytest.approx(scores["loss"] ** 0.5)
    assert scores["rmse"] < 1.6
    with pytest.raises(InvalidParameterError, match="items"):
        make_learner(f"{LEARNER}:items=5", n_features=2, n_classes=0).evaluate(params, data.train)
    with pytest.raises(InvalidParameterError, match="ratings"):
        make_learner(LEARNER, n_features=4, n_classes=2)


def test_an_arff_file_becomes_npz(tmp_path: Path) -> None:
    """Numbers are features, names are labels; what is no such file is refused in one line."""
    source, target = tmp_path / "houses.arff", tmp_path / "houses.npz"
    source.write_text(ARFF + "".join(f"{row / 4},{row},{'P' if row % 3 else 'N'}\n" for row in range(20)))
    arff_to_npz.main(str(source), str(target))
    data = load_data(f"npz:{target}")
    assert (data.class_names, data.n_features, len(data.train) + len(data.test)) == (("N", "P"), 2, 20)
    source.write_text("nothing\n")
    with pytest.raises(SystemExit, match="is not an ARFF file"):
        arff_to_npz.main(str(source), str(target))
    source.write_text(ARFF + "1.0,2,?\n1.0,2,P\n")
    with pytest.raises(SystemExit, match="a label is missing"):
        arff_to_npz.main(str(source), str(target))


def test_rows_are_prepared_as_in_dp_random_walks(tmp_path: Path) -> None:
    """Threes and eights as 2x2 means; columns of mean 0 and deviation 1 in training, then every row at length one."""
    target = tmp_path / "some.npz"
    prepare_rows.main(["digits", str(target), "--only", "8,3", "--pool", "4", "--seed", "1"])
    whole, some = load_data("digits", seed=1), load_data(f"npz:{target}:scale=none")
    chosen = np.isin(whole.train.labels, (3, 8))
    assert some.class_names == ("3", "8")
    assert np.array_equal(some.train.labels, (whole.train.labels[chosen] == 8).astype(int))
    pixels = whole.train.features[chosen].reshape(-1, 8, 8).astype(np.float64)
    corners = [pixels[:, rows : rows + 4, columns : columns + 4] for rows in (0, 4) for columns in (0, 4)]
    means = np.stack([corner.mean(axis=(1, 2)) for corner in corners], axis=1)
    rows = (means - means.mean(axis=0)) / means.std(axis=0)
    assert some.train.features == pytest.approx(rows / np.linalg.norm(rows, axis=1, keepdims=True), abs=1e-4)
    assert np.linalg.norm(some.test.features, axis=1) == pytest.approx(np.ones(len(some.test)), abs=1e-5)
    with pytest.raises(SystemExit, match="--pool 3"):
        prepare_rows.main(["digits", str(target), "--pool", "3"])


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
    learner = FactorisationLearner(n_features=2, n_classes=0, users=3, items=3)

    class Plain:
        init_params, update, evaluate = learner.init_params, learner.update, learner.evaluate

    rows = Partition(np.array([[0, 1], [2, 2]], dtype=np.float32), np.array([3.0, 1.5], dtype=np.float32))
    params = learner.init_params(np.random.default_rng(0))
    assert row_losses(Plain(), params, rows) == pytest.approx(row_losses(learner, params, rows))


def test_who_overfits_is_inferred_and_who_does_not_learn_is_not(archive: Path) -> None:
    """A model fitted hard to few rows gives its maker's rows away; one that never moved tells next to nothing."""
    spec = f"{LEARNER}:users={N_USERS}:items={N_ITEMS}:factors=12:batch_size=64:local_steps=20"
    attacks: dict[tuple[float, str], Any] = {}
    for rate in (1e-6, 0.4):
        spec_of_run = make_spec(
            graph=f"rrg:{N_NODES}:3:seed=1",
            data=f"npz:{archive}",
            partition="natural:node",
            learner=f"{spec}:learning_rate={rate}",
            updates=120,
            scheme="paper",
        )
        scenario = Scenario.from_spec(spec_of_run)
        for name in ("private-walk", "gossip", "central"):
            trace, task = scenario.trace(name), scenario.task(name)
            attacks[rate, name] = infer_membership(scenario, trace, 48, task=task, owner=0)
    assert attacks[0.4, "central"] is None
    assert attacks[0.4, "private-walk"]["updates"] == 48
    assert attacks[0.4, "gossip"]["auc"] > 0.6
    assert attacks[0.4, "private-walk"]["auc"] > 0.6
    assert attacks[1e-6, "private-walk"]["auc"] == pytest.approx(0.5, abs=0.06)


def test_the_script_attacks_every_case_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each algorithm that hands models on."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'kind = "train"\n[settings]\ngraph = "rrg:20:3:seed=1"\nscheme = "paper"\nupdates = 40\nlearner = "softmax"\n'
        'compare = "gossip,central"\n[[cases]]\nseed = 1\n'
    )
    membership.main(str(plan), "10")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["case 0, private-walk", "case 0, gossip"]
