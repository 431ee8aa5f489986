"""Options behind a data spec, and OpenML's files: the protocol of the DP random walks paper on rows of any origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import load_data


# In the format of OpenML's houses, version 2; the numbers are made up.
@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small table with classes by name."""
    rng = np.random.default_rng(1)
    lines = [
        f"{income:.4f},{rng.integers(1, 52)},{rng.integers(2, 40_000)},{'P' if income + rng.normal() > 4 else 'N'}"
        for income in rng.gamma(4, 1, 200)
    ]
    path = tmp_path_factory.mktemp("houses") / "houses.csv"
    path.write_text("\n".join(("income,age,rooms,price", *lines)) + "\n")
    return path


def test_rows_at_length_one(houses: Path) -> None:
    """Columns of mean 0 and deviation 1 in the training part, then every row at length one; classes by name."""
    plain, scaled = (load_data(f"csv:{houses}:scale={kind}", seed=1) for kind in ("range", "rows"))
    assert plain.class_names == scaled.class_names == ("N", "P")
    assert (len(scaled.train), len(scaled.test), scaled.n_features) == (160, 40, 3)
    rows = plain.train.features.astype(np.float64)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    assert scaled.train.features == pytest.approx(rows / np.linalg.norm(rows, axis=1, keepdims=True), abs=1e-4)
    assert np.linalg.norm(scaled.test.features, axis=1) == pytest.approx(np.ones(40), abs=1e-5)
    raw = load_data(f"csv:{houses}", seed=1)
    assert np.array_equal(scaled.scaler.apply(raw.test.features), scaled.test.features)


def test_some_classes_and_smaller_images() -> None:
    """Threes and eights as classes 0 and 1; 8x8 pixels as 2x2 means, in the order given."""
    whole, some = load_data("digits", seed=1), load_data("digits:only=8,3:pool=4", seed=1)
    rows = np.isin(whole.train.labels, (3, 8))
    assert some.class_names == ("3", "8")
    assert some.n_classes == 2
    assert np.array_equal(some.train.labels, (whole.train.labels[rows] == 8).astype(int))
    corner = whole.train.features[rows].reshape(-1, 8, 8)[:, :4, 4:].mean(axis=(1, 2))
    assert some.train.features[:, 1] == pytest.approx(corner, abs=1e-6)


@pytest.mark.parametrize(
    "spec", ["digits:only=3", "digits:only=3,x", "digits:pool=3", "digits:pool=", "digits:scale=columns"]
)
def test_options_that_cannot_be_are_refused(spec: str) -> None:
    """With the spec and what is needed."""
    with pytest.raises(InvalidParameterError, match="data"):
        load_data(spec)
