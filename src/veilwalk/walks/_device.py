"""Where walks are played: on the processor, or on a graphics card that gives the very same integers.

The CUDA text beside this module follows the kernels word for word: the same streams, the same draws in the same order.
A device is a few verbs, so that the text can also be tried without a card (``tests/helpers/host_device.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from veilwalk.core.errors import InvalidParameterError

#: What ``device`` may be.
DEVICES = ("cpu", "cuda")

# In the order in which each may use the ones before it.
_TEXTS = ("random", "tokens", "protocol", "several", "openings")


class Device(Protocol):
    """Something that keeps arrays and runs the kernels of the text on them."""

    def put(self, array: npt.NDArray[Any]) -> Any:
        """Return the array as the device keeps it, copied there."""

    def full(self, shape: int | tuple[int, ...], value: int, dtype: npt.DTypeLike) -> Any:
        """Return a new array there."""

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """Return one of its arrays here."""

    def launch(self, kernel: str, n_items: int, *arguments: Any) -> None:
        """Run a kernel over ``n_items``; numbers are handed over as 64 bits, arrays by address."""


def program_text() -> str:
    """Return all of the CUDA text, one part after the other."""
    folder = Path(__file__).with_name("cuda")
    return "\n".join((folder / f"{name}.cu").read_text(encoding="utf-8") for name in _TEXTS)


def check_device(device: str) -> None:
    """Refuse a device that nobody has heard of."""
    if device not in DEVICES:
        raise InvalidParameterError("device", device, f"one of {', '.join(DEVICES)}")


def open_cuda() -> Device:
    """Return the graphics card, or say in one line why there is none."""
    try:
        from veilwalk.walks import _cuda
    except ImportError as error:
        need = (
            f"cpu here: CuPy cannot be imported ({error}); install veilwalk[cuda], of the CUDA version of your driver"
        )
        raise InvalidParameterError("device", "cuda", need) from None
    return _cuda.opened()


def as_argument(given: Any) -> Any:
    """Return a number as kernels take it, in 64 bits; anything else as it is."""
    if isinstance(given, bool | int | np.integer):
        return np.uint64(given) if isinstance(given, np.unsignedinteger) else np.int64(given)
    return given
