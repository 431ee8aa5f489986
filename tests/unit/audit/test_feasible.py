"""What ``auto`` and ``all`` come to, and what an audit refuses before a hop is walked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from veilwalk.audit import (
    OBSERVERS,
    AuditSettings,
    audit,
    audit_collusion,
    make_plan,
    parse_colluders,
)
from veilwalk.audit._members import Coalition, FilterObserver, LoneObserver
from veilwalk.audit._plan import _SAMPLED_PRODUCTS, INFERENCES
from veilwalk.core.errors import GraphError, InfeasibleDesignError, InvalidParameterError, ResourceLimitError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import Graph, hypercube, parse_graph_spec, random_regular

GRAPH = random_regular(40, 3, seed=2)
SCHEME = choose_scheme(GRAPH, "uniform-node", support=(2, 4))
#: Limits that are constants.
LARGE, PATH = "veilwalk.core.sizes.LARGE_NODES", "veilwalk.audit._observers._PATH_NODES"
CHAINED = tuple(name for name in OBSERVERS if name != "path")
#: Those who follow the token through all they saw of it, on chains only.
FOLLOWERS = ("memory", "neighbour", "linked-neighbour", "coalition", "linked-coalition")


def walking(walk: str, graph: Graph = GRAPH) -> Scheme:
    """The same law under another walk."""
    return choose_scheme(graph, "uniform-node", support=(2, 4), walk=walk)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "zero updates": ({"updates": 0}, "updates = 0"),
    "half an update": ({"updates": 1.5}, "updates = 1.5"),
    "unknown observer": ({"observers": ("prior", "moon")}, "observers = 'moon': must be names among prior, window"),
    "no observer": ({"observers": ()}, "observers = ''"),
    "posterior": (
        {"posterior": "guessed"},
        "posterior = 'guessed': must be auto or one of exact, rehearsed, by-class",
    ),
    "repeated by class": ({"posterior": "by-class", "observers": "repeated"}, "observers = 'repeated'"),
    "colluders": ({"colluders": -1}, "colluders = -1"),
    "one replica": ({"replicas": 1}, "replicas = 1"),
    "window": ({"window_radius": -1}, "window_radius = -1"),
    "horizon": ({"horizon": -1}, "horizon = -1"),
    "seed": ({"seed": -1}, "seed = -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_get_one_clear_line(case: str) -> None:
    """The parameter, its value, what is needed."""
    settings, message = BAD[case]
    with pytest.raises(InvalidParameterError) as refused:
        audit(SCHEME, **settings)
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("colluders", [0, 40, 41])
def test_colluders_must_leave_somebody(colluders: int) -> None:
    """None, all and more than all are refused by the plan; without coalitions the number does not matter."""
    with pytest.raises(InvalidParameterError, match=f"^colluders = {colluders}: "):
        make_plan(SCHEME, AuditSettings(colluders=colluders))
    make_plan(SCHEME, AuditSettings(colluders=colluders, observers=("prior",)))


@pytest.mark.parametrize(("nodes", "tenth"), [(300, 30), (40, 4), (4, 1)])
def test_a_tenth_collude_unless_told(nodes: int, tenth: int) -> None:
    """At least one; a plan that asks no coalition has none."""
    graph = random_regular(nodes, 3, seed=1)
    scheme = choose_scheme(graph, "uniform-node", support="2:6") if nodes > 4 else choose_scheme(graph, "plain")
    if nodes > 4:
        assert make_plan(scheme, AuditSettings()).colluders == tenth
        assert make_plan(scheme, AuditSettings(observers="prior")).colluders == 0
    assert max(round(nodes / 10), 1) == tenth


def test_colluders_as_numbers_and_as_shares() -> None:
    """A share is rounded, and is at least one node; anything else is refused in one line."""
    assert parse_colluders("30", 300) == (30,)
    assert parse_colluders("1%, 5%,10%", 300) == (3, 15, 30)
    assert parse_colluders("0.1%,2.5%,7", 300) == (1, 8, 7)
    assert parse_colluders("0%", 300) == (0,)
    for bad in ("three", "5%%", "-1", "", "1,,2", "1e2"):
        with pytest.raises(InvalidParameterError, match="colluders = "):
            parse_colluders(bad, 300)


def test_a_law_for_another_graph_makes_no_scheme() -> None:
    """It is told apart by the digest, though both graphs have 40 nodes of degree 3."""
    other = choose_scheme(random_regular(40, 3, seed=3), "uniform-node", support=(2, 4))
    with pytest.raises(InvalidParameterError, match=r"^graph = "):
        Scheme(GRAPH, other.law)


def test_a_law_that_never_mixes_is_refused() -> None:
    """On a bipartite graph at even distances updates stay on their side: there is no prior over sources."""
    scheme = choose_scheme(hypercube(4), "uniform-node", support=(2, 2))
    with pytest.raises(InfeasibleDesignError, match="travel"):
        audit(scheme, updates=100)


def test_what_auto_chooses_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Posterior and observers by walk and size; each plan is carried out, and says how it knows."""
    # With so few paths everybody who follows the token is quick enough.
    for kind in (FilterObserver, LoneObserver):
        monkeypatch.setattr(kind.__init__, "__defaults__", (4, True))
    monkeypatch.setattr(Coalition.__init__, "__defaults__", (4, True, True))
    quick: dict[str, Any] = {"updates": 800, "rehearsed_hops": 2000}
    # What looking candidates up takes, and not a byte for tables.
    with monkeypatch.context() as patch:
        patch.setattr(LARGE, 40)
        enough = make_plan(SCHEME, AuditSettings(**quick)).predicted_bytes
    cases: list[tuple[Scheme, dict[str, Any], str, tuple[str, ...]]] = [
        (SCHEME, {}, "exact", CHAINED),
        (SCHEME, {"exact_nodes": 39}, "exact", _without("previous-maker")),
        (SCHEME, {LARGE: 40}, "by-class", ("prior", "return-time", "last-hop")),
        (SCHEME, {"memory_bytes": enough}, "by-class", ("prior", "return-time", "last-hop")),
        (walking("non-backtracking"), {}, "exact", (*_without("window"), "path")),
        (
            walking("non-backtracking"),
            {"exact_nodes": 39},
            "rehearsed",
            (*_without("window", "previous-maker"), "path"),
        ),
        (walking("non-backtracking"), {PATH: 39}, "exact", _without("window")),
        (
            choose_scheme(hypercube(5), "uniform-node", support=(2, 3)),
            {"exact_nodes": 31},
            "exact",
            _without("previous-maker"),
        ),
        (choose_scheme(GRAPH, "plain"), {}, "exact", ("prior", "last-hop")),
        (choose_scheme(GRAPH, "plain", walk="non-backtracking"), {LARGE: 9}, "exact", ("prior", "last-hop")),
    ]
    for scheme, limits, posterior, observers in cases:
        with monkeypatch.context() as patch:
            found = audit(scheme, **quick, **patch_limits(patch, limits))
        assert (found.plan.posterior, tuple(found)) == (posterior, observers)
        assert found.left_out == {}
        found.record().to_json()


