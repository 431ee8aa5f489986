"""The graphics card through CuPy: the one module that imports it."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.walks._device import as_argument, program_text

# Sums and products stay apart, as on the processor: fused they would round differently.
_OPTIONS = ("--std=c++17", "--fmad=false")
_BLOCK = 256
# With fewer items than the card has threads, small blocks reach more of its multiprocessors.
_SMALL_BLOCK = 32


class CudaDevice:
    """One graphics card, with the text compiled for it."""

    def __init__(self) -> None:
        self._module = cupy.RawModule(code=program_text(), options=_OPTIONS)
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self._processors = int(properties["multiProcessorCount"])

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Return the array as the card keeps it."""
        return self._kept(lambda: cupy.asarray(array))

    def full(self, shape: int | tuple[int, ...], value: int, dtype: npt.DTypeLike) -> Any:
        """Return a new array on the card."""
        return self._kept(lambda: cupy.full(shape, value, dtype=dtype))

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """Return one of the card's arrays here."""
        return np.asarray(cupy.asnumpy(array))

    def launch(self, kernel: str, n_items: int, *arguments: Any) -> None:
        """Run a kernel with as many threads as there are items, or as stand on the card at once."""
        function = self._module.get_function(kernel)
        block = _BLOCK if n_items >= self._processors * _BLOCK else _SMALL_BLOCK
        blocks = min(-(-n_items // block), self._processors * self._resident(kernel, block))
        if blocks:
            function((blocks,), (block,), tuple(as_argument(one) for one in arguments))

    @cache  # noqa: B019 - there is one device for the life of the process
    def _resident(self, kernel: str, block: int) -> int:
        """Return how many blocks of a kernel stand on one multiprocessor at a time."""
        function = self._module.get_function(kernel)
        return int(cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, block, 0))

    def _kept(self, make: Any) -> Any:
        try:
            return make()
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise ResourceLimitError(f"the graphics card has too little memory: {error}") from None


@cache
def opened() -> CudaDevice:
    """Return the card, its text compiled, or say in one line what is missing."""
    try:
        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise InvalidParameterError("device", "cuda", "cpu here: there is no graphics card")
        return CudaDevice()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InvalidParameterError("device", "cuda", f"cpu here: {error}") from None
