"""Examples and generated pages run, on smaller graphs than they are meant for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from veilwalk.graphs import parse_graph_spec

ROOT = Path(__file__).parents[2]
WALKS = ("simple", "metropolis")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_facebook_example_runs_on_a_small_graph() -> None:
    """Its numbers hang together: exact price and measured one, what balancing does, what each observer adds."""
    spec = "er:80:3:seed=1:component=largest"
    shown = run("examples/facebook.py", "--graph", spec, "--support", "2:4", "--updates", "4000")
    prices = {
        title: [float(number) for number in numbers]
        for title, *numbers in re.findall(
            r"^(.+): (\d+) hops .*exact.* updates ([\d.]+) to ([\d.]+) times", shown, re.MULTILINE
        )
    }
    assert list(prices) == [f"{walk} walk, {law}" for walk in WALKS for law in ("uniform-node", "balanced")]
    for walk in WALKS:
        (plain, least, most), (dearer, *even) = (prices[f"{walk} walk, {law}"] for law in ("uniform-node", "balanced"))
        assert dearer > plain
        assert least < 1 < most
        assert even == [1, 1]
    low, high = (int(end) for end in re.findall(r"measured \[(\d+), (\d+)\]", shown)[0])
    assert low < prices["simple walk, uniform-node"][0] < high < prices["metropolis walk, uniform-node"][0]
    degrees = np.bincount(parse_graph_spec(spec).edges().reshape(-1))
    entropies = re.findall(r"^([\w-]+): node entropy ([\d.]+) nats", shown, re.MULTILINE)
    assert [name for name, _ in entropies] == ["prior", "return-time", "last-hop"]
    prior, timed, last = (float(nats) for _, nats in entropies)
    assert np.log(len(degrees)) > prior > timed > last > 0
    assert f"{len(degrees)} nodes, degrees 1 to {degrees.max()}\n" in shown
    assert f"\n{np.count_nonzero(degrees == 1)} nodes have one neighbour" in shown


def test_the_table_of_graphs_is_written(tmp_path: Path) -> None:
    """Every graph, walk and law has its row; a bound is never below what it bounds, nor optimal below others."""
    run("-m", "tools.pages.graph_table", "--small", "--docs", str(tmp_path), "--work", str(tmp_path / "work"))
    tables = json.loads((tmp_path / "measured" / "graphs.json").read_text())
    rows, scores = (tables[name]["rows"] for name in ("Graphs, walks and laws", "The laws attacked, at equal hops"))
    assert len(rows) == 2 * 2 * 3
    shown = (tmp_path / "measured" / "graphs.md").read_text()
    assert all(f"| {' | '.join(row)} |" in shown for row in [*rows, *scores] if row[0].startswith("rrg"))
    for row in rows:
        if row[6].strip():
            assert float(row[5]) <= float(row[6]) + 1e-4
    assert [row[1] for row in scores] == 2 * ["uniform-node", "optimal"]
    assert all(float(row[6]) >= 0 for row in scores if row[1] != "optimal")
    assert (tmp_path / "images" / "frontier-hubs.png").stat().st_size > 10_000


def test_the_comparison_of_walks_is_made_of_jobs(tmp_path: Path) -> None:
    """One part of it, twice: its jobs are not played again, and the page waits for the other parts."""
    where = ("prices", "--small", "--docs", str(tmp_path / "docs"), "--work", str(tmp_path / "work"))
    kept = []
    for _ in range(2):
        assert "the page needs all parts" in run("-m", "tools.pages.walk_comparison", *where)
        kept.append({path.name: path.stat().st_mtime_ns for path in (tmp_path / "work").iterdir()})
    assert kept[0] == kept[1] != {}
