"""The frontier figure is drawn from its record alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from veilwalk.core.records import Record
from veilwalk.report import frontier_files


def row(walk: str, law: str, hops: float, entropy: float, *, balanced: bool = True) -> dict[str, Any]:
    return {
        "walk": walk,
        "law": law,
        "balanced": balanced,
        "mean_iteration_hops": hops,
        "node_entropy_nats": entropy,
        "hit_ratio": 0.02,
    }


def test_every_row_is_a_point_and_optimal_laws_a_curve(tmp_path: Path) -> None:
    """JSON as given, PNG and SVG that name walks and laws, and no figure left open."""
    rows = [
        row("simple", "uniform-node", 100.0, 4.0, balanced=False),
        row("simple", "optimal", 99.0, 4.0),
        row("simple", "optimal", 90.0, 3.5),
        row("non-backtracking", "uniform-node", 51.0, 4.0),
        row("non-backtracking", "optimal", 50.0, 4.1),
    ]
    params = {"graph": "rrg:30:3:seed=1", "support": "2:4", "observer": "return-time"}
    record = Record(kind="frontier", params=params, result={"rows": rows})
    paths = frontier_files(record, tmp_path / "new")
    assert [path.name for path in paths] == ["frontier.png", "frontier.svg", "frontier.json"]
    assert json.loads(paths[2].read_text())["rows"] == rows
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    drawn = paths[1].read_text()
    for words in (
        "simple walk",
        "non-backtracking walk",
        "uniform-node",
        "mean hops per update",
        "return-time observer",
        "chance of naming the source",
        "non-backtracking: 4.10 nats of node entropy for 50 hops; simple: 4.00 for 100",
    ):
        assert words in drawn
    assert not plt.get_fignums()
    # One marker more or less makes another picture.
    fewer = Record(kind="frontier", params=params, result={"rows": rows[:-1]})
    assert frontier_files(fewer, tmp_path / "fewer")[1].read_text().count("<use") < drawn.count("<use")
