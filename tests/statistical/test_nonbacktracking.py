"""The exact chain on arcs of the non-backtracking walk against the simulated protocol."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from tests.helpers.dense_walks import arc_hitting_law
from tests.helpers.graphs import bushy_tree

from veilwalk import walks
from veilwalk.chains import DeliveryLaw, NodeChain
from veilwalk.chains._arc_chain import ArcChain
from veilwalk.core.arrays import FloatArray
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw
from veilwalk.design._law import law_by_distance
from veilwalk.graphs import Graph, distances, random_regular

PASS, FAIL = 1e-6, 1e-6


def uniform_node_law(graph: Graph, support: DistanceSupport) -> DestinationLaw:
    """Uniform over the nodes of the support."""
    return law_by_distance(graph, support, np.ones(support.hi + 1))


def test_hops_per_update_are_those_of_the_simulated_protocol() -> None:
    """RRG(300, 3), support 2:6: within three standard errors, and half the simple walk's."""
    graph, support = random_regular(300, 3, seed=1), DistanceSupport(2, 6)
    law = uniform_node_law(graph, support)
    exact = ArcChain(graph).mean_hops(law.matrix)
    run = walks.run_protocol(graph, law.matrix, updates=300_000, seed=3, replicas=256, walk=Walk("non-backtracking"))
    lanes = np.bincount(run["replica"], weights=run["leg_hops"]) / np.bincount(run["replica"])
    error = lanes.std(ddof=1) / len(lanes) ** 0.5
    assert abs(lanes.mean() - exact) < 3 * error
    simple = law.mean_hops(NodeChain.simple(graph).mean_hitting_times())
    assert abs(lanes.mean() - simple) > 100 * error
    assert exact / simple < 0.53


GRAPHS = {"rrg-30-3": lambda: random_regular(30, 3, seed=1), "leafy": lambda: bushy_tree(24, 30)}


def uneven_law(graph: Graph) -> FloatArray:
    """An uneven law over nodes two or more hops away; node 0 is a favourite, for a sharp test."""
    far = distances(graph)
    law = np.where(far >= 2, np.random.default_rng(8).uniform(0.2, 1.0, far.shape) ** 2, 0.0)
    law[:, 0] *= 6.0
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def p_value(law: DeliveryLaw, counts: FloatArray) -> float:
    """Chi-square of (return time, last hop, source) counts, cells merged in order until each expects 10."""
    cells = np.concatenate((law.joint, law.beyond[np.newaxis])).ravel()
    seen = counts.ravel()
    if np.any(seen[cells <= 0] > 0):
        return 0.0
    expected = cells / cells.sum() * seen.sum()
    bins = np.floor(np.cumsum(expected) / 10.0).astype(np.int64)
    bins = np.minimum(bins, bins.max() - 1)
    wanted, found = np.bincount(bins, weights=expected), np.bincount(bins, weights=seen)
    return float(stats.chisquare(found[wanted > 0], wanted[wanted > 0]).pvalue)


def delivered(run: npt.NDArray[np.void], law: DeliveryLaw) -> FloatArray:
    """Count (return time, last hop, source) of the deliveries to the destination of ``law``."""
    mine = run[run["destination"] == law.destination]
    counts = np.zeros((len(law.joint) + 1, len(law.neighbours), len(law.sources)))
    time = np.minimum(mine["return_time"], len(law.joint))
    last = np.searchsorted(law.neighbours, mine["last_hop"])
    np.add.at(counts, (time, last, np.searchsorted(law.sources, mine["source"])), 1.0)
    return counts


def without_last_hops(law: DeliveryLaw) -> DeliveryLaw:
    """Named mutant: last hops shared evenly, as if they told nothing."""
    even = law.joint.mean(axis=1, keepdims=True) + np.zeros_like(law.joint)
    beyond = law.beyond.mean(axis=0, keepdims=True) + np.zeros_like(law.beyond)
    return DeliveryLaw(law.destination, law.neighbours, law.sources, even, beyond)


@pytest.mark.parametrize("name", GRAPHS)
def test_simulated_deliveries_have_the_exact_law(name: str) -> None:
    """Return time, last hop and source jointly; the simple walk's law, and even last hops, are noticed."""
    graph = GRAPHS[name]()
    law, chain, horizon, node = uneven_law(graph), ArcChain(graph), 120, 0
    run = walks.run_protocol(graph, law, updates=600_000, seed=12, replicas=256, walk=Walk("non-backtracking"))
    exact = next(chain.deliveries(law, horizon, [node]))
    counts = delivered(run, exact)
    assert counts.sum() > 50_000
    assert p_value(exact, counts) > PASS
    assert p_value(next(NodeChain.simple(graph).deliveries(law, horizon, [node])), counts) < FAIL
    assert p_value(without_last_hops(exact), counts) < FAIL


@pytest.mark.parametrize("name", GRAPHS)
def test_sources_are_reached_by_the_arcs_that_the_long_run_says(name: str) -> None:
    """(node, last hop) of updates, weighed by lanes; arcs evenly shared by each node are noticed."""
    graph = GRAPHS[name]()
    law, chain = uneven_law(graph), ArcChain(graph)
    got = chain.solve_updates(law)
    # Every twelfth update of a lane: neighbouring ones depend on each other.
    run = walks.run_protocol(graph, law, updates=1_200_000, seed=14, replicas=600, walk=Walk("non-backtracking"))[::12]
    place = {arc: k for k, arc in enumerate(zip(graph.indices.tolist(), chain.heads.tolist(), strict=True))}
    arcs = [place[arc] for arc in zip(run["last_hop"].tolist(), run["destination"].tolist(), strict=True)]
    counts = np.bincount(arcs, minlength=chain.n_arcs)
    even = np.add.reduceat(got.sources, graph.indptr[:-1])[chain.heads] / graph.degrees[chain.heads]
    # By some arcs no token ever comes with its ciphertext: from a leaf to its only neighbour, say.
    possible = got.sources > 1e-12
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], got.sources[possible] * counts.sum()).pvalue > PASS
    assert stats.chisquare(counts, even * counts.sum()).pvalue < FAIL


def test_legs_start_with_the_arc_by_which_the_source_was_reached() -> None:
    """Leg times of the pair that tells most; named mutant: a token that forgets its past where it is sealed."""
    graph = bushy_tree(24, 30)
    law, chain, horizon = uneven_law(graph), ArcChain(graph), 400
    got = chain.solve_updates(law)
    shares = np.add.reduceat(got.sources, graph.indptr[:-1])
    laws = [
        arc_hitting_law(graph, 0, horizon, arrived)
        for arrived in (got.sources / shares[chain.heads], 1 / graph.degrees[chain.heads])
    ]
    source = int(np.argmax(shares * law[:, 0] * ((laws[0] - laws[1]) ** 2).sum(axis=0)))
    run = walks.run_protocol(graph, law, updates=1_200_000, seed=15, replicas=256, walk=Walk("non-backtracking"))
    times = run["leg_hops"][(run["source"] == source) & (run["destination"] == 0)]
    counts = np.bincount(np.minimum(times, horizon + 1), minlength=horizon + 2).astype(np.float64)
    p_values = []
    for pmf in laws:
        whole = np.append(pmf[:, source], 1.0 - pmf[:, source].sum())[:, np.newaxis, np.newaxis]
        p_values.append(p_value(DeliveryLaw(0, np.arange(1), np.arange(1), whole[:-1], whole[-1]), counts))
    assert len(times) > 5_000
    assert p_values[0] > PASS
    assert p_values[1] < FAIL
