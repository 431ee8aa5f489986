"""Rows to choose settings by: a fifth of the training rows, held back from everybody.

Whoever chooses by these has not looked at a test row. The seed is none of the reported ones.
"""

from __future__ import annotations

from veilwalk.learning import Data, data_of

#: Seed of validation rows, partition, walk and batches.
TUNING_SEED = 0


def without_test_rows(data: Data) -> Data:
    """Return the training rows alone, a fifth of them held back to choose by; the test rows are gone."""
    rows = data.train
    return data_of(rows.features, rows.labels, columns=data.columns, seed=TUNING_SEED, name=data.name)
