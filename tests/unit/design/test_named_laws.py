"""Laws by name: each is what it says, on its support."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import GraphError, InfeasibleDesignError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw, choose_scheme, design_regular
from veilwalk.graphs import Graph, complete, distances, random_regular

SUPPORT = DistanceSupport(2, 4)
GRAPH = random_regular(40, 3, seed=2)
LAWS = ("uniform-distance", "uniform-node", "paper", "paper-printed")


def by_distance(law: DestinationLaw, graph: Graph, node: int) -> list[float]:
    """P(distance) when ``node`` draws, summed over the row."""
    row, far = law.matrix.toarray()[node], distances(graph)[node]
    return [float(row[far == distance].sum()) for distance in SUPPORT.distances]


@pytest.mark.parametrize("name", LAWS)
def test_every_law_is_a_law_on_its_support(name: str) -> None:
    """Rows sum to one; exactly the nodes 2 to 4 hops away are drawn, evenly within a shell; the support is told."""
    law = choose_scheme(GRAPH, name, support=SUPPORT).law
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
    by_shell, by_one = (choose_scheme(GRAPH, name, support=SUPPORT).law for name in LAWS[:2])
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
    corrected, printed = (by_distance(choose_scheme(GRAPH, name, support=SUPPORT).law, GRAPH, 7) for name in LAWS[2:])
    assert corrected == pytest.approx(design_regular(model, formulas="corrected").distance_pmf.tolist(), abs=1e-12)
    assert printed == pytest.approx(design_regular(model, formulas="printed").distance_pmf.tolist(), abs=1e-12)
    assert not np.allclose(corrected, printed, atol=1e-3)


@pytest.mark.parametrize("name", ["paper", "paper-printed"])
def test_the_papers_laws_are_for_regular_graphs(name: str) -> None:
    """One line with the degrees found; the uniform laws take any graph."""
    star_and_ring = Graph.from_edges(7, [(i, (i + 1) % 6) for i in range(6)] + [(0, 6)])
    with pytest.raises(GraphError, match="from 1 to 3"):
        choose_scheme(star_and_ring, name, support=DistanceSupport(2, 3))
    assert choose_scheme(star_and_ring, "uniform-node", support=DistanceSupport(2, 3)).law.matrix.shape == (7, 7)


def test_laws_that_do_not_exist_are_refused() -> None:
    """An unknown name lists the known ones; a support that misses the graph names the node it leaves alone."""
    with pytest.raises(InvalidParameterError, match=r"^law = .*far:R.*optimal"):
        choose_scheme(GRAPH, "moon", support=SUPPORT)
    for name in ("uniform-node", "uniform-distance"):
        with pytest.raises(InfeasibleDesignError, match="support 2:3"):
            choose_scheme(complete(6), name, support=DistanceSupport(2, 3))