def patch_limits(patch: pytest.MonkeyPatch, limits: dict[str, Any]) -> dict[str, Any]:
    """Set the limits that are constants of a module; return the others, which are settings."""
    for name in limits.keys() & {LARGE, PATH}:
        patch.setattr(name, limits[name])
    return {name: limit for name, limit in limits.items() if name not in {LARGE, PATH}}


def _without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in CHAINED if name not in names)


def test_an_observer_of_all_that_proves_impossible_is_left_out_and_named() -> None:
    """With a single update no coalition has anything to be asked about; asked for by name it is refused."""
    scheme = choose_scheme(GRAPH, "uniform-node", support=(2, 4))
    found = audit(scheme, updates=2, colluders=1)
    assert set(found.left_out) == {"first-sight", "previous-maker", *FOLLOWERS}
    assert "went to a colluder" in found.record().result["left_out"]["first-sight"]
    with pytest.raises(InvalidParameterError, match=r"^updates that count = 0"):
        audit(scheme, updates=2, colluders=1, observers="first-sight")


def test_the_horizon_leaves_two_percent_beyond() -> None:
    """Of the return times of a run, 1% to 4% are longer; one asked for is taken as it is."""
    assert make_plan(SCHEME, AuditSettings(horizon=77)).horizon == 77
    found = audit(SCHEME, observers=("return-time",), updates=20_000)
    rows = found["return-time"].by_return_time
    # The last bin holds the longest tenth of return times.
    assert rows[-1]["lo"] < found.plan.horizon < rows[-1]["hi"]
    assert found.hops_per_update_predicted is not None
    assert found.plan.horizon == pytest.approx(5.83 * found.hops_per_update_predicted, rel=0.02)


