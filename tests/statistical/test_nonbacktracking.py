"""Three roads to the non-backtracking walk: closed forms, the exact chain on arcs, and the simulated protocol."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from tests.helpers.graphs import bushy_tree

from veilwalk import chains, theory, walks
from veilwalk.chains import ArcChain, DeliveryLaw, WalkChain
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, law_by_distance
from veilwalk.graphs import Graph, distances, random_regular

PASS, FAIL = 1e-6, 1e-6
# Degree, nodes, sampled graphs.
SAMPLES = [(3, 100, 12), (3, 300, 6), (3, 1000, 2), (4, 100, 6), (4, 1000, 1), (8, 100, 4), (8, 1000, 1)]


def uniform_node_law(graph: Graph, support: DistanceSupport) -> DestinationLaw:
    """Uniform over the nodes of the support."""
    return law_by_distance(graph, support, np.ones(support.hi + 1))


@cache
def sampled(degree: int, n_nodes: int, n_graphs: int) -> list[tuple[ArcChain, IntArray]]:
    graphs = [random_regular(n_nodes, degree, seed=1 + k) for k in range(n_graphs)]
    return [(ArcChain(graph), distances(graph)) for graph in graphs]


def over_shells(parts: list[FloatArray], apart: list[IntArray]) -> tuple[FloatArray, FloatArray]:
    """Return the mean of each graph's table of pairs at each distance, from 1, and the share of nodes there."""
    where, values = np.concatenate([table.ravel() for table in apart]), np.concatenate([v.ravel() for v in parts])
    count = np.bincount(where)[1:]
    return np.bincount(where, weights=values)[1:] / count, count / count.sum()


@pytest.mark.parametrize(("degree", "n_nodes", "n_graphs"), SAMPLES)
def test_closed_means_keep_their_printed_error(degree: int, n_nodes: int, n_graphs: int) -> None:
    """1.5 hops up to the largest shell, 2 in shells of a tenth. Named mutants: no delay; the simple walk's form."""
    sample, model = sampled(degree, n_nodes, n_graphs), theory.WalkModel(n_nodes=n_nodes, degree=degree)
    means = [chains.arc_mean_hitting_times(chain, arrivals=chain.uniform_arrivals) for chain, _ in sample]
    exact, share = over_shells(means, [apart for _, apart in sample])
    ell = np.arange(1, len(exact) + 1)
    off = np.abs(exact - theory.nonbacktracking_mean_hitting_time(ell, model=model))
    near = ell <= int(share.argmax()) + 1
    assert off[near].max() < 1.5
    assert off[share >= 0.1].max() < 2
    assert exact[0] == pytest.approx(1 / degree + (1 - 1 / degree) * (n_nodes - 1), rel=1e-10)
    straight = theory.nonbacktracking_straight_probability(ell, model=model)
    assert np.abs(exact - (ell + (1 - straight) * n_nodes))[near].max() > 1.5
    assert np.abs(exact - theory.mean_hitting_time(ell, model=model))[near].max() > 0.1 * n_nodes


@pytest.mark.parametrize(("degree", "n_nodes", "n_graphs"), [(3, 100, 12), (3, 300, 2), (4, 300, 2), (8, 300, 1)])
def test_closed_laws_keep_their_printed_error(degree: int, n_nodes: int, n_graphs: int) -> None:
    """Hits within 2/N, returns within 1/N. Named mutants: no straight way; a geometric law that starts at once."""
    sample, model = sampled(degree, n_nodes, n_graphs), theory.WalkModel(n_nodes=n_nodes, degree=degree)
    apart = [table for _, table in sample]
    times = np.array([1, 2, 3, 5, 8, 20, n_nodes, 3 * n_nodes])
    off, mutant = [], []
    for time in times.tolist():
        hit = [chains.arc_window_masses(chain, 0, time, arrivals=chain.uniform_arrivals) for chain, _ in sample]
        exact, share = over_shells(hit, apart)
        ell = np.arange(1, int(share.argmax()) + 2)
        closed = theory.nonbacktracking_hitting_cdf(time, distance=ell, model=model)
        off.append(np.abs(exact[: len(ell)] - closed).max())
        mutant.append(np.abs(exact[: len(ell)] + np.expm1(-np.maximum(time - ell, 0) / n_nodes)).max())
    assert max(off) < 2 / n_nodes
    assert max(mutant) > 10 / n_nodes
    survival = np.mean([chains.arc_return_survival(chain, times).mean(axis=1) for chain, _ in sample], axis=0)
    closed = theory.nonbacktracking_return_survival(times, model=model)
    assert np.abs(survival - closed).max() < 1 / n_nodes
    assert np.abs(survival - np.exp(-times / n_nodes)).max() > 1.5 / n_nodes


def test_hops_per_update_are_those_of_the_simulated_protocol() -> None:
    """RRG(300, 3), support 2:6: within three standard errors and half the simple walk's; closed form within 1%."""
    graph, support = random_regular(300, 3, seed=1), DistanceSupport(2, 6)
    law = uniform_node_law(graph, support)
    exact = chains.arc_updates(ArcChain(graph), law.matrix.toarray()).mean_hops
    run = walks.run_protocol(graph, law.matrix, updates=300_000, seed=3, replicas=256, walk=Walk("non-backtracking"))
    lanes = np.bincount(run["replica"], weights=run["leg_hops"]) / np.bincount(run["replica"])
    error = lanes.std(ddof=1) / len(lanes) ** 0.5
    assert abs(lanes.mean() - exact) < 3 * error
    simple = law.mean_hops(chains.mean_hitting_times(WalkChain.simple(graph)))
    assert abs(lanes.mean() - simple) > 100 * error
    assert exact / simple < 0.53
    model, ell = theory.WalkModel(n_nodes=300, degree=3), support.distances
    shells = theory.gompertz_shell_sizes(ell, model=model)
    closed = shells @ theory.nonbacktracking_mean_hitting_time(ell, model=model) / shells.sum()
    assert closed == pytest.approx(exact, rel=0.01)


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
    exact = next(chains.iter_arc_deliveries(chain, law, horizon, [node]))
    counts = delivered(run, exact)
    assert counts.sum() > 50_000
    assert p_value(exact, counts) > PASS
    assert p_value(next(chains.iter_deliveries(WalkChain.simple(graph), law, horizon, [node])), counts) < FAIL
    assert p_value(without_last_hops(exact), counts) < FAIL


@pytest.mark.parametrize("name", GRAPHS)
def test_sources_are_reached_by_the_arcs_that_the_long_run_says(name: str) -> None:
    """(node, last hop) of updates, weighed by lanes; arcs evenly shared by each node are noticed."""
    graph = GRAPHS[name]()
    law, chain = uneven_law(graph), ArcChain(graph)
    got = chains.arc_updates(chain, law)
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
    got = chains.arc_updates(chain, law)
    shares = np.add.reduceat(got.sources, graph.indptr[:-1])
    laws = [
        chains.arc_hitting_pmf(chain, [0], horizon, arrivals=arrived)[:, :, 0]
        for arrived in (got.sources / shares[chain.heads], chain.uniform_arrivals)
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
