"""Scattering of images: by its definition, row by row, and where it is taken."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import Array, Scaler, data_of, load_data, load_rows, scatter_data
from veilwalk.training import Scenario, make_spec, run_training

SIDE = 8
IMAGES = np.random.default_rng(1).random((7, SIDE, SIDE), dtype=np.float32)


def scattered(images: Array) -> Array:
    """Through the public way; a fifth is held out, so rows are found again by their label."""
    data = scatter_data(data_of(images, np.arange(len(images)) % 3, columns={"row": np.arange(len(images))}))
    rows = np.empty((len(images), data.n_features), dtype=np.float32)
    rows[data.columns["row"]] = data.train.features
    (held_out,) = np.setdiff1d(np.arange(len(images)), data.columns["row"])
    rows[held_out] = data.test.features[0]
    return rows


def slow_scatter(image: Array) -> Array:
    """Every sum written out: wavelets on a torus of the padded image, moduli, and means around squares of four."""
    padded, size = np.pad(image.astype(np.float64), 4, mode="reflect"), SIDE + 8
    centred = (np.arange(size) + size // 2) % size - size // 2
    planes = [padded]
    for scale in range(2):
        for direction in range(8):
            angle, width, frequency = math.pi * direction / 8, 0.8 * 2**scale, 0.75 * math.pi / 2**scale
            envelope, wave = np.zeros((size, size)), np.zeros((size, size), dtype=complex)
            for i, y in enumerate(centred):
                for j, x in enumerate(centred):
                    along = x * math.cos(angle) + y * math.sin(angle)
                    aside = y * math.cos(angle) - x * math.sin(angle)
                    envelope[i, j] = math.exp(-(along**2 + aside**2 / 4) / (2 * width**2)) / (4 * math.pi * width**2)
                    wave[i, j] = envelope[i, j] * np.exp(1j * frequency * along)
            wave -= envelope * wave.sum() / envelope.sum()
            answer = np.zeros((size, size), dtype=complex)
            for i in range(size):
                for j in range(size):
                    shifted = np.roll(np.roll(padded, -i, axis=0), -j, axis=1)
                    answer[i, j] = (np.roll(shifted[::-1, ::-1], 1, axis=(0, 1)) * wave).sum()
            planes.append(np.abs(answer))
    smooth = np.zeros((2, size))
    for square in range(2):
        gauss = np.exp(-((np.arange(size) - (4 + 4 * square + 1.5)) ** 2) / (2 * 1.6**2))
        smooth[square] = gauss / gauss.sum()
    row = np.concatenate([(smooth @ plane @ smooth.T).ravel() for plane in planes])
    return np.asarray(9 * row / np.linalg.norm(row))


def test_scattering_is_by_its_definition() -> None:
    """Against the sums written out; the same image turned is another."""
    rows = scattered(IMAGES)
    assert rows.shape == (7, 17 * 4)
    train = data_of(IMAGES, np.arange(7) % 3, columns={"row": np.arange(7)}).columns["row"]
    for row in train[:2]:
        assert rows[row] == pytest.approx(slow_scatter(IMAGES[row]), abs=2e-5)
        assert rows[row] != pytest.approx(slow_scatter(np.rot90(IMAGES[row])), abs=1e-2)


def test_a_row_depends_on_no_other_and_not_on_brightness() -> None:
    """A guarantee for single rows needs the first; the second is why no scaling is left to be chosen."""
    rows = scattered(IMAGES)
    others = scattered(np.concatenate((IMAGES[:1], 5 * IMAGES[1:])))
    assert np.array_equal(rows[0], others[0])
    assert others == pytest.approx(rows, abs=1e-5)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(9)
    assert rows.dtype == np.float32


def test_what_is_no_image_is_refused_by_name() -> None:
    with pytest.raises(InvalidParameterError) as refused:
        scatter_data(data_of(np.zeros((9, 10)), np.arange(9) % 3))
    assert refused.value.name == "features"


def test_noise_on_records_of_images_is_on_their_scattering() -> None:
    """Unless the data, or a learner of the user's own, say otherwise; the name of the data says it."""
    options = {"graph": "rrg:20:3:seed=1", "updates": 40, "attack": 0, "compare": "none"}
    noised = options | {"protect": "record", "epsilon": 8.0}
    chosen = Scenario.from_spec(make_spec(**noised))
    assert (chosen.data.n_features, chosen.spec.learning.data) == (68, "digits:features=scatter")
    again = Scenario.from_spec(chosen.spec)
    assert again.digest() == chosen.digest()
    for spec in (
        noised | {"data": "digits:features=none"},
        noised | {"learner": "softmax:batch_size=0"},
        options | {"epsilon": 8.0},
        options,
    ):
        assert Scenario.from_spec(make_spec(**spec)).data.n_features == 64


def test_a_model_of_scattering_predicts_from_pixels(tmp_path: Path, run: Cli) -> None:
    """The record says what its features are."""
    spec = make_spec(
        graph="rrg:20:3:seed=1", updates=200, attack=0, compare="none", audit="none", data="digits:features=scatter"
    )
    run_training(Scenario.from_spec(spec), out=tmp_path / "run")
    code, out, _ = run(["predict", str(tmp_path / "run"), "--data", "digits"])
    assert (code, "on 359 rows" in out) == (0, True)
    assert float(out.split("accuracy ")[1].split("%")[0]) > 80
    with pytest.raises(InvalidParameterError, match="features=scatter"):
        load_rows("digits:features=none", n_features=68, scaler=Scaler(features="scatter"))


def test_an_unknown_kind_of_features_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="features= one of none, scatter"):
        load_data("digits:features=sift")
