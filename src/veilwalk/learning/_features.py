"""Fixed features of images: first-order scattering, by wavelets that nobody trained.

An image is convolved with Morlet wavelets of two scales and eight directions. The moduli, and the image itself, are
smoothed and kept at every fourth pixel: 17 numbers for each square of four by four pixels. Each row is then brought to
one length, about that of an image of MNIST. Nothing in it depends on other rows, so it costs no privacy; and a linear
model of it needs few updates.
"""

from __future__ import annotations

import math

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._contract import Array

FEATURES = ("none", "scatter")
_SCALES, _DIRECTIONS, _STRIDE = 2, 8, 4
_BLOCK_ROWS = 2_000
_LENGTH = 9.0


def check_width(features: Array, n_features: int) -> None:
    """Refuse rows of another width than the model's."""
    if features.shape[1:] != (n_features,):
        raise InvalidParameterError("features", features.shape, f"rows of {n_features} numbers")


def image_side(features: Array) -> int:
    """Return the side of square images in flat rows; 0 where rows are no such images."""
    side = math.isqrt(features.shape[1])
    return side if side**2 == features.shape[1] and side % _STRIDE == 0 else 0


def scatter(features: Array) -> Array:
    """Return the first-order scattering of flat square images, a row each, all of one length."""
    side = image_side(features)
    if not side:
        need = f"rows of square images whose side is a multiple of {_STRIDE} (they have {features.shape[1]} numbers)"
        raise InvalidParameterError("features", "scatter", need)
    whole = side + 2 * _STRIDE
    wavelets = [
        _morlet(whole, 0.8 * 2**scale, 0.75 * math.pi / 2**scale, math.pi * direction / _DIRECTIONS)
        for scale in range(_SCALES)
        for direction in range(_DIRECTIONS)
    ]
    spectra, smooth = np.fft.fft2(np.stack(wavelets)).astype(np.complex64), _smoothing(side)
    blocks = []
    for start in range(0, len(features), _BLOCK_ROWS):
        images = features[start : start + _BLOCK_ROWS].reshape(-1, side, side)
        padded = np.pad(images, ((0, 0), (_STRIDE, _STRIDE), (_STRIDE, _STRIDE)), mode="reflect")
        waves = np.fft.fft2(padded).astype(np.complex64)
        moduli = [np.abs(np.fft.ifft2(waves * spectrum)) for spectrum in spectra]
        numbers = np.stack([smooth @ image @ smooth.T for image in (padded, *moduli)], axis=1)
        blocks.append(numbers.reshape(len(images), -1))
    rows = np.concatenate(blocks)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows * (_LENGTH / np.maximum(norms, 1e-12)), dtype=np.float32)


def _morlet(side: int, width: float, frequency: float, angle: float) -> Array:
    """Return a wavelet of mean zero around the first pixel, on a torus of pixels."""
    slant = 4 / _DIRECTIONS
    steps = (np.arange(side) + side // 2) % side - side // 2
    across, down = steps[np.newaxis, :], steps[:, np.newaxis]
    along = across * math.cos(angle) + down * math.sin(angle)
    aside = down * math.cos(angle) - across * math.sin(angle)
    envelope = np.exp(-(along**2 + (slant * aside) ** 2) / (2 * width**2)) * slant / (2 * math.pi * width**2)
    wave = envelope * np.exp(1j * frequency * along)
    return np.asarray(wave - envelope * (wave.sum() / envelope.sum()))


def _smoothing(side: int) -> FloatArray:
    """Return the Gaussian means around every fourth pixel of a padded line."""
    width = 0.8 * 2 ** (_SCALES - 1)
    middles = np.arange(0, side, _STRIDE) + 1.5 * _STRIDE - 0.5
    weights = np.exp(-((np.arange(side + 2 * _STRIDE) - middles[:, np.newaxis]) ** 2) / (2 * width**2))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
