"""A cold cache is announced, a warm one is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from veilwalk.cli._output import COMPILING


def test_compiling_is_said_once_and_only_where_it_happens(tmp_path: Path) -> None:
    """The first command compiles and says so in one line; the same again finds everything, and is silent."""
    command = [sys.executable, "-m", "veilwalk", "graph", "info", "rrg:20:3:seed=1"]
    cold, warm = (
        subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        )
        for _ in range(2)
    )
    assert cold.stderr == f"{COMPILING}\n"
    assert warm.stderr == ""
    assert cold.stdout == warm.stdout


def test_what_needs_no_kernel_does_not_wait_for_numba() -> None:
    """The closed forms compile nothing; not even the compiler is loaded."""
    code = (
        "import sys; from veilwalk.cli import main\n"
        "try: main(['--version'])\n"
        "finally: assert 'numba' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
