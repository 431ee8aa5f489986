"""The tutorials, each as a notebook that does in Python what its page does on the command line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tools.pages.notebooks import FOLDER, make_notebook

from veilwalk.cli._main import app

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tutorials"


def shown(script: str, cwd: Path) -> str:
    """What the cells of its notebook print, run in turn; elsewhere, so that they cannot lean on where they lie."""
    notebook = (FOLDER / script).with_suffix(".ipynb").read_text()
    assert notebook == make_notebook((FOLDER / script).read_text())
    sources = ["".join(cell["source"]) for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    cells = f"names = {{}}\nfor cell in {sources!r}:\n    exec(cell, names)"
    command = [sys.executable, "-c", cells]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True, timeout=240).stdout


def percents(text: str, before: str) -> list[float]:
    """Every percentage that follows ``before``."""
    return [float(number) for number in re.findall(rf"{re.escape(before)} ([\d.]+)%", text)]


def test_your_own_network_in_python(tmp_path: Path) -> None:
    """Names are kept; the scheme that fits twenty sites is found, attacked and trained with."""
    text = shown("your_own_network.py", tmp_path)
    assert "20 nodes, 40 edges, the first is site-01" in text
    assert "sealed for 1, far:2: 19.2 hops per update" in text
    (blind,), (opener,), (coalition,) = (
        percents(text, f"{name}: names") for name in ("prior", "last-hop", "coalition")
    )
    assert blind < opener < coalition / 2
    assert percents(text, "accuracy")[0] > 80


def test_four_real_nodes_in_python(tmp_path: Path) -> None:
    """All four train, the run ends with its updates, and every node holds the same model."""
    text = shown("real_nodes.py", tmp_path)
    assert "updates: 40 of 40" in text
    assert min(int(count) for count in re.findall(r"\d+", text.partition("by node:")[2].partition("]")[0])) > 0
    assert "one model at all nodes: True" in text


def test_private_learning_in_python(tmp_path: Path) -> None:
    """It learns as well as a plain walk, hides far better, costs a hundred times the hops, half with a better walk."""
    text = shown("private_learning.py", tmp_path)
    private, plain, *_ = percents(text, "accuracy")
    assert private > 90
    assert abs(private - plain) < 5
    hidden, *others = percents(text, "maker named")
    assert hidden < 10
    assert others[:3] == [100, 100, 100]
    for partition in ("iid", "graph:0.9"):
        (route,) = percents(text, f"{partition}, route alone: maker named")
        (content,) = percents(text, f"{partition}, route and content: step: maker named")
        assert route < content
    assert "epsilon <= 26.4 at delta = 1e-05" in text
    assert "simple: 105.4 hops per update; non-backtracking: 55.2" in text
    assert "sealed for 2, far:2: 29.8 hops per update" in text


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_the_lines_of_a_tutorial_can_be_given_as_they_stand(page: str) -> None:
    """Every command is where ``make demo`` puts it and takes the options it is given; the script is linked."""
    text = re.sub(r"```.*?```", "", (PAGES / page).read_text(), flags=re.DOTALL)
    lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    assert sum(line.startswith(".venv/bin/veilwalk ") for line in lines) >= 5
    for line in lines:
        program, *words = shlex.split(line)
        assert program in {"make", ".venv/bin/pip", ".venv/bin/veilwalk"}
        if program == ".venv/bin/veilwalk":
            command: Any = typer.main.get_command(app)
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            assert command.make_context(line, words).params
    for form in ("py", "ipynb"):
        assert f"(../../examples/tutorials/{page.removesuffix('.md').replace('-', '_')}.{form})" in text
