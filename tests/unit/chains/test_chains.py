"""Known formulas, the tail, limits and errors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import networkx as nx
import numba
import numpy as np
import pytest
from tests.helpers.dense_walks import hitting_pmf, return_law

from veilwalk.chains import CHAINS, NodeChain
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError, NumericalError, ResourceLimitError
from veilwalk.graphs import Graph, barabasi_albert, complete, hypercube, random_regular, ring, torus


@pytest.fixture(scope="module")
def expander() -> NodeChain:
    return NodeChain.simple(random_regular(200, 4, seed=5))


def full_recursion(chain: NodeChain, horizon: int) -> tuple[FloatArray, FloatArray]:
    """Mass and moment up to ``horizon``, by the dense recursion."""
    matrix = chain.transition_matrix.toarray()
    law = np.eye(chain.n_nodes)
    mass, moment = law.copy(), np.zeros_like(law)
    for time in range(1, horizon + 1):
        law = matrix @ law
        np.fill_diagonal(law, 0.0)
        mass += law
        moment += time * law
    return mass, moment


def test_complete_graph_is_geometric() -> None:
    chain = NodeChain.simple(complete(12))
    means = chain.mean_hitting_times()
    np.testing.assert_allclose(means, 11.0 * (1 - np.eye(12)), rtol=1e-13)
    ((_, laws),) = chain.hitting_laws(400, [3])
    pmf = laws[:, :, 0]
    times = np.arange(1, 401)
    np.testing.assert_allclose(pmf[1:, 0], (1 / 11) * (10 / 11) ** (times - 1.0), rtol=1e-12)
    assert pmf[0, 3] == 1.0
    assert pmf[:, 3].sum() == 1.0


def test_ring_means_are_products_of_the_two_arcs() -> None:
    for n_nodes in (40, 41):
        offsets = np.subtract.outer(np.arange(n_nodes), np.arange(n_nodes)) % n_nodes
        means = NodeChain.simple(ring(n_nodes)).mean_hitting_times()
        np.testing.assert_allclose(means, offsets * (n_nodes - offsets), rtol=1e-11, atol=1e-12)


def test_path_means_are_squares() -> None:
    graph = Graph.from_edges(30, np.column_stack((np.arange(29), np.arange(1, 30))))
    means = NodeChain.simple(graph).mean_hitting_times()
    np.testing.assert_allclose(means[0], np.arange(30.0) ** 2, rtol=1e-11, atol=1e-12)


def test_large_ring_spectrum_falls_back_to_shift_and_invert() -> None:
    second, least = NodeChain.simple(ring(3001)).spectrum
    assert second == pytest.approx(math.cos(2 * math.pi / 3001), abs=1e-8)
    assert least == pytest.approx(-math.cos(math.pi / 3001), abs=1e-8)


@pytest.mark.parametrize("kind", ["simple", "lazy", "metropolis"])
def test_lanczos_encloses_the_spectrum(kind: str) -> None:
    chain = CHAINS[kind](barabasi_albert(400, 3, seed=4)).on_nodes
    assert chain is not None
    values = np.linalg.eigvalsh(chain.symmetric_matrix.toarray())
    second, least = chain.spectrum
    assert values[-2] <= second <= values[-2] + 1e-5
    assert values[0] - 1e-5 <= least <= values[0]


def test_commute_times_are_resistances(expander: NodeChain) -> None:
    graph = nx.from_scipy_sparse_array(expander.transition_matrix)
    nx.set_edge_attributes(graph, 1.0, "weight")
    resistance = nx.resistance_distance(graph)
    means = expander.mean_hitting_times()
    commute = means + means.T
    expected = [[graph.size() * 2 * resistance[i][j] for j in range(200)] for i in range(200)]
    np.testing.assert_allclose(commute, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("kind", ["simple", "lazy", "metropolis"])
@pytest.mark.parametrize(
    "graph", [random_regular(200, 4, seed=5), hypercube(7), barabasi_albert(150, 2, seed=3)], ids=repr
)
def test_tail_agrees_with_the_full_recursion(graph: Graph, kind: str) -> None:
    chain = CHAINS[kind](graph).on_nodes
    assert chain is not None
    horizon = 5 * graph.n_nodes
    mass, moment = full_recursion(chain, horizon)
    np.testing.assert_allclose(chain.truncated_means(horizon), moment / mass, rtol=1e-10)
    np.testing.assert_allclose(chain.window_masses(0, horizon), mass, rtol=1e-11)


def test_window_in_the_far_tail(expander: NodeChain) -> None:
    horizon = 3000
    ((_, law),) = expander.hitting_laws(horizon, [1, 8])
    masses = expander.window_masses(horizon - 5, horizon, [1, 8])
    np.testing.assert_allclose(masses, law[horizon - 5 :].sum(axis=0), rtol=1e-10)
    assert masses[0].min() > 1e-10


def test_parity_survives_the_tail() -> None:
    chain = NodeChain.simple(hypercube(5))
    odd, even = (chain.window_masses(time, time, [0])[:, 0] for time in (1001, 1002))
    parity = np.array([node.bit_count() % 2 for node in range(32)])
    assert not odd[parity == 0].any()
    assert not even[parity == 1].any()
    assert odd[1] > 0.0


@pytest.mark.parametrize("graph", [ring(24), torus(6, 6), ring(25)], ids=repr)
def test_poor_gap_still_reaches_the_mean(graph: Graph) -> None:
    chain = NodeChain.simple(graph)
    means = chain.mean_hitting_times()
    np.testing.assert_allclose(chain.truncated_means(10**9), means, rtol=1e-10)
    np.testing.assert_array_equal(chain.truncated_means(math.inf), means)


def test_impossible_is_infinite() -> None:
    chain = NodeChain.simple(ring(12))
    means = chain.truncated_means(2)
    assert means[0, 3] == math.inf
    assert means[0, 2] == 2.0
    assert not np.isnan(means).any()
    assert np.isfinite(chain.truncated_means(math.inf)).all()


def test_mean_return_time_is_one_over_the_stationary_law(expander: NodeChain) -> None:
    for chain in (expander, NodeChain.metropolis(barabasi_albert(30, 2, seed=1)), NodeChain.simple(torus(4, 6))):
        horizon = int(40 * chain.mean_hitting_times().max())
        survival = chain.return_survival(np.arange(horizon), [0, 5])
        np.testing.assert_allclose(survival.sum(axis=0), 1.0 / chain.stationary[[0, 5]], rtol=1e-11)


def test_return_survival_has_a_geometric_tail_at_any_time(expander: NodeChain) -> None:
    direct = 1.0 - return_law(expander.transition_matrix.toarray(), 7, 4000).sum()
    np.testing.assert_allclose(expander.return_survival([4000], [7]), direct, atol=1e-12)
    late = expander.return_survival([10**5, 10**5 + 2, 10**5 + 4], [7])[:, 0]
    assert late[1] / late[0] == pytest.approx(late[2] / late[1], rel=1e-12)
    assert 0.0 < late[0] < 1e-100


def test_laws_come_in_parts_that_cover_all_targets(expander: NodeChain) -> None:
    covered: list[int] = []
    for targets, pmf in expander.hitting_laws(80):
        for place in (0, len(targets) - 1):
            expected = hitting_pmf(expander, int(targets[place]), 80)
            np.testing.assert_allclose(pmf[:, :, place], expected, rtol=1e-12, atol=1e-300)
        covered += targets.tolist()
    assert covered == list(range(200))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = numba.get_num_threads()
    if before < 2:
        pytest.skip("one thread only")
    yield
    numba.set_num_threads(before)


def test_threads_change_nothing(expander: NodeChain, two_threads: None) -> None:
    found = []
    for n_threads in (1, 2):
        numba.set_num_threads(n_threads)
        found.append(
            (
                expander.mean_hitting_times(),
                expander.truncated_means(50),
                expander.truncated_means(1000),
                expander.window_masses(10, 2000),
                expander.return_survival([5, 5000]),
                np.concatenate([pmf.copy() for _, pmf in expander.hitting_laws(9)], axis=2),
            )
        )
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_chosen_targets_are_columns_of_all(expander: NodeChain) -> None:
    everything = expander.truncated_means(700)
    np.testing.assert_allclose(expander.truncated_means(700, [9, 3]), everything[:, [9, 3]], rtol=1e-12)
    means = expander.mean_hitting_times()
    np.testing.assert_allclose(expander.mean_hitting_times([9, 3]), means[:, [9, 3]], rtol=1e-12)


def test_memory_is_refused_with_the_bytes_needed(expander: NodeChain) -> None:
    with pytest.raises(ResourceLimitError, match=f"{200 * 200 * 8} bytes"):
        expander.mean_hitting_times(memory_bytes=1000)
    with pytest.raises(ResourceLimitError, match="bytes"):
        next(expander.hitting_laws(100, memory_bytes=1000))


def test_a_tail_that_never_settles_is_an_error(expander: NodeChain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilwalk.chains._node_chain._MIXED", 0.5)
    chain = NodeChain.simple(random_regular(200, 4, seed=5))
    with pytest.raises(NumericalError, match="not geometric"):
        chain.truncated_means(10**6)
    with pytest.raises(NumericalError, match="not geometric"):
        chain.return_survival([10**6])
    with pytest.raises(NumericalError, match="not geometric"):
        chain.window_masses(0, 10**6)
    # What lies within the steps already taken needs no tail.
    assert chain.window_masses(0, 60).max() == 1.0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda _: NodeChain.lazy(ring(5), 1.0), "stay = 1.0"),
        (lambda c: c.mean_hitting_times([]), "targets"),
        (lambda c: c.mean_hitting_times([0, 200]), "target = 200"),
        (lambda c: next(c.hitting_laws(5, [-1])), "target = -1"),
        (lambda c: next(c.hitting_laws(-5)), "horizon = -5"),
        (lambda c: c.truncated_means(math.nan), "kappa = nan"),
        (lambda c: c.return_survival([3, -1]), "times = "),
        (lambda c: c.window_masses(0.5, 3), "lo = "),
        (lambda c: c.window_masses(0, [1, 2, 3]), "hi = "),
    ],
)
def test_bad_questions_are_named(expander: NodeChain, ask: object, message: str) -> None:
    assert callable(ask)
    with pytest.raises(InvalidParameterError, match=message):
        ask(expander)


def test_a_chain_cannot_be_changed(expander: NodeChain) -> None:
    for array in (expander.probabilities, NodeChain.lazy(ring(5)).indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
