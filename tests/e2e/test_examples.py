"""Examples and generated pages run, on smaller graphs than they are meant for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_facebook_example_runs_on_a_small_graph() -> None:
    """It prints exact prices, measured ones, and what leaves give away."""
    asked = ["--graph", "er:80:3:seed=1:component=largest", "--support", "2:4", "--updates", "4000"]
    shown = run("examples/facebook.py", *asked)
    assert "simple walk, balanced:" in shown
    assert "last-hop: node entropy" in shown
    assert "nodes have one neighbour" in shown
    assert "GiB" in shown


def test_the_table_of_graphs_is_written(tmp_path: Path) -> None:
    """Every graph, walk and law has its row; a bound is never below what it bounds, nor optimal below others."""
    run("-m", "benchmarks.graph_table", "--small", "--docs", str(tmp_path))
    text = (tmp_path / "reference" / "graphs.md").read_text()
    designed, attacked = text.split("## The laws attacked")
    rows, scores = (
        [line.split(" | ") for line in part.splitlines() if line.startswith(("| rrg", "| ba"))]
        for part in (designed, attacked)
    )
    assert len(rows) == 2 * 2 * 5
    for row in rows:
        if row[6].strip():
            assert float(row[5]) <= float(row[6]) + 1e-4
    assert [row[1] for row in scores] == 2 * ["uniform-node", "equalised", "optimal"]
    assert all(float(row[6].strip(" |")) >= 0 for row in scores if row[1] != "optimal")
    assert (tmp_path / "images" / "frontier-hubs.png").stat().st_size > 10_000
