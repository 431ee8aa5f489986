"""Laws by name, and what an audit refuses before a hop is walked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.audit import (
    OBSERVERS,
    SCHEMES,
    AuditSettings,
    _rehearsal,
    _settings,
    all_observers,
    audit,
    chosen_horizon,
    predicted_memory,
    scheme_law,
)
from veilwalk.chains import WalkChain, mean_hitting_times
from veilwalk.core.errors import GraphError, InfeasibleDesignError, InvalidParameterError, ResourceLimitError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw, design_regular
from veilwalk.graphs import Graph, complete, distances, hypercube, random_regular

SUPPORT = DistanceSupport(2, 4)
GRAPH = random_regular(40, 3, seed=2)
NAMES = ("rrg:40:3:seed=2", "a law")
LAWS = [name for name in SCHEMES if name != "plain"]


def by_distance(law: DestinationLaw, graph: Graph, node: int) -> list[float]:
    """P(distance) when ``node`` draws, summed over the row."""
    row, far = law.matrix.toarray()[node], distances(graph)[node]
    return [float(row[far == distance].sum()) for distance in SUPPORT.distances]


@pytest.mark.parametrize("name", LAWS)
def test_every_law_is_a_law_on_its_support(name: str) -> None:
    """Rows sum to one; exactly the nodes 2 to 4 hops away are drawn, evenly within a shell; the support is told."""
    law = scheme_law(name, GRAPH, SUPPORT)
    matrix, far = law.matrix.toarray(), distances(GRAPH)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(matrix > 0, (far >= 2) & (far <= 4))
    assert (law.support, law.graph_digest) == (SUPPORT, GRAPH.digest)
    for node in range(40):
        for distance in SUPPORT.distances:
            assert np.ptp(matrix[node][far[node] == distance]) < 1e-15


def test_the_uniform_laws_are_uniform_over_what_they_say() -> None:
    """A third to each distance, or the same to each node; the one is not the other."""
    far = distances(GRAPH)
    by_shell, by_one = (scheme_law(name, GRAPH, SUPPORT) for name in LAWS[:2])
    for node in range(40):
        even = by_distance(by_shell, GRAPH, node)
        assert even == pytest.approx([1 / 3] * 3, abs=1e-12)
        counts = np.array([np.count_nonzero(far[node] == distance) for distance in SUPPORT.distances])
        by_node = by_distance(by_one, GRAPH, node)
        assert by_node == pytest.approx((counts / counts.sum()).tolist(), abs=1e-12)
        assert not np.allclose(by_node, even, atol=0.01)


def test_the_papers_laws_are_its_closed_forms() -> None:
    """Each name stands for its own formulas: corrected for paper, printed for paper-printed; they differ."""
    model = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=40, degree=3), support=SUPPORT)
    corrected, printed = (by_distance(scheme_law(name, GRAPH, SUPPORT), GRAPH, 7) for name in LAWS[2:])
    assert corrected == pytest.approx(design_regular(model, formulas="corrected").distance_pmf.tolist(), abs=1e-12)
    assert printed == pytest.approx(design_regular(model, formulas="printed").distance_pmf.tolist(), abs=1e-12)
    assert not np.allclose(corrected, printed, atol=1e-3)


@pytest.mark.parametrize("name", ["paper", "paper-printed"])
def test_the_papers_laws_are_for_regular_graphs(name: str) -> None:
    """One line with the degrees found; the uniform laws take any graph."""
    star_and_ring = Graph.from_edges(7, [(i, (i + 1) % 6) for i in range(6)] + [(0, 6)])
    with pytest.raises(GraphError, match=rf"law {name} is for regular graphs, degrees range from 1 to 3"):
        scheme_law(name, star_and_ring, DistanceSupport(2, 3))
    assert scheme_law("uniform-node", star_and_ring, DistanceSupport(2, 3)).matrix.shape == (7, 7)


def test_laws_that_do_not_exist_are_refused() -> None:
    """An unknown name lists the known ones; a support that misses the graph names the node it leaves alone."""
    with pytest.raises(InvalidParameterError, match="law = 'moon': must be one of plain, uniform-distance"):
        scheme_law("moon", GRAPH, SUPPORT)
    for name in ("uniform-node", "uniform-distance"):
        with pytest.raises(InfeasibleDesignError, match="support 2:3: node 0 has no other node"):
            scheme_law(name, complete(6), DistanceSupport(2, 3))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "zero updates": ({"updates": 0}, "updates = 0"),
    "half an update": ({"updates": 1.5}, "updates = 1.5"),
    "unknown observer": ({"observers": ("prior", "moon")}, "observers = 'prior,moon': must be among prior, window"),
    "no observer": ({"observers": ()}, "observers = ''"),
    "walk": ({"walk": "moon"}, "walk = 'moon': must be one of simple, lazy"),
    "posterior": (
        {"posterior": "guessed"},
        "posterior = 'guessed': must be one of exact, estimated, by-class, rehearsed",
    ),
    "repeated estimated": ({"posterior": "estimated"}, "observers = 'repeated': must be left out"),
    "colluders": ({"colluders": -1}, "colluders = -1"),
    "one replica": ({"replicas": 1}, "replicas = 1"),
    "window": ({"window_radius": -1}, "window = -1"),
    "horizon": ({"horizon": -1}, "horizon = -1"),
    "seed": ({"seed": -1}, "seed = -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_get_one_clear_line(case: str) -> None:
    """The parameter, its value, what is needed."""
    settings, message = BAD[case]
    with pytest.raises(InvalidParameterError) as refused:
        AuditSettings(**settings)
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("refusing", [audit, predicted_memory], ids=["audit", "dry run"])
@pytest.mark.parametrize("colluders", [0, 40, 41])
def test_colluders_must_leave_somebody(refusing: Any, colluders: int) -> None:
    """None, all and more than all are refused, by the dry run too; without coalitions the number does not matter."""
    law = scheme_law("uniform-node", GRAPH, SUPPORT)
    options = {"names": NAMES} if refusing is audit else {}
    with pytest.raises(InvalidParameterError, match=f"colluders = {colluders}: must be from 1 to 39"):
        refusing(GRAPH, law, AuditSettings(colluders=colluders), **options)
    refusing(GRAPH, law, AuditSettings(colluders=colluders, observers=("prior",), updates=100), **options)


def test_a_law_for_another_graph_is_refused() -> None:
    """It is told apart by the digest, though both graphs have 40 nodes of degree 3."""
    law = scheme_law("uniform-node", random_regular(40, 3, seed=3), SUPPORT)
    with pytest.raises(InvalidParameterError, match=r"graph = .* the one the law was designed for"):
        audit(GRAPH, law, AuditSettings(colluders=3), names=NAMES)


def test_a_law_that_never_mixes_is_refused() -> None:
    """On a bipartite graph at even distances updates stay on their side: there is no prior over sources."""
    graph = hypercube(4)
    law = scheme_law("uniform-node", graph, DistanceSupport(2, 2))
    with pytest.raises(InfeasibleDesignError, match="cannot travel between all nodes"):
        audit(graph, law, AuditSettings(colluders=3, updates=100), names=NAMES)


def test_a_graph_too_large_for_exact_observers_says_so_and_offers_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never a silent switch; what needs no exact law of return times still runs."""
    monkeypatch.setattr(_settings, "EXACT_NODES", 39)
    law = scheme_law("uniform-node", GRAPH, SUPPORT)
    with pytest.raises(ResourceLimitError, match="up to 39 nodes, the graph has 40: ask for --posterior estimated"):
        audit(GRAPH, law, AuditSettings(colluders=3), names=NAMES)
    estimated = AuditSettings(posterior="estimated", observers=("return-time", "last-hop"), updates=2000)
    record = audit(GRAPH, law, estimated, names=NAMES)
    assert record.params["posterior"] == "estimated"
    for name in ("return-time", "last-hop"):
        assert record.result["observers"][name]["posterior"].startswith("estimated")
    others = AuditSettings(observers=("prior", "first-sight"), colluders=5, updates=2000)
    assert set(audit(GRAPH, law, others, names=NAMES).result["observers"]) == {"prior", "first-sight"}


