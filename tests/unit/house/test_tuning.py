"""Settings are chosen on rows held back from training; test rows are never read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tools.pages.tuning import without_test_rows

from veilwalk.learning import Partition, load_data


def test_validation_rows_are_a_fifth_of_the_training_rows_and_nobody_trains_on_them() -> None:
    """Together they are the training rows, each once; test rows have no part, whatever they are."""
    digits = load_data("digits", seed=3)
    few = replace(digits, train=Partition(digits.train.features[:400], digits.train.labels[:400]))
    held = without_test_rows(few)
    assert (len(held.train), len(held.test)) == (320, 80)
    together = np.concatenate((held.train.features, held.test.features))
    assert np.array_equal(np.sort(together.sum(axis=1)), np.sort(few.train.features.sum(axis=1)))
    nonsense = Partition(np.full_like(few.test.features, np.nan), few.test.labels)
    again = without_test_rows(replace(few, test=nonsense))
    assert np.array_equal(again.test.features, held.test.features)