def test_memory_grows_with_what_is_asked() -> None:
    """More updates, observers or nodes take more; a million updates of 15 fields are at least 80 MB."""
    few, more, many = (
        make_plan(SCHEME, AuditSettings(colluders=3, **asked)).predicted_bytes
        for asked in ({"updates": 1000, "observers": "prior"}, {"updates": 1000}, {"updates": 1_000_000})
    )
    assert few < more < many
    assert 80e6 < many < 2e9


def test_an_audit_beyond_its_memory_is_refused_before_a_hop_is_walked() -> None:
    """One line with the need, the limit and what to do."""
    with pytest.raises(ResourceLimitError, match="1 GiB"):
        audit(SCHEME, observers=("prior",), updates=10**12, memory_bytes=1 << 30)


def test_walks_that_do_not_turn_back_are_cheaper() -> None:
    """Exact or rehearsed, with the same run behind both; coalitions say that they rehearsed."""
    graph = random_regular(60, 3, seed=1)
    asked: dict[str, Any] = {"updates": 20_000, "colluders": 6, "rehearsed_hops": 20_000}
    asked["observers"] = ("prior", "last-hop", "first-sight")
    walk = "non-backtracking"
    cases = (("simple", "exact"), (walk, "exact"), (walk, "rehearsed"))
    found = {(kind, posterior): audit(walking(kind, graph), posterior=posterior, **asked) for kind, posterior in cases}
    hops = {key: one.hops_per_update.mean for key, one in found.items()}
    assert hops[walk, "exact"] == hops[walk, "rehearsed"] < 0.6 * hops["simple", "exact"]
    hows = {key: one["first-sight"].how for key, one in found.items()}
    assert hows["simple", "exact"] == "exact"
    assert hows[walk, "exact"] == hows[walk, "rehearsed"] == "estimated from simulated walks"


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "too large": ("non-backtracking", {"observers": "last-hop", "posterior": "exact", "exact_nodes": 39}, "posterior"),
    "removed": ("simple", {"posterior": "estimated"}, "posterior"),
    "looked up": ("simple", {"observers": "first-sight", "posterior": "by-class"}, "observers"),
    "large": ("simple", {"posterior": "exact", LARGE: 9}, "posterior"),
    "large observer": ("simple", {"observers": "first-sight", "posterior": "by-class", LARGE: 9}, "observers"),
    "window": ("non-backtracking", {"observers": "window"}, "observers"),
    "path": ("simple", {"observers": "path", PATH: 39}, "observers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_scheme_cannot_have_is_refused_in_one_line(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a hop is walked, in words of parameters."""
    walk, settings, parameter = REFUSED[case]
    chosen = AuditSettings(**patch_limits(monkeypatch, settings))
    with pytest.raises(InvalidParameterError) as refused:
        make_plan(walking(walk), chosen)
    assert refused.value.name == parameter
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["bridge", "predecessor", "round"])
def test_removed_observers_are_refused_by_what_replaces_them(name: str) -> None:
    """In one line, whatever else was asked for."""
    assert name not in OBSERVERS
    with pytest.raises(InvalidParameterError) as refused:
        make_plan(SCHEME, AuditSettings(observers=f"prior,{name}"))
    assert refused.value.name == "observers"
    assert any(other in refused.value.need.split(",")[0] for other in ("coalition", "path"))


