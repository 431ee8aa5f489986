"""Kernels compiled once a machine: whoever fails to compile one keeps nobody waiting."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from numba.core.errors import TypingError

from veilwalk.engine._compile_once import _lock_of, compile_once

KERNEL = """
from numba import njit

@njit(cache=True)
def half(number):
    return number / 2
"""


def test_a_kernel_that_cannot_be_compiled_lets_its_lock_go(tmp_path: Path) -> None:
    compile_once()
    (tmp_path / "kernel.py").write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("kernel", tmp_path / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(TypingError):
        module.half("no number")
    assert module.half(3) == 1.5
    held = {os.path.realpath(place) for place in Path("/proc/self/fd").iterdir()}
    locks = Path(_lock_of(module.half._cache, ())).parent
    assert not held & {str(place) for place in locks.iterdir()}
