"""The demo as a newcomer runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """Every line of the README's block, to the last digit, and the figure it names."""
    script = Path(sys.executable).parent / "veilwalk"
    shown = subprocess.run(
        [script, "demo", "--out", str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    block = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    printed = [line.rstrip() for line in shown.stdout.splitlines()]
    for line in block[1].splitlines():
        assert line in printed
    assert (tmp_path / "trade-off.png").stat().st_size > 10_000
