"""Local steps and what makes a model settle: when the target counts as reached, the average that travels, the lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tools.pages.local_steps import AVERAGE, Passing, Travelling, leak, reached, section

from veilwalk.core.randomness import task_generator
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import Partition, SoftmaxLearner, StepContext, load_data


def test_the_target_is_reached_first_and_then_kept() -> None:
    """First at the third update, above for good from the fifth; never, or not for good, is infinite."""
    hops = np.array([0, 4, 9, 20, 21, 30, 44])
    found = reached(np.array([0.1, 0.5, 0.7, 0.8, 0.79, 0.85, 0.9]), hops)
    assert found == {"updates": 3.0, "hops": 20.0, "stays": 5.0}
    assert reached(np.array([0.1, 0.9, 0.7]), hops)["stays"] == np.inf
    assert reached(np.array([0.1, 0.7, 0.7]), hops) == {"updates": np.inf, "hops": np.inf, "stays": np.inf}


def test_the_average_weighs_late_models_more_and_can_be_undone() -> None:
    """By hand: weights 1, 4/5, 4/6; a receiver of model and average knows the average before."""
    mean, models = Travelling(), [np.float32(value) for value in (3.0, 8.0, 2.0)]
    for update, model in enumerate(models):
        mean.add(update, {"w": np.array([model])})
    before = 3 / 5 + 8 * 4 / 5
    assert mean.before["w"] == pytest.approx(7.0)
    assert mean.before["w"] == pytest.approx(before)
    assert mean.params["w"] == pytest.approx(7.0 / 3 + 2 * 2 / 3)
    assert (mean.params["w"] - models[-1] * 4 / 6) * 3 == pytest.approx(mean.before["w"], rel=1e-5)


def test_a_pass_is_a_step_for_every_batch() -> None:
    """Ten rows in batches of four: three steps."""
    rng = task_generator(1)
    rows = Partition(rng.random((10, 3), dtype=np.float32), np.arange(10) % 2)
    learner = SoftmaxLearner(n_features=3, n_classes=2, batch_size=4)
    made = Passing(learner).update(learner.init_params(rng), rows, StepContext(rng=rng, step=0))
    assert made.num_examples == 12


def test_an_average_that_travels_tells_more_than_the_own_last_model() -> None:
    """Less than the model before, which tells nearly all; twenty nodes, thirty deliveries."""
    scheme = choose_scheme(random_regular(20, 3, seed=1), "far:2", walk="non-backtracking", recipients=3)
    found = {
        one["reference"]: one["hits"] for one in leak(scheme, load_data("digits", seed=0), seed=1, updates=60, count=30)
    }
    own, average, before = found.values()
    assert before > 25
    assert own < average < before


def test_the_page_says_how_much_the_average_gives_away() -> None:
    """One line a row, infinite ones in words."""
    row: dict[str, Any] = {"data": "digits", "steps": 0, "how": AVERAGE, "message_bytes": 100, "learning_rate": 0.3}
    rows = [
        row | {"updates": 12.0, "stays": 14.0, "hops": 240.0},
        row | {"updates": np.inf, "stays": np.inf, "hops": np.inf},
    ]
    about, _, *table = section({"rows": rows, "leak": [{"reference": "guess", "deliveries": 200, "hits": 50}]}, seeds=3)
    assert "25.0% [19.2%-31.6%] by guess" in about
    assert table[2] == "| digits | a pass | average travels | 0.3 | 12 | 14 | 240 | 24 kB |"
    assert table[3].count("not reached") == 4
