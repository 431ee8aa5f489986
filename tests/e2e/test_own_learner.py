"""The how-to for a learner of one's own, followed to the letter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-your-own-learner.md"
VEILWALK = Path(sys.executable).parent / "veilwalk"
SMALL = ["--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "120", "--attack", "0", "--compare", "none"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the page, each by the name in its first line."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["mine.py", "test_mine.py", "net.py", "ratings.py", "letters.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    return tmp_path


def pytested(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def trained(folder: Path, learner: str) -> dict[str, float]:
    shown = subprocess.run(
        [VEILWALK, "train", "--learner", learner, *SMALL, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: dict[str, float] = json.loads(shown.stdout)["algorithms"]["private-walk"]
    return found


def test_the_learner_of_the_page_passes_its_test_and_learns(folder: Path) -> None:
    """Its own test, then the command line with an option."""
    shown = pytested(folder)
    assert shown.returncode == 0, shown.stdout
    found = trained(folder, "mine:Mean:rate=0.05")
    assert found["updates"] == 120
    assert found["accuracy"] > 0.5


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ('params["means"].copy()', 'params["means"]', "read-only"),
        ("rng.random(self.shape, dtype=np.float32)", "np.random.rand(*self.shape)", "init_params with the same stream"),
    ],
)
def test_the_test_of_the_page_can_fail(folder: Path, right: str, wrong: str, says: str) -> None:
    """A learner that writes into what it is given, or draws from elsewhere, is told so."""
    mine = folder / "mine.py"
    code = mine.read_text()
    assert right in code
    mine.write_text(code.replace(right, wrong))
    shown = pytested(folder)
    assert shown.returncode == 1
    assert says in shown.stdout


def test_the_torch_module_of_the_page_learns(folder: Path) -> None:
    """Named on the command line like any other."""
    pytest.importorskip("torch")
    assert trained(folder, "net:small")["accuracy"] > 0.3
