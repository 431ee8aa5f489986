"""The rule that tunes every algorithm of the learning comparison: best on validation rows, test rows never read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tools.pages.tuning import GRID, TUNING_SEED, Setting, Tried, accuracy_of, best, without_test_rows

from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import ALGORITHMS, Data, Partition, load_data, train
from veilwalk.training import Scenario, make_spec

UPDATES = 24


@cache
def problem() -> tuple[Scheme, Data]:
    """Twelve nodes, 400 digits."""
    digits = load_data("digits", seed=3)
    few = Partition(digits.train.features[:400], digits.train.labels[:400])
    return choose_scheme(random_regular(12, 3, seed=1), "paper", support="2:2"), replace(digits, train=few)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_choice_is_the_best_on_validation_rows_whatever_the_test_rows_say(algorithm: str) -> None:
    """Test rows with shuffled labels and no sense in them change neither the choice nor a digit of the grid."""
    scheme, data = problem()
    rng = np.random.default_rng(1)
    nonsense = Partition(np.full_like(data.test.features, np.nan), rng.permutation(data.test.labels))
    found, poisoned = (
        [
            Tried(setting=one, accuracy=accuracy_of(one, scheme, held, "dirichlet:0.3", algorithm, updates=UPDATES))
            for one in GRID[::6]
        ]
        for held in (without_test_rows(data), without_test_rows(replace(data, test=nonsense)))
    )
    assert found == poisoned
    assert max(one.accuracy for one in found) == next(one for one in found if one.setting == best(found)).accuracy
    # Some settings do not learn in so few updates: a choice that is blind would be seen.
    assert min(one.accuracy for one in found) < max(one.accuracy for one in found) - 0.2


@pytest.mark.parametrize("algorithm", ["private-walk", "gossip"])
def test_what_is_tried_is_what_a_run_of_its_own_gives(algorithm: str) -> None:
    """The accuracy of the run with that learner, seed 0, on the rows held back."""
    scheme, data = problem()
    held = without_test_rows(data)
    setting = Setting(learning_rate=0.3, local_steps=5)
    spec = make_spec(seed=TUNING_SEED, updates=UPDATES, decay=setting.decay)
    scenario = Scenario.build(scheme, spec, data=held, partition="iid", learner=setting.spec())
    alone = train(scenario.task(algorithm), scenario.trace(algorithm))
    found = accuracy_of(setting, scheme, held, "iid", algorithm, updates=UPDATES)
    assert found == alone.points[-1].accuracy


def test_validation_rows_are_a_fifth_of_the_training_rows_and_nobody_trains_on_them() -> None:
    """Together they are the training rows, each once; no test row is among them."""
    _, data = problem()
    held = without_test_rows(data)
    assert (len(held.train), len(held.test)) == (320, 80)
    together = np.concatenate((held.train.features, held.test.features))
    assert np.array_equal(np.sort(together.sum(axis=1)), np.sort(data.train.features.sum(axis=1)))


def test_of_equal_settings_the_first_is_chosen() -> None:
    """Which is the one that does not fade, with the smaller step, and the fewer of them."""
    assert best([Tried(setting=setting, accuracy=0.5) for setting in GRID]) == GRID[0]
    assert best([Tried(setting=setting, accuracy=setting.local_steps / 10) for setting in GRID]) == GRID[3]
