"""A kernel in a file of its own, compiled by whichever decorator is asked about."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def half_kernel(folder: Path, *, decorator: str, divisor: int = 2) -> Any:
    """Write a kernel into ``folder`` and import it; ``decorator`` says where njit comes from. It divides a number."""
    path = folder / "kernel.py"
    code = f"@njit(cache=True)\ndef half(number):\n    return number / {divisor}\n"
    path.write_text(f"from {decorator} import njit\n\n{code}")
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.half
