"""A toy walk, a toy law and a toy observer: each is one entry in one place, and then everything knows it.

What stands here for each is all that had to be written; nothing else in the house is touched.
"""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.audit import OBSERVERS, Knowledge, Observer, Posterior, audit
from veilwalk.chains import CHAINS, NodeChain
from veilwalk.core.arrays import IntArray
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import WALKS, Walk
from veilwalk.design import LAWS, LawKind, LawRequest, LawResult, Scheme, choose_scheme, design
from veilwalk.design._law import law_by_distance
from veilwalk.graphs import Graph, random_regular
from veilwalk.walks import TABLES

GRAPH = random_regular(30, 3, seed=1)
SUPPORT = DistanceSupport(2, 3)


def drowsy_moves(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Each node lists itself three times as often as its neighbours: three hops of four it stays."""
    width = 4 * 3
    rows = np.repeat(np.arange(graph.n_nodes, dtype=np.int32), width).reshape(-1, width)
    rows[:, :3] = graph.indices.reshape(-1, 3)
    return np.arange(graph.n_nodes + 1) * width, rows.reshape(-1)


def farthest(request: LawRequest) -> LawResult:
    """Only the farthest distance of the support."""
    weight = np.zeros(request.support.hi + 1)
    weight[-1] = 1.0
    return LawResult(law=law_by_distance(request.graph, request.support, weight))


class Gullible(Observer):
    """Who believes that whoever handed the message over made it."""

    name, sees = "gullible", "the neighbour it came from, and believes it"

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Name the neighbour."""
        weights = np.zeros((len(rows), knowledge.graph.n_nodes))
        weights[np.arange(len(rows)), knowledge.sightings.last_hop[rows]] = 1.0
        return Posterior(weights, "a belief")


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three entries for a walk that has a chain and a table of moves, one for a law, one for an observer."""
    monkeypatch.setitem(WALKS, "drowsy", "three hops of four it stays")
    monkeypatch.setitem(CHAINS, "drowsy", lambda graph: NodeChain.lazy(graph, 0.75))
    monkeypatch.setitem(TABLES, "drowsy", drowsy_moves)
    monkeypatch.setitem(LAWS, "farthest", LawKind("only the farthest", farthest))
    monkeypatch.setitem(OBSERVERS, "gullible", Gullible)


@pytest.mark.usefixtures("toys")
def test_a_toy_walk_is_priced_and_played_alike() -> None:
    """Its chain and its table of moves agree: four times the simple walk's hops. Twice as many are the mutant."""
    found = design(GRAPH, "uniform-node", support=SUPPORT, walk="drowsy")
    simple = design(GRAPH, "uniform-node", support=SUPPORT)
    assert found.price.kind == "exact"
    assert found.price.hops == pytest.approx(4 * simple.price.hops, rel=1e-9)
    played = audit(found.scheme, updates=40_000, observers=("prior", "last-hop"))
    low, high = played.hops_per_update.low, played.hops_per_update.high
    assert low < found.price.hops < high
    assert not low < 2 * simple.price.hops < high
    assert played["last-hop"].how == "exact"


@pytest.mark.usefixtures("toys")
def test_a_toy_law_is_designed_audited_and_refuses_what_it_does_not_take() -> None:
    """By its name, everywhere."""
    law = choose_scheme(GRAPH, "farthest", support=SUPPORT).law
    assert law.name == "farthest"
    found = design(GRAPH, "farthest", support=SUPPORT)
    assert abs(found.scheme.law.matrix - law.matrix).max() == 0
    assert found.certificates
    assert found.to_dict()["law"] == "farthest"


@pytest.mark.usefixtures("toys")
def test_a_toy_observer_is_scored_beside_the_others() -> None:
    """It is wrong whenever nobody at the support's distances is a neighbour: always; and it says how it knows."""
    scheme = Scheme(GRAPH, choose_scheme(GRAPH, "uniform-node", support=SUPPORT).law, Walk("simple"))
    found = audit(scheme, updates=4_000, observers=("prior", "gullible"))
    assert found["gullible"].hit_ratio == 0.0 < found["prior"].hit_ratio
    assert (found["gullible"].how, found["gullible"].node_entropy_nats) == ("a belief", 0.0)
    assert "gullible" in found.record().result["observers"]
    # By name in the order asked for; among all where it suits, and no plain walk suits it.
    assert list(audit(scheme, updates=500, observers="gullible,prior")) == ["gullible", "prior"]
    assert "gullible" in audit(scheme, updates=500)
    assert "gullible" not in audit(choose_scheme(GRAPH, "plain"), updates=500)
