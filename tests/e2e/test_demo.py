"""The demo as a newcomer runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """Every line of the README's block, to the last digit, and a report; asked again, the same is shown at once."""
    script = Path(sys.executable).parent / "veilwalk"
    shown, again = (
        subprocess.run([script, "demo", "--out", "run"], capture_output=True, text=True, check=True, cwd=tmp_path)
        for _ in range(2)
    )
    block = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    printed = [line.rstrip() for line in shown.stdout.splitlines()]
    for line in block[1].splitlines():
        assert line in printed
    assert again.stdout == shown.stdout
    assert "What is and is not protected" in (tmp_path / "run" / "report.html").read_text()
