"""The how-to for observers and laws from outside the package, followed to the letter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "design-and-audit.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page, each by the name in its first line."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["nearest.py", "attack.py", "by_degree.py", "price.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    return tmp_path


def run_file(folder: Path, name: str) -> str:
    command = [sys.executable, name]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_observer_of_the_page_is_scored(folder: Path) -> None:
    """It learns more than the prior and less than the best posterior of the same sighting."""
    lines = [line.split(maxsplit=2) for line in run_file(folder, "attack.py").splitlines()]
    ratio = {name: float(hit_ratio) for name, hit_ratio, _ in lines}
    assert list(ratio) == ["prior", "last-hop", "nearest"]
    assert ratio["prior"] < ratio["nearest"] < ratio["last-hop"]


def test_the_law_of_the_page_is_priced_and_saved(folder: Path) -> None:
    """Its design says the price, and the command line takes its file."""
    assert run_file(folder, "price.py")
    program = str(Path(sys.executable).parent / "veilwalk")
    command = [program, "design", "--graph", "ba:60:3:seed=1", "--law", "by-degree.npz"]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("change", [("0.0)", "1.0)"), ("weights.sum(axis=1, keepdims=True)", "weights.sum()")])
def test_a_law_that_breaks_a_rule_is_refused_in_one_line(folder: Path, change: tuple[str, str]) -> None:
    """Rows that draw themselves; rows that do not sum to one."""
    law = folder / "by_degree.py"
    law.write_text(law.read_text().replace(*change))
    process = subprocess.run([sys.executable, "price.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("veilwalk.core.errors.")
