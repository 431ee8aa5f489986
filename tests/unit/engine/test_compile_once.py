"""Kernels compiled once a machine: whoever fails to compile one keeps nobody waiting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from numba.core.errors import TypingError
from tests.helpers.half_kernel import half_kernel

from veilwalk.engine._compile_once import _lock_of, compile_once


def test_a_kernel_that_cannot_be_compiled_lets_its_lock_go(tmp_path: Path) -> None:
    compile_once()
    half = half_kernel(tmp_path, decorator="numba")
    with pytest.raises(TypingError):
        half("no number")
    assert half(3) == 1.5
    held = {os.path.realpath(place) for place in Path("/proc/self/fd").iterdir()}
    locks = Path(_lock_of(half._cache, ())).parent
    assert not held & {str(place) for place in locks.iterdir()}
