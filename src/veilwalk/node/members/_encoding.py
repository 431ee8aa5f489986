"""Models on the wire: little-endian arrays in the order of the manifest, as its payload says, and nothing else.

There is no header to parse and nothing to execute; shapes and types come from the signed manifest. What a peer
sent is checked before anything uses it: length, finiteness, norm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.arrays import frozen
from veilwalk.core.errors import InvalidParameterError, ProtocolError, TrainingError
from veilwalk.core.payload import array_bytes, decoded, encoded, rounding
from veilwalk.node.members._manifest import Manifest
from veilwalk.node.sealing import Bytes

if TYPE_CHECKING:
    from veilwalk.learning import Array, Params

_BLOCK = 1 << 16


def encode_params(manifest: Manifest, params: Params, *, updates: int | None = None) -> bytes:
    """Return the model as it travels; ``updates`` are those it has had, by which it is rounded, to the nearest if None.

    Raises:
        InvalidParameterError: An array is missing, unknown, or of another shape or type than the manifest says.
        TrainingError: A value is not finite, or the norm is above the manifest's bound.
    """
    if params.keys() != {spec.name for spec in manifest.arrays}:
        raise InvalidParameterError("params", sorted(params), "exactly the arrays of the manifest")
    payload = manifest.spec.learning.payload
    draws = None if updates is None else rounding(payload, seed=manifest.spec.seed, updates=updates)
    pieces = []
    for spec in manifest.arrays:
        array = params[spec.name]
        if array.shape != spec.shape or array.dtype != np.dtype(spec.dtype).newbyteorder(array.dtype.byteorder):
            raise InvalidParameterError(spec.name, f"{array.dtype} {array.shape}", f"{spec.dtype} {spec.shape}")
        pieces.append(encoded(payload, array, draws).data)
    data = b"".join(pieces)
    # Of what a receiver finds there, which may be a little more than what was rounded.
    norm = params_norm(_read_arrays(manifest, memoryview(data)))
    if not norm <= manifest.norm_bound:
        raise TrainingError(f"the norm of the model is {norm:g}: must be finite and <= {manifest.norm_bound:g}")
    return data


def decode_params(manifest: Manifest, data: Bytes) -> dict[str, Array]:
    """Return the model in ``data`` as read-only arrays that share its memory where alignment allows.

    Raises:
        ProtocolError: The length is not the manifest's, a value is not finite, or the norm is above the bound.
    """
    view = memoryview(data).cast("B").toreadonly()
    if len(view) != manifest.body_bytes:
        raise ProtocolError(f"a model has {len(view)} bytes: the manifest says {manifest.body_bytes}")
    params = _read_arrays(manifest, view)
    if not params_norm(params) <= manifest.norm_bound:
        raise ProtocolError("a model has values that are not finite, or a norm above the manifest's bound")
    return params


def params_norm(params: Mapping[str, Array]) -> float:
    """Return the Euclidean norm of all arrays together; NaN or infinity if any value is."""
    return _norm_of_blocks((array, None) for array in params.values())


def params_distance(first: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    """Return the Euclidean norm of the difference of two models of one manifest."""
    return _norm_of_blocks((array, other[name]) for name, array in first.items())


def _read_arrays(manifest: Manifest, view: memoryview) -> dict[str, Array]:
    params: dict[str, Array] = {}
    payload, start = manifest.spec.learning.payload, 0
    for spec in manifest.arrays:
        stop = start + array_bytes(payload, spec.shape, spec.dtype)
        array = frozen(decoded(payload, view[start:stop], spec.shape, spec.dtype))
        # An odd offset would slow down, or on some machines forbid, whatever the learner does with it.
        params[spec.name] = array if array.flags.aligned else frozen(array.copy())
        start = stop
    return params


def _norm_of_blocks(pairs: Iterable[tuple[Array, Array | None]]) -> float:
    """Return the norm of arrays, or of differences of two.

    Blocks keep the extra memory small; double precision keeps the sum of a large float16 model from overflowing.
    """
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for array, other in pairs:
            for start in range(0, array.size, _BLOCK):
                block = array.reshape(-1)[start : start + _BLOCK].astype(np.float64, copy=False)
                if other is not None:
                    block = block - other.reshape(-1)[start : start + _BLOCK]
                total += float(block @ block)
    return math.sqrt(total) if total >= 0 else math.nan