@pytest.mark.parametrize(("per_minute", "answers"), [(5_000.0, 128), (20.0, 64), (3.2, 64)])
def test_the_coalition_answers_less_often_the_more_an_answer_takes(
    monkeypatch: pytest.MonkeyPatch, per_minute: float, answers: int
) -> None:
    """As often as takes a minute, but from 64 to 128 times for one recipient; the others say if they are left out."""
    for kind in (FilterObserver, Coalition):
        monkeypatch.setattr(kind, "answers_per_minute", lambda _observer, _plan: per_minute)
    plan = make_plan(SCHEME, AuditSettings())
    assert "coalition" in plan.names
    assert set(plan.left_out) == (set() if per_minute > 256 else set(FOLLOWERS) - {"coalition"})
    found = audit(SCHEME, updates=20_000, observers="coalition")["coalition"]
    opened = next(row for row in found.report["by_knowledge"] if row["of"] == "opened")
    assert opened["updates"] == answers
    assert len(found.scored.scores) > answers


def test_a_coalition_that_takes_too_long_is_said_not_to_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """First sight never stands alone: record, table and curve have the reason. By name it is run up to an hour."""
    for kind in (FilterObserver, Coalition):
        monkeypatch.setattr(kind, "answers_per_minute", lambda _observer, _plan: 3.0)
    found = audit(SCHEME, updates=2_000)
    assert "first-sight" in found
    assert "coalition" not in found
    reason = found.record().result["left_out"]["coalition"]
    assert "64 answers" in reason
    assert f"<tr><td>coalition</td><td>not run: {reason}</td>" in found._repr_html_()
    (row,) = audit_collusion(SCHEME, AuditSettings(updates=2_000), [4]).result["rows"]
    assert row["left_out"] == {"coalition": reason}
    assert "coalition" in make_plan(SCHEME, AuditSettings(observers="coalition")).names
    for kind in (FilterObserver, Coalition):
        monkeypatch.setattr(kind, "answers_per_minute", lambda _observer, _plan: 1.0)
    with pytest.raises(InvalidParameterError, match="observers = 'coalition'"):
        make_plan(SCHEME, AuditSettings(observers="coalition"))
    # Who says how many is taken at his word.
    assert "coalition" in make_plan(SCHEME, AuditSettings(scored_by_filter=10)).names


def test_at_a_thousand_nodes_the_coalition_is_run_with_fewer_answers() -> None:
    """Sealed for one, where version 0.2 left it out and printed first sight alone."""
    plan = make_plan(choose_scheme(random_regular(1_000, 3, seed=1), "paper", support=(2, 6)), AuditSettings())
    assert "coalition" in plan.names
    assert Coalition().count_answers(plan) == 64


PLAIN_REFUSED = {
    "return-time": {"observers": "return-time"},
    "by class": {"posterior": "by-class"},
}


@pytest.mark.parametrize("case", PLAIN_REFUSED)
def test_a_plain_walk_is_attacked_by_its_last_hop_alone(case: str) -> None:
    """One line says why."""
    with pytest.raises(InvalidParameterError, match="plain walk"):
        make_plan(choose_scheme(GRAPH, "plain"), AuditSettings(**PLAIN_REFUSED[case]))  # type: ignore[arg-type]


def test_two_members_are_refused_in_one_line_unless_plain() -> None:
    """A maker can only seal for the other; the plain walk hides nobody, and says so."""
    graph = parse_graph_spec("complete:2")
    with pytest.raises(GraphError) as refused:
        choose_scheme(graph)
    assert len(str(refused.value).splitlines()) == 1
    assert audit(choose_scheme(graph, "plain"), updates=200)["last-hop"].hit_ratio == 1


DEGENERATE = {
    "path of four": Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)]),
    "star": Graph.from_edges(5, [(0, i) for i in range(1, 5)]),
    "fork": Graph.from_edges(4, [(0, 1), (1, 2), (1, 3), (2, 3)]),
}


