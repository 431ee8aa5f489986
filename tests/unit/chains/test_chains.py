"""Known formulas, the tail, limits and errors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import networkx as nx
import numba
import numpy as np
import pytest

from veilwalk import chains
from veilwalk.chains import WalkChain
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError, NumericalError, ResourceLimitError
from veilwalk.graphs import Graph, barabasi_albert, complete, hypercube, random_regular, ring, torus


@pytest.fixture(scope="module")
def expander() -> WalkChain:
    return WalkChain.simple(random_regular(200, 4, seed=5))


def full_recursion(chain: WalkChain, horizon: int) -> tuple[FloatArray, FloatArray]:
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
    chain = WalkChain.simple(complete(12))
    means = chains.mean_hitting_times(chain)
    np.testing.assert_allclose(means, 11.0 * (1 - np.eye(12)), rtol=1e-13)
    pmf = chains.hitting_pmf(chain, 3, 400)
    times = np.arange(1, 401)
    np.testing.assert_allclose(pmf[1:, 0], (1 / 11) * (10 / 11) ** (times - 1.0), rtol=1e-12)
    assert pmf[0, 3] == 1.0
    assert pmf[:, 3].sum() == 1.0


def test_ring_means_are_products_of_the_two_arcs() -> None:
    for n_nodes in (40, 41):
        offsets = np.subtract.outer(np.arange(n_nodes), np.arange(n_nodes)) % n_nodes
        means = chains.mean_hitting_times(WalkChain.simple(ring(n_nodes)))
        np.testing.assert_allclose(means, offsets * (n_nodes - offsets), rtol=1e-11, atol=1e-12)


def test_path_means_are_squares() -> None:
    graph = Graph.from_edges(30, np.column_stack((np.arange(29), np.arange(1, 30))))
    means = chains.mean_hitting_times(WalkChain.simple(graph))
    np.testing.assert_allclose(means[0], np.arange(30.0) ** 2, rtol=1e-11, atol=1e-12)


def test_large_ring_spectrum_falls_back_to_shift_and_invert() -> None:
    second, least = WalkChain.simple(ring(3001)).spectrum
    assert second == pytest.approx(math.cos(2 * math.pi / 3001), abs=1e-8)
    assert least == pytest.approx(-math.cos(math.pi / 3001), abs=1e-8)


@pytest.mark.parametrize("kind", ["simple", "lazy", "metropolis"])
def test_lanczos_encloses_the_spectrum(kind: str) -> None:
    chain = WalkChain.of(barabasi_albert(400, 3, seed=4), kind)
    values = np.linalg.eigvalsh(chain.symmetric_matrix.toarray())
    second, least = chain.spectrum
    assert values[-2] <= second <= values[-2] + 1e-5
    assert values[0] - 1e-5 <= least <= values[0]


def test_commute_times_are_resistances(expander: WalkChain) -> None:
    graph = nx.from_scipy_sparse_array(expander.transition_matrix)
    nx.set_edge_attributes(graph, 1.0, "weight")
    resistance = nx.resistance_distance(graph)
    means = chains.mean_hitting_times(expander)
    commute = means + means.T
    expected = [[graph.size() * 2 * resistance[i][j] for j in range(200)] for i in range(200)]
    np.testing.assert_allclose(commute, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("kind", ["simple", "lazy", "metropolis"])
@pytest.mark.parametrize(
    "graph", [random_regular(200, 4, seed=5), hypercube(7), barabasi_albert(150, 2, seed=3)], ids=repr
)
def test_tail_agrees_with_the_full_recursion(graph: Graph, kind: str) -> None:
    chain = WalkChain.of(graph, kind)
    horizon = 5 * graph.n_nodes
    mass, moment = full_recursion(chain, horizon)
    np.testing.assert_allclose(chains.truncated_means(chain, horizon), moment / mass, rtol=1e-10)
    np.testing.assert_allclose(chains.hitting_cdf(chain, horizon), mass, rtol=1e-11)


def test_window_in_the_far_tail(expander: WalkChain) -> None:
    horizon = 3000
    law = chains.hitting_pmf(expander, [1, 8], horizon)
    masses = chains.window_masses(expander, horizon - 5, horizon, [1, 8])
    np.testing.assert_allclose(masses, law[horizon - 5 :].sum(axis=0), rtol=1e-10)
    assert masses[0].min() > 1e-10


def test_parity_survives_the_tail() -> None:
    chain = WalkChain.simple(hypercube(5))
    odd, even = (chains.window_masses(chain, time, time, [0])[:, 0] for time in (1001, 1002))
    parity = np.array([node.bit_count() % 2 for node in range(32)])
    assert not odd[parity == 0].any()
    assert not even[parity == 1].any()
    assert odd[1] > 0.0


@pytest.mark.parametrize("graph", [ring(24), torus(6, 6), ring(25)], ids=repr)
def test_poor_gap_still_reaches_the_mean(graph: Graph) -> None:
    chain = WalkChain.simple(graph)
    means = chains.mean_hitting_times(chain)
    np.testing.assert_allclose(chains.truncated_means(chain, 10**9), means, rtol=1e-10)
    np.testing.assert_array_equal(chains.truncated_means(chain, math.inf), means)


def test_impossible_is_infinite() -> None:
    means = chains.truncated_means(WalkChain.simple(ring(12)), [2, math.inf])
    assert means[0, 0, 3] == math.inf
    assert means[0, 0, 2] == 2.0
    assert not np.isnan(means).any()
    assert np.isfinite(means[1]).all()


def test_mean_return_time_is_one_over_the_stationary_law(expander: WalkChain) -> None:
    for chain in (expander, WalkChain.metropolis(barabasi_albert(30, 2, seed=1)), WalkChain.simple(torus(4, 6))):
        horizon = int(40 * chains.mean_hitting_times(chain).max())
        survival = chains.return_survival(chain, np.arange(horizon), [0, 5])
        np.testing.assert_allclose(survival.sum(axis=0), 1.0 / chain.stationary[[0, 5]], rtol=1e-11)


def test_return_survival_has_a_geometric_tail_at_any_time(expander: WalkChain) -> None:
    direct = 1.0 - chains.return_pmf(expander, 4000, [7]).sum(axis=0)
    np.testing.assert_allclose(chains.return_survival(expander, 4000, [7]), direct, atol=1e-12)
    late = chains.return_survival(expander, [10**5, 10**5 + 2, 10**5 + 4], [7])[:, 0]
    assert late[1] / late[0] == pytest.approx(late[2] / late[1], rel=1e-12)
    assert 0.0 < late[0] < 1e-100


def test_expectations_and_parts_agree_with_the_law(expander: WalkChain) -> None:
    values = np.stack([np.ones(81), np.arange(81.0) ** 2])
    law = chains.hitting_pmf(expander, np.arange(200), 80)
    expected = np.tensordot(values, law, axes=1)
    np.testing.assert_allclose(chains.hitting_expectations(expander, values), expected, rtol=1e-12)
    seen = 0
    for targets, pmf in chains.iter_hitting_pmf(expander, 80, block=24):
        np.testing.assert_array_equal(pmf, law[:, :, targets])
        seen += len(targets)
    assert seen == 200


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = numba.get_num_threads()
    if before < 2:
        pytest.skip("one thread only")
    yield
    numba.set_num_threads(before)


def test_threads_change_nothing(expander: WalkChain, two_threads: None) -> None:
    found = []
    for n_threads in (1, 2):
        numba.set_num_threads(n_threads)
        found.append(
            (
                chains.mean_hitting_times(expander),
                chains.truncated_means(expander, [50, 1000]),
                chains.window_masses(expander, 10, 2000),
                chains.return_survival(expander, [5, 5000]),
                np.concatenate([pmf.copy() for _, pmf in chains.iter_hitting_pmf(expander, 9)], axis=2),
            )
        )
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


def test_chosen_targets_are_columns_of_all(expander: WalkChain) -> None:
    everything = chains.truncated_means(expander, 700)
    np.testing.assert_allclose(chains.truncated_means(expander, 700, [9, 3]), everything[:, [9, 3]], rtol=1e-12)
    means = chains.mean_hitting_times(expander)
    np.testing.assert_allclose(chains.mean_hitting_times(expander, [9, 3]), means[:, [9, 3]], rtol=1e-12)


def test_memory_is_refused_with_the_bytes_needed(expander: WalkChain) -> None:
    with pytest.raises(ResourceLimitError, match=f"{200 * 200 * 8} bytes"):
        chains.mean_hitting_times(expander, memory_bytes=1000)
    with pytest.raises(ResourceLimitError, match=f"{101 * 200 * 8} bytes"):
        chains.hitting_pmf(expander, 0, 100, memory_bytes=1000)
    with pytest.raises(ResourceLimitError, match="bytes"):
        next(chains.iter_hitting_pmf(expander, 100, memory_bytes=1000))


def test_a_tail_that_never_settles_is_an_error(expander: WalkChain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilwalk.chains._evolution._MIXED", 0.5)
    chain = WalkChain.simple(random_regular(200, 4, seed=5))
    for ask in (chains.truncated_means, chains.return_survival):
        with pytest.raises(NumericalError, match="not geometric"):
            ask(chain, 10**6)
    with pytest.raises(NumericalError, match="not geometric"):
        chains.window_masses(chain, 0, 10**6)
    # What lies within the steps already taken needs no tail.
    assert chains.hitting_cdf(chain, 60).max() == 1.0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda _: WalkChain.of(ring(5), "drunk"), "walk kind = 'drunk'.*lazy, metropolis, simple"),
        (lambda _: WalkChain.lazy(ring(5), 1.0), "stay = 1.0"),
        (lambda c: chains.mean_hitting_times(c, []), "targets"),
        (lambda c: chains.mean_hitting_times(c, [0, 200]), "target = 200"),
        (lambda c: chains.hitting_pmf(c, -1, 5), "target = -1"),
        (lambda c: chains.hitting_pmf(c, 0, -5), "horizon = -5"),
        (lambda c: chains.truncated_means(c, math.nan), "times = nan"),
        (lambda c: chains.return_survival(c, [3, -1]), "times = "),
        (lambda c: chains.window_masses(c, 0.5, 3), "lo = "),
        (lambda c: chains.window_masses(c, 0, [1, 2, 3]), "hi = "),
        (lambda c: chains.hitting_expectations(c, np.ones(3)), "values = "),
    ],
)
def test_bad_questions_are_named(expander: WalkChain, ask: object, message: str) -> None:
    assert callable(ask)
    with pytest.raises(InvalidParameterError, match=message):
        ask(expander)


def test_a_chain_cannot_be_changed(expander: WalkChain) -> None:
    for array in (expander.probabilities, WalkChain.lazy(ring(5)).indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
