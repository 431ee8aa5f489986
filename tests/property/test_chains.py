"""Identities that hold on every connected graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from veilwalk import chains
from veilwalk.chains import WalkChain
from veilwalk.graphs import Graph


@st.composite
def walks(draw: st.DrawFn) -> WalkChain:
    """A walk on a random tree with random edges added."""
    n_nodes = draw(st.integers(2, 14))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, n_nodes)}
    pairs = st.tuples(st.integers(0, n_nodes - 1), st.integers(0, n_nodes - 1))
    edges |= {(min(pair), max(pair)) for pair in draw(st.lists(pairs, max_size=30)) if pair[0] != pair[1]}
    graph = Graph.from_edges(n_nodes, np.array(sorted(edges)))
    return WalkChain.of(graph, draw(st.sampled_from(["simple", "lazy", "metropolis"])))


@given(walks())
@settings(max_examples=60)
def test_laws_are_laws(chain: WalkChain) -> None:
    everyone = list(range(chain.n_nodes))
    pmf = chains.hitting_pmf(chain, everyone, 60)
    survival = chains.hitting_survival(chain, everyone, 60)
    assert pmf.min() >= 0.0
    assert np.all(np.diff(survival, axis=0) <= 1e-15)
    np.testing.assert_allclose(np.cumsum(pmf, axis=0) + survival, 1.0, rtol=1e-13)
    np.testing.assert_allclose(chains.hitting_cdf(chain, 60), 1.0 - survival[60], atol=1e-12)


@given(walks())
@settings(max_examples=60)
def test_mean_is_the_sum_of_survival(chain: WalkChain) -> None:
    means = chains.mean_hitting_times(chain)
    horizon = int(40 * means.max())
    survival = chains.hitting_survival(chain, 0, horizon)
    np.testing.assert_allclose(survival.sum(axis=0), means[:, 0], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(chains.truncated_means(chain, 10**12), means, rtol=1e-10, atol=1e-14)


@given(walks())
@settings(max_examples=60)
def test_mean_hitting_identities(chain: WalkChain) -> None:
    means = chains.mean_hitting_times(chain)
    kemeny = means @ chain.stationary
    np.testing.assert_allclose(kemeny, kemeny[0], rtol=1e-11)
    after_a_step = 1.0 + chain.transition_matrix @ means
    np.testing.assert_allclose(after_a_step.diagonal(), 1.0 / chain.stationary, rtol=1e-10)
    off = ~np.eye(chain.n_nodes, dtype=bool)
    np.testing.assert_allclose(after_a_step[off], means[off], rtol=1e-11)


@given(walks(), st.integers(0, 200), st.integers(0, 200), st.integers(1, 10**6))
@settings(max_examples=60)
def test_windows_add_up(chain: WalkChain, first: int, width: int, later: int) -> None:
    middle = first + width
    whole = chains.window_masses(chain, first, middle + later)
    parts = chains.window_masses(chain, first, middle) + chains.window_masses(chain, middle + 1, middle + later)
    np.testing.assert_allclose(whole, parts, rtol=1e-9, atol=1e-14)
    total = chains.window_masses(chain, 0, middle)
    np.testing.assert_allclose(total, chains.hitting_cdf(chain, middle), rtol=1e-10)


@given(walks(), st.integers(0, 10**5))
@settings(max_examples=60)
def test_detailed_balance_of_returns(chain: WalkChain, time: int) -> None:
    pmf = chains.return_pmf(chain, 50)
    survival = chains.return_survival(chain, [50, time])
    np.testing.assert_allclose(pmf.sum(axis=0) + survival[0], 1.0, rtol=1e-12)
    assert np.all((survival >= 0.0) & (survival <= 1.0 + 1e-12))
    # A return after t + 1 is a first step and then a hitting time after t.
    step = chain.transition_matrix @ (1.0 - chains.hitting_cdf(chain, time))
    np.testing.assert_allclose(chains.return_survival(chain, time + 1), step.diagonal(), atol=1e-10)