def test_a_ring_is_refused_to_who_never_turns() -> None:
    """In one line, whatever else could be asked."""
    ring = choose_scheme(parse_graph_spec("ring:5"), "uniform-node", support=(2, 2), walk="non-backtracking")
    with pytest.raises(GraphError, match="never turns"):
        audit(ring, updates=100)


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_graphs_are_audited(name: str) -> None:
    """What fits them by default answers; neighbours admitted, every observer answers."""
    graph = DEGENERATE[name]
    audit(choose_scheme(graph), updates=500).record().to_json()
    neighbours = DistanceSupport(1, 2, allow_neighbours=True)
    for walk in ("lazy", "simple", "non-backtracking"):
        scheme = choose_scheme(graph, "uniform-node", support=neighbours, walk=walk)
        found = audit(scheme, updates=500, rehearsed_hops=500)
        assert {"prior", "return-time", "last-hop"} <= set(found)
        found.record().to_json()


@pytest.mark.parametrize("posterior", ["exact", "rehearsed"])
def test_hops_are_predicted_for_every_walk(posterior: str) -> None:
    """From the arcs too, whatever the posterior."""
    asked: dict[str, Any] = {"observers": ("return-time",), "updates": 20_000, "posterior": posterior}
    asked["rehearsed_hops"] = 2_000
    found = audit(walking("non-backtracking"), **asked)
    assert found.hops_per_update.mean == pytest.approx(found.hops_per_update_predicted, rel=0.02)


def test_every_observer_says_what_it_sees() -> None:
    """In one line each, no two alike, and the reference has them in their order."""
    lines = [kind.sees for kind in OBSERVERS.values()]
    assert len(set(lines)) == len(lines) == 13
    assert all(line and "\n" not in line for line in lines)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    rows = "\n".join(f"| `{name}` | {kind.sees} |" for name, kind in OBSERVERS.items())
    assert rows in page


def test_auto_suits_the_observers_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linked updates need tables of all pairs: where only looking up is left, they are refused."""
    asked = AuditSettings(observers="last-hop,repeated", exact_nodes=39)
    assert make_plan(SCHEME, asked).posterior == "exact"
    assert make_plan(walking("non-backtracking"), asked).posterior == "rehearsed"
    monkeypatch.setattr(LARGE, 40)
    with pytest.raises(InvalidParameterError) as refused:
        make_plan(SCHEME, asked)
    assert refused.value.name == "observers"


def test_beyond_500_nodes_exact_posteriors_take_minutes() -> None:
    """At 64 destinations, to a horizon that is the shorter the larger the graph; rehearsed beyond 2,000 nodes."""
    schemes = [
        choose_scheme(random_regular(n_nodes, 3, seed=1), "uniform-node", support=(2, 4))
        for n_nodes in (400, 1_000, 2_000, 2_002)
    ]
    plans = [make_plan(scheme, AuditSettings(observers="last-hop")) for scheme in schemes]
    assert [plan.posterior for plan in plans] == ["exact", "exact", "exact", "rehearsed"]
    assert [plan.samples_destinations for plan in plans] == [False, True, True, True]
    for plan in plans[1:3]:
        products = 64 * plan.horizon * plan.scheme.chain.products_per_hop / plan.scheme.graph.n_nodes
        assert 64 < plan.horizon < 2 * plan.scheme.price.hops
        assert 0.9 * _SAMPLED_PRODUCTS < products <= _SAMPLED_PRODUCTS


@pytest.mark.parametrize("limits", [{"exact_nodes": 39}, {LARGE: 40}], ids=["many nodes", "very many nodes"])
def test_advice_works_when_it_is_followed(limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every posterior that a refusal names serves, but exact ones where the graph is too large for them."""
    settings = AuditSettings(posterior="exact", **patch_limits(monkeypatch, limits))
    scheme = walking("non-backtracking")
    with pytest.raises(InvalidParameterError) as refused:
        make_plan(scheme, settings)
    advised = [name for name in (*INFERENCES, "by-class") if name in refused.value.need and name != "exact"]
    assert advised
    for name in advised:
        assert make_plan(scheme, replace(settings, posterior=name)).posterior == name
