"""Scikit-learn classifiers as learners."""

from __future__ import annotations

import numpy as np
import pytest

linear_model = pytest.importorskip("sklearn.linear_model")

from examples.sklearn_learner import SklearnLearner  # noqa: E402

from veilwalk.core.errors import InvalidParameterError  # noqa: E402
from veilwalk.core.randomness import task_generator  # noqa: E402
from veilwalk.learning import Array, Partition, StepContext, load_data  # noqa: E402


def some_data(n_classes: int) -> Partition:
    rng = task_generator(0, 99)
    return Partition(rng.random((30, 5), dtype=np.float32), rng.integers(0, n_classes, 30))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_an_update_is_one_partial_fit_from_the_received_coefficients(n_classes: int) -> None:
    """The same classifier used by hand, in one piece, ends at the same coefficients."""
    data = some_data(n_classes)

    def make() -> object:
        return linear_model.SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1, shuffle=False)

    learner = SklearnLearner(n_features=5, n_classes=n_classes, batch_size=100, estimator_fn=make)
    params = learner.init_params(task_generator(0))
    by_hand = make()
    for step in range(3):
        params = learner.update(params, data, StepContext(rng=task_generator(0, step), step=step)).params
        by_hand.partial_fit(data.features, data.labels, classes=np.arange(n_classes))  # type: ignore[attr-defined]
    assert params["coef"] == pytest.approx(by_hand.coef_, abs=1e-5)  # type: ignore[attr-defined]
    assert params["intercept"] == pytest.approx(by_hand.intercept_, abs=1e-5)  # type: ignore[attr-defined]
    scores = learner.evaluate(params, data)
    assert scores["accuracy"] == pytest.approx(by_hand.score(data.features, data.labels))  # type: ignore[attr-defined]


def test_the_clock_of_a_falling_step_size_stays_at_the_node() -> None:
    """It counts this node's rows, in ctx.state; the token does not know it."""
    learner = SklearnLearner(
        n_features=5,
        n_classes=3,
        estimator_fn=lambda: linear_model.SGDClassifier(loss="log_loss", learning_rate="invscaling", eta0=0.1),
    )
    state: dict[str, Array] = {}
    params = learner.init_params(task_generator(0))
    for step in range(2):
        params = learner.update(params, some_data(3), StepContext(rng=task_generator(0), step=step, state=state)).params
    assert state["t"] == 1 + 2 * 30
    assert list(params) == ["coef", "intercept"]


def test_it_learns_digits() -> None:
    """A few hundred batches, in one place."""
    data = load_data("digits")
    learner = SklearnLearner(n_features=64, n_classes=10)
    params = learner.init_params(task_generator(0))
    for step in range(100):
        params = learner.update(params, data.train, StepContext(rng=task_generator(0, step), step=step)).params
    scores = learner.evaluate(params, data.test)
    assert scores["accuracy"] > 0.85
    assert scores["loss"] < np.log(10)


def test_estimators_that_cannot_are_refused_by_what_they_lack() -> None:
    """Probabilities, or partial_fit itself."""
    hinge = SklearnLearner(n_features=5, n_classes=3, estimator_fn=lambda: linear_model.SGDClassifier(loss="hinge"))
    with pytest.raises(InvalidParameterError, match="one with predict_proba"):
        hinge.init_params(task_generator(0))
    ridge = SklearnLearner(n_features=5, n_classes=3, estimator_fn=linear_model.LogisticRegression)
    with pytest.raises(InvalidParameterError, match="one with partial_fit"):
        ridge.init_params(task_generator(0))


def test_a_node_without_data_changes_nothing() -> None:
    """It hands the model on."""
    learner = SklearnLearner(n_features=5, n_classes=3)
    params = learner.init_params(task_generator(0))
    empty = Partition(np.zeros((0, 5), dtype=np.float32), np.zeros(0, dtype=np.int64))
    assert learner.update(params, empty, StepContext(rng=task_generator(0), step=0)).num_examples == 0
