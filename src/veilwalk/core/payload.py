"""How the numbers of a model travel: as they are, in half precision, or in one byte each.

What a receiver decodes is the model: a simulated run rounds every update as a real one does, with the same bits. To
encode what was decoded loses nothing more, so a node that passes a model on does not change it.

One byte each (``int8``): the numbers of an array, row by row, in blocks of 32 that share a power of two; each is a
whole number from -127 to 127 times that. First come the exponents of all blocks, one byte each, plus 127; then the
whole numbers. Only arrays of two dimensions and more are cut down so: vectors are few numbers, and means and scales of
normalisation layers are among them.

Rounding up or down at random keeps small steps alive on average, where the nearest would lose them all. The draws are
those of the run's seed and of how many updates the model has had, which all members know, and not those of who
rounds: whoever knows the model before could else try whose draws fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator

Array = npt.NDArray[Any]
_Bytes = npt.NDArray[np.uint8]

PAYLOADS: Mapping[str, str] = MappingProxyType(
    {
        "fp32": "every number as the learner has it",
        "fp16": "real numbers in half precision, to the nearest",
        "int8": "one byte each, up or down at random",
        "int8-nearest": "one byte each, to the nearest",
    }
)

_ROUND_TASK = 0x726F756E
_BLOCK = 32
# Numbers worked on at once: what is needed beside the model stays small.
_SLAB = _BLOCK << 11
_LARGEST = 127
# Of the exponent, as of a float32; the code 255 stands for what is not finite.
_BIAS, _LEAST, _NO_NUMBER = 127, -126, 255
_STEPS = np.append(np.ldexp(1.0, np.arange(_NO_NUMBER) - _BIAS), np.nan).astype(np.float32)


def check_payload(payload: str) -> str:
    """Return ``payload``, or refuse one that is not known."""
    if payload not in PAYLOADS:
        raise InvalidParameterError("payload", payload, f"one of {', '.join(PAYLOADS)}")
    return payload


def array_bytes(payload: str, shape: tuple[int, ...], dtype: str | np.dtype[Any]) -> int:
    """Return the length of an array on its way."""
    size, kind = math.prod(shape), np.dtype(dtype)
    match _form(payload, len(shape), kind):
        case "int8":
            return size + -(-size // _BLOCK)
        case form:
            return size * np.dtype(form).itemsize


def encoded(payload: str, array: Array, draws: np.random.Generator | None = None) -> _Bytes:
    """Return an array as it travels, little-endian; with ``draws`` numbers are rounded at random where that is asked.

    What is not finite, or too large for the form, is not finite when it is decoded.
    """
    form = _form(payload, array.ndim, array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if form != "int8":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(flat, dtype=form).view(np.uint8)
    blocks = -(-flat.size // _BLOCK)
    out = np.empty(blocks + flat.size, dtype=np.uint8)
    whole, codes = out[blocks:].view(np.int8), out[:blocks]
    for part, of in _slabs(flat.size):
        numbers = _in_blocks(flat[part])
        uniforms = None if draws is None else draws.random(part.stop - part.start, dtype=np.float32)
        codes[of], rounded = _quantised(numbers, None if uniforms is None else _in_blocks(uniforms))
        whole[part] = rounded.reshape(-1)[: part.stop - part.start]
    return out


def decoded(payload: str, data: memoryview, shape: tuple[int, ...], dtype: str | np.dtype[Any]) -> Array:
    """Return the array that ``data`` holds, which has the length of :func:`array_bytes`; it may share its memory."""
    kind = np.dtype(dtype)
    form = _form(payload, len(shape), kind)
    if form != "int8":
        return np.frombuffer(data, dtype=form).reshape(shape).astype(kind, copy=False)
    size = math.prod(shape)
    blocks = -(-size // _BLOCK)
    codes = np.frombuffer(data[:blocks], dtype=np.uint8)
    whole = np.frombuffer(data[blocks:], dtype=np.int8)
    out = np.empty(size, dtype=kind)
    for part, of in _slabs(size):
        # A whole number of seven bits times a power of two: exact in single precision.
        with np.errstate(over="ignore"):
            rounded = _in_blocks(whole[part]) * _STEPS[codes[of], None]
            out[part] = rounded.reshape(-1)[: part.stop - part.start]
    return out.reshape(shape)


def rounding(payload: str, *, seed: int, updates: int) -> np.random.Generator | None:
    """Return what a model that has had so many updates is rounded with; None where the nearest is taken."""
    return task_generator(seed, _ROUND_TASK, updates) if check_payload(payload) == "int8" else None


def as_received(payload: str, params: Mapping[str, Array], *, seed: int, updates: int | None) -> Mapping[str, Array]:
    """Return a model as whoever gets it decodes it, rounded by its ``updates``, or to the nearest if None."""
    if payload == "fp32":
        return params
    draws = None if updates is None else rounding(payload, seed=seed, updates=updates)
    return {
        name: decoded(payload, encoded(payload, array, draws).data, array.shape, array.dtype)
        for name, array in params.items()
    }


def _form(payload: str, dimensions: int, kind: np.dtype[Any]) -> str:
    """Return how numbers of that kind travel: ``int8`` in blocks, or as a type of numpy's."""
    if kind.kind == "f" and check_payload(payload) != "fp32":
        if payload == "fp16":
            return "<f2"
        if dimensions > 1:
            return "int8"
    return kind.newbyteorder("<").str


def _slabs(size: int) -> Iterator[tuple[slice, slice]]:
    """Yield some numbers after the other, and which blocks they are."""
    for start in range(0, size, _SLAB):
        stop = min(start + _SLAB, size)
        yield slice(start, stop), slice(start // _BLOCK, -(-stop // _BLOCK))


def _in_blocks(numbers: Array) -> Array:
    missing = -len(numbers) % _BLOCK
    return (np.pad(numbers, (0, missing)) if missing else numbers).reshape(-1, _BLOCK)


def _quantised(numbers: Array, uniforms: Array | None) -> tuple[_Bytes, npt.NDArray[np.int8]]:
    """Return the code of each block's exponent, and its whole numbers."""
    with np.errstate(invalid="ignore"):
        largest = np.abs(numbers).max(axis=1)
    share, exponent = np.frexp(largest.astype(np.float64))
    # The least power of two of which 127 are enough.
    exponent = np.maximum(exponent - 7 + (share > _LARGEST / 128), _LEAST)
    bad = ~np.isfinite(largest) | (exponent + _BIAS >= _NO_NUMBER)
    exponent[bad] = 0
    scaled = np.ldexp(np.where(bad[:, None], 0, numbers), -exponent[:, None])
    if uniforms is None:
        whole = np.rint(scaled).astype(np.int8)
    else:
        low = np.floor(scaled)
        # Compared, not added: a sum would be rounded, and a whole number must stay itself.
        whole = (low + (uniforms < scaled - low)).astype(np.int8)
    # One way only to write a block: the exponent is the least for what is left of it.
    half = (np.abs(whole).max(axis=1) <= _LARGEST // 2) & (exponent > _LEAST) & ~bad
    whole[half] *= 2
    codes = np.where(bad, _NO_NUMBER, exponent - half + _BIAS)
    return codes.astype(np.uint8), whole