def test_the_horizon_leaves_two_percent_beyond() -> None:
    """Of the return times of a run, 1% to 4% are longer; one asked for is taken as it is."""
    law, chain = scheme_law("uniform-node", GRAPH, SUPPORT), WalkChain.simple(GRAPH)
    assert chosen_horizon(chain, law, AuditSettings(horizon=77)) == 77
    horizon = chosen_horizon(chain, law, AuditSettings())
    settings = AuditSettings(observers=("return-time",), updates=20_000)
    rows = audit(GRAPH, law, settings, names=NAMES).result["observers"]["return-time"]["by_return_time"]
    # The last bin holds the longest tenth of return times.
    assert rows[-1]["lo"] < horizon < rows[-1]["hi"]
    assert horizon == pytest.approx(5.83 * law.mean_hops(mean_hitting_times(chain)), rel=0.02)


def test_memory_grows_with_what_is_asked() -> None:
    """More updates, observers or nodes take more; a million updates of 15 fields are at least 80 MB."""
    law = scheme_law("uniform-node", GRAPH, SUPPORT)
    few = AuditSettings(colluders=3, updates=1000, observers=("prior",))
    more = AuditSettings(colluders=3, updates=1000)
    many = AuditSettings(colluders=3, updates=1_000_000)
    assert predicted_memory(GRAPH, law, few) < predicted_memory(GRAPH, law, more) < predicted_memory(GRAPH, law, many)
    assert 80e6 < predicted_memory(GRAPH, law, many) < 2e9


