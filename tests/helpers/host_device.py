"""The CUDA text without a graphics card: compiled as C++, the whole grid being one thread.

Kernels step through their work by the grid, so one call of one thread does it all. So the arithmetic
of the text is tried wherever there is a C++ compiler; threads are not.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from veilwalk.walks._device import as_argument, load_program

_PRELUDE = """
#include <cmath>
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
struct Place { unsigned x; };
static const Place blockIdx = {0}, threadIdx = {0}, gridDim = {1}, blockDim = {1};
static unsigned __ballot_sync(unsigned, bool holds) { return holds; }
static int __popc(unsigned bits) { return __builtin_popcount(bits); }
"""


class HostDevice:
    """A device whose arrays are NumPy's."""

    def __init__(self, folder: Path) -> None:
        source, library = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text(_PRELUDE + load_program(), encoding="utf-8")
        options = [
            "-std=c++17",
            "-O2",
            "-shared",
            "-fPIC",
            "-ffp-contract=off",
            "-Wno-unknown-pragmas",
            "-Wall",
            "-Werror",
        ]
        subprocess.run(["g++", *options, "-o", str(library), str(source)], check=True, timeout=120)
        self._library = ctypes.CDLL(str(library))

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Return a copy."""
        return np.array(array, order="C")

    def full(self, shape: int | tuple[int, ...], value: int, dtype: npt.DTypeLike) -> Any:
        """Return a new array."""
        return np.full(shape, value, dtype=dtype)

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """Return a copy."""
        return np.array(array)

    def empty(self, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Return a new array."""
        return np.empty(n_bytes, np.uint8)

    def fetch_into(self, target: npt.NDArray[Any], array: Any) -> None:
        """Copy the array to the target."""
        target[:] = array

    def launch(self, kernel: str, n_items: int, *arguments: Any, item_bytes: int = 0) -> None:  # noqa: ARG002
        """Call the kernel once."""
        if n_items:
            self._library[kernel](*(_as_c_argument(as_argument(value)) for value in arguments))


def _as_c_argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_uint64(int(value)) if isinstance(value, np.unsignedinteger) else ctypes.c_int64(int(value))


def host_device(folder: Path) -> HostDevice:
    """Return the device, or skip the test where there is no compiler."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here: the CUDA text cannot be tried without a graphics card")
    return HostDevice(folder)
