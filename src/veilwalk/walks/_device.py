"""Runs the kernels on a graphics card through CuPy, with the integers of the processor.

The CUDA text beside this module follows the kernels word for word: the same streams, the same draws in the same order.
A device has few methods, so that the text can also be tested without a card (``tests/helpers/host_device.py``).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.errors import InvalidParameterError, ResourceLimitError

#: The values of ``device``.
DEVICES = ("cpu", "cuda")

# In the order in which each may use the ones before it.
_TEXTS = ("random", "tokens", "sets", "protocol")
# Sums and products stay separate, as on the processor: fused they would round differently.
_OPTIONS = ("--std=c++17", "--fmad=false")
_BLOCK = 256
# With fewer items than the card has threads, small blocks reach more of its multiprocessors.
_SMALL_BLOCK = 32


class Device:
    """One graphics card, with the text compiled for it: holds arrays, and runs the kernels on them."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._module = cupy.RawModule(code=load_program(), options=_OPTIONS)
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self._processors = int(properties["multiProcessorCount"])
        self._cache_bytes = int(properties["l2CacheSize"])

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Return a copy of the array on the card."""
        return self._allocate(lambda: self._cupy.asarray(array))

    def full(self, shape: int | tuple[int, ...], value: int, dtype: npt.DTypeLike) -> Any:
        """Return a new array on the card."""
        return self._allocate(lambda: self._cupy.full(shape, value, dtype=dtype))

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """Return a copy of one of the card's arrays in main memory."""
        return np.asarray(self._cupy.asnumpy(array))

    def empty(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return a new array in pinned memory, which CuPy's pool uses again once the array is gone."""
        memory = self._cupy.cuda.alloc_pinned_memory(n_bytes)
        return np.frombuffer(memory, np.uint8, n_bytes)

    def fetch_into(self, target: npt.NDArray[Any], array: Any) -> None:
        """Copy one of the card's arrays to one in main memory."""
        array.get(out=target)

    def launch(self, kernel: str, n_items: int, *arguments: Any, item_bytes: int = 0) -> None:
        """Run a kernel over ``n_items``, each on a thread; numbers are passed as 64 bits, arrays by address.

        An item reads and writes ``item_bytes`` of its own in no order. Threads whose tables fit in half of the second
        cache together are several times as fast as four times as many.
        """
        function = self._module.get_function(kernel)
        block = _BLOCK if n_items >= self._processors * _BLOCK else _SMALL_BLOCK
        warps = self._cache_bytes // (2 * _SMALL_BLOCK * self._processors * item_bytes) if item_bytes else 0
        if warps:
            block = _SMALL_BLOCK
        resident = self._count_resident(kernel, block)
        blocks = min(-(-n_items // block), self._processors * (min(warps, resident) if warps else resident))
        if blocks:
            function((blocks,), (block,), tuple(as_argument(argument) for argument in arguments))

    @cache  # noqa: B019 - there is one device for the life of the process
    def _count_resident(self, kernel: str, block: int) -> int:
        """Return how many blocks of a kernel fit on one multiprocessor at a time."""
        function = self._module.get_function(kernel)
        return int(self._cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, block, 0))

    def _allocate(self, create: Any) -> Any:
        try:
            return create()
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise ResourceLimitError(f"the graphics card has too little memory: {error}") from None


def load_program() -> str:
    """Return all of the CUDA text, one file after the other."""
    folder = Path(__file__).with_name("cuda")
    return "\n".join((folder / f"{name}.cu").read_text(encoding="utf-8") for name in _TEXTS)


def check_device(device: str) -> None:
    """Refuse an unknown device."""
    if device not in DEVICES:
        raise InvalidParameterError("device", device, f"one of {', '.join(DEVICES)}")


@cache
def open_cuda() -> Device:
    """Return the graphics card with the text compiled, or refuse in one line with the reason."""
    try:
        import cupy
    except ImportError as error:
        need = (
            f"cpu here: CuPy cannot be imported ({error}); install veilwalk[cuda], of the CUDA version of your driver"
        )
        raise InvalidParameterError("device", "cuda", need) from None
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise InvalidParameterError("device", "cuda", "cpu here: there is no graphics card")
        return Device(cupy)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InvalidParameterError("device", "cuda", f"cpu here: {error}") from None


def as_argument(value: Any) -> Any:
    """Return a number as kernels take it, in 64 bits; anything else as it is."""
    if isinstance(value, bool | int | np.integer):
        return np.uint64(value) if isinstance(value, np.unsignedinteger) else np.int64(value)
    return value
