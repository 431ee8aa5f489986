"""What the route tells a receiver: estimated once for each scheme, or left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.audit import AuditSettings, audit
from veilwalk.core.files import cache_folder
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import overlay, random_regular
from veilwalk.report import training_report
from veilwalk.training import Route, Scenario, _route, make_spec, plan_run, route_anonymity, run_training

SMALL = make_spec(
    graph="rrg:20:3:seed=1", law="far:2", walk="non-backtracking", recipients=3, updates=40, attack=0, evaluations=2,
    compare="paper-walk,plain-walk",
)  # fmt: skip


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Scheme]:
    """Schemes that were audited, with few updates each; results are stored in a folder of this test."""
    schemes: list[Scheme] = []

    def count(scheme: Scheme, settings: AuditSettings, **options: Any) -> Any:
        schemes.append(scheme)
        return audit(scheme, replace(settings, updates=1000), **options)

    monkeypatch.setattr(_route, "audit", count)
    monkeypatch.setattr(_route, "cache_folder", cache_folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return schemes


def measure(recipients: int, *, seed: int = 1, law: str = "far:2") -> Route:
    """Measure the route of a scheme that seals for several, along some updates of it."""
    scheme = choose_scheme(random_regular(20, 3, seed=1), law, walk="non-backtracking", recipients=recipients)
    spec = make_spec(updates=60, seed=seed)
    trace = Scenario.build(scheme, spec, data="digits", partition="iid", learner="softmax").trace("private-walk")
    return route_anonymity(scheme, trace, np.arange(3))


def test_a_scheme_is_audited_once(audited: list[Scheme], tmp_path: Path) -> None:
    """Another seed or another learner is the same scheme; another number of recipients, or another law, is not."""
    first = measure(3)
    assert first.summary["kind"].startswith("estimated from 1,000 simulated updates")
    assert len(audited) == 1
    again = measure(3, seed=2)
    assert len(audited) == 1
    assert again.summary == first.summary
    measure(4)
    measure(3, law="uniform-node")
    assert [scheme.recipients for scheme in audited] == [3, 4, 3]
    assert len(list((tmp_path / "cache" / "veilwalk" / "anonymity").iterdir())) == 3


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"summary": {"kind": "estimated"}, "digest": "00"}'])
def test_a_damaged_result_is_computed_again(audited: list[Scheme], tmp_path: Path, content: str) -> None:
    first = measure(3)
    (path,) = (tmp_path / "cache" / "veilwalk" / "anonymity").iterdir()
    whole = path.read_bytes()
    path.write_text(content)
    assert measure(3).summary == first.summary
    assert len(audited) == 2
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_time_only(audited: list[Scheme], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert measure(3).summary == measure(3).summary
    assert len(audited) == 2


def test_without_an_audit_there_is_no_number(audited: list[Scheme], tmp_path: Path) -> None:
    """Nothing is audited, the record has no entropy of private walks, and table and report say so."""
    run = run_training(Scenario.from_spec(SMALL.change(audit="none")))
    algorithms = run.record().result["algorithms"]
    assert not audited
    for name in ("private-walk", "paper-walk"):
        leak = algorithms[name]["anonymity"]
        assert (leak["node_entropy_nats"], leak["hit_ratio"], leak["by_return_time"]) == (None, None, [])
        assert "not measured" in leak["kind"]
    assert algorithms["plain-walk"]["anonymity"]["hit_ratio"] == 1.0
    assert "<td>private-walk</td>" in run._repr_html_()
    page = training_report(run.record(), tmp_path / "report.html").read_text()
    assert "not measured (--audit none)" in page
    assert "None" not in page
    whole = run_training(Scenario.from_spec(SMALL))
    assert audited
    assert whole.model["weight"].tobytes() == run.model["weight"].tobytes()


def test_an_attack_on_content_needs_no_audit(audited: list[Scheme]) -> None:
    """Its route is then the last hop and the prior."""
    spec = SMALL.change(audit="none", attack=40, updates=80, compare="none")
    record = run_training(Scenario.from_spec(spec)).record()
    assert not audited
    assert {row["attacker"] for row in record.result["content_attack"]} >= {"route alone", "content alone: gradient"}
    assert sum(record.result["sample"]["posterior"]) == pytest.approx(1)


def test_the_exact_route_of_a_comparison_is_measured_once(
    audited: list[Scheme], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run reads its means to the last bit, and is predicted to; another network is measured anew."""
    scenario = Scenario.from_spec(SMALL.change(compare="paper-walk"))
    first = run_training(scenario).record().result["algorithms"]["paper-walk"]["anonymity"]
    assert first["kind"].startswith("exact")
    assert plan_run(scenario).route_s == 0
    other = Scenario.from_spec(SMALL.change(compare="paper-walk", graph="rrg:20:3:seed=2"))
    assert plan_run(other).route_s > 0
    monkeypatch.setattr(_route, "_measure_exactly", None)
    assert run_training(scenario).record().result["algorithms"]["paper-walk"]["anonymity"] == first
    with pytest.raises(TypeError):
        run_training(other)


def test_on_an_overlay_a_receiver_learns_nothing_but_that_its_neighbours_were_not_it(audited: list[Scheme]) -> None:
    scheme = choose_scheme(overlay(20, 3, seed=1), recipients=3)
    spec = make_spec(updates=60, seed=1)
    scenario = Scenario.build(scheme, spec, data="digits", partition="iid", learner="softmax")
    route = route_anonymity(scheme, scenario.trace("private-walk"), np.arange(3))
    assert len(audited) == 1
    assert route.summary["node_entropy_nats"] == pytest.approx(np.log(16), abs=1e-9)
    np.testing.assert_allclose(route.posteriors.max(axis=1), 1 / 16)
    # The paper's scheme, beside which it is shown, is for a graph that everybody knows.
    assert not scenario.paper_scheme.graph.is_overlay
