"""The audit as a library: values, records, rows; a toy observer; what observers may not read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.audit import AuditSettings, audit
from veilwalk.audit._play import play_updates
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import WALKS
from veilwalk.design import choose_scheme
from veilwalk.graphs import barabasi_albert, random_regular

SCHEME = choose_scheme(random_regular(30, 3, seed=1), "uniform-node", support=(2, 3))


def test_findings_are_what_the_record_says() -> None:
    """By name and as attributes; the record, the rows and the table of a notebook hold the same numbers."""
    found = audit(SCHEME, AuditSettings(updates=3000, colluders=4), seed=3)
    content = found.record().to_dict()
    assert (content["kind"], content["seed"], content["params"]["walk"]) == ("audit", 3, "simple")
    assert (content["params"]["law"], content["params"]["posterior"]) == ("uniform-node", "exact")
    for name, one in found.findings.items():
        said = content["observers"][name]
        assert one.how == said["posterior"]
        overall = said["overall"] if "overall" in said else said["by_linked_updates"][-1]
        assert (one.hit_ratio, list(one.interval)) == (overall["hit_ratio"], overall["hit_ratio_interval"])
        assert one.node_entropy_nats == overall["node_entropy_nats"]
        assert f"<td>{one.node_entropy_nats:.4g}</td>" in found._repr_html_()
    last = found["last-hop"]
    assert last.interval[0] < last.hit_ratio < last.interval[1]
    assert last.blind_hit_ratio is not None
    assert last.blind_hit_ratio < last.hit_ratio
    assert [row["linked"] for row in found["repeated"].by_linked_updates] == [1, 2, 4, 8]
    rows = [row for row in found.rows() if row["observer"] == "last-hop"]
    assert [row["part"] for row in rows] == ["all"] + ["return time"] * len(last.by_return_time)
    assert (rows[0]["hit_ratio"], rows[0]["hit_ratio_low"]) == (last.hit_ratio, last.interval[0])
    with pytest.raises(InvalidParameterError, match=r"^observer = 'moon'"):
        found["moon"]


def test_a_frame_needs_pandas_and_holds_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pandas is there gets the rows."""

    class Frames:
        """Pandas, as far as it is needed."""

        DataFrame = list

    monkeypatch.setitem(sys.modules, "pandas", Frames)
    found = audit(SCHEME, observers="prior", updates=500)
    assert found.to_frame() == found.rows()


def test_who_infers_does_not_know_the_truth() -> None:
    """No other file mentions it, and none reads the source of an update; the judge does, so that the test can fail."""
    folder = Path(str(sys.modules["veilwalk.audit"].__file__)).parent

    def knows(path: Path) -> bool:
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        return not names.isdisjoint({"truth", "_truth", "source"})

    assert {path.name for path in folder.glob("*.py") if knows(path)} == {"_attack.py"}


@pytest.mark.parametrize("kind", WALKS)
def test_the_plain_walk_is_the_walk_that_was_asked_for(kind: str) -> None:
    """Each hop follows an edge from where the last one led; non-backtracking does not turn, simple does."""
    graph = barabasi_albert(40, 2, seed=1)
    run = play_updates(choose_scheme(graph, "plain", walk=kind), AuditSettings(updates=6400, replicas=64))
    source, here, lane = run.truth.source, run.sightings.destination, run.truth.lane
    assert len(here) == 6400
    np.testing.assert_array_equal(run.sightings.last_hop, source)
    assert all(node in graph.neighbours(int(other)) for other, node in zip(source[:500], here[:500], strict=True))
    follows = lane[1:] == lane[:-1]
    np.testing.assert_array_equal(source[1:][follows], here[:-1][follows])
    turns = (here[1:] == source[:-1])[follows].mean()
    assert (turns < 0.02) == (kind == "non-backtracking")


def test_the_prior_of_a_plain_walk_knows_how_it_walks() -> None:
    """A metropolis walk comes to a node rather from those of few neighbours: calibrated, and better than a third."""
    graph = barabasi_albert(40, 2, seed=1)
    asked: dict[str, Any] = {"updates": 60_000, "observers": "prior"}
    found = audit(choose_scheme(graph, "plain", walk="metropolis"), **asked)["prior"]
    low, high = found.interval
    assert found.blind_hit_ratio is not None
    assert low - (high - low) < found.blind_hit_ratio < high + (high - low)
    alike = audit(choose_scheme(graph, "plain"), **asked)["prior"].hit_ratio
    assert found.hit_ratio > alike + 0.02