def test_an_audit_beyond_its_memory_is_refused_before_a_hop_is_walked() -> None:
    """One line with the need, the limit and what to do."""
    graph = random_regular(30, 3, seed=1)
    law = scheme_law("uniform-node", graph, DistanceSupport(2, 3))
    settings = AuditSettings(observers=("prior",), updates=10**12, memory_bytes=1 << 30)
    with pytest.raises(ResourceLimitError, match=r"may take 1\.0 GiB: ask for fewer --updates"):
        audit(graph, law, settings, names=("g", "l"))


@pytest.mark.parametrize("walk", ["non-backtracking", "least-recent"])
def test_walks_that_remember_are_cheaper(walk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By class or rehearsed, with the same run behind both; coalitions say that they rehearsed."""
    monkeypatch.setattr(_rehearsal, "_HOPS_ENOUGH", 20_000)
    graph = random_regular(60, 3, seed=1)
    law = scheme_law("uniform-node", graph, DistanceSupport(2, 4))
    asked: dict[str, Any] = {"updates": 20_000, "colluders": 6, "observers": ("prior", "last-hop", "first-sight")}
    cases: tuple[tuple[Any, str], ...] = (("simple", "by-class"), (walk, "by-class"), (walk, "rehearsed"))
    found = {
        (kind, posterior): audit(graph, law, AuditSettings(walk=kind, posterior=posterior, **asked), names=NAMES).result
        for kind, posterior in cases
    }
    hops = {key: result["hops_per_update"] for key, result in found.items()}
    assert hops[walk, "by-class"] == hops[walk, "rehearsed"] < 0.6 * hops["simple", "by-class"]
    kinds = {key: result["observers"]["first-sight"]["posterior"] for key, result in found.items()}
    assert kinds["simple", "by-class"] == "exact"
    assert kinds[walk, "by-class"] == kinds[walk, "rehearsed"] == "rehearsed: counted on walks of its own"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "exact": (
        {"walk": "least-recent", "observers": ("last-hop",)},
        "posterior = 'exact': must be by-class or rehearsed for the least-recent walk: it is no chain on the nodes",
    ),
    "estimated": (
        {"walk": "non-backtracking", "observers": ("last-hop",), "posterior": "estimated"},
        "posterior = 'estimated': must be exact or by-class or rehearsed for the non-backtracking walk",
    ),
    "window": (
        {"walk": "least-recent", "observers": ("window",), "posterior": "rehearsed"},
        "observers = 'window': must be left out: the notion is not for the least-recent walk",
    ),
    "round": (
        {"walk": "non-backtracking", "observers": ("round",), "posterior": "rehearsed"},
        "observers = 'round': must be left out: nodes of a non-backtracking walk remember nothing",
    ),
}


@pytest.mark.parametrize("refusing", [audit, predicted_memory], ids=["audit", "dry run"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_a_walk_cannot_have_is_refused_in_one_line(case: str, refusing: Any) -> None:
    """Before a hop is walked, by the dry run too."""
    settings, message = REFUSED[case]
    law = scheme_law("uniform-node", GRAPH, SUPPORT)
    with pytest.raises(InvalidParameterError) as refused:
        refusing(GRAPH, law, AuditSettings(**settings), **({"names": NAMES} if refusing is audit else {}))
    assert str(refused.value).startswith(message)
    assert len(str(refused.value).splitlines()) == 1


def test_all_is_what_suits_the_walk() -> None:
    """The eight of old for chains on the nodes; for walks that remember no window, but the worst cases."""
    assert all_observers("simple", "exact") == all_observers("metropolis", "estimated") == OBSERVERS
    onward, oldest = (set(all_observers(walk, "rehearsed")) for walk in ("non-backtracking", "least-recent"))
    assert onward == set(OBSERVERS) - {"window"} | {"path"}
    assert oldest == onward | {"round"}
    assert set(all_observers("least-recent", "by-class")) == oldest - {"repeated"}


def test_exact_predictions_come_with_exact_posteriors_only() -> None:
    """On arcs they are dear; asked for, they are right to a percent."""
    law = scheme_law("uniform-node", GRAPH, SUPPORT)
    asked: dict[str, Any] = {"walk": "non-backtracking", "observers": ("return-time",), "updates": 20_000}
    exact, by_class = (
        audit(GRAPH, law, AuditSettings(posterior=kind, **asked), names=NAMES).result for kind in ("exact", "by-class")
    )
    assert exact["hops_per_update"] == pytest.approx(exact["hops_per_update_predicted"], rel=0.02)
    assert by_class["hops_per_update_predicted"] is None
