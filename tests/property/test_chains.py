"""Identities that hold on every connected graph."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.dense_walks import hitting_pmf, return_law

from veilwalk.chains import CHAINS, NodeChain
from veilwalk.graphs import Graph


@st.composite
def walks(draw: st.DrawFn) -> NodeChain:
    """A walk on a random tree with random edges added."""
    n_nodes = draw(st.integers(2, 14))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, n_nodes)}
    pairs = st.tuples(st.integers(0, n_nodes - 1), st.integers(0, n_nodes - 1))
    edges |= {(min(pair), max(pair)) for pair in draw(st.lists(pairs, max_size=30)) if pair[0] != pair[1]}
    graph = Graph.from_edges(n_nodes, np.array(sorted(edges)))
    chain = CHAINS[draw(st.sampled_from(["simple", "lazy", "metropolis"]))](graph).on_nodes
    assert chain is not None
    return chain


@given(walks())
@settings(max_examples=60)
def test_laws_are_laws(chain: NodeChain) -> None:
    ((_, pmf),) = chain.hitting_laws(60)
    assert pmf.min() >= 0.0
    assert pmf.sum(axis=0).max() <= 1.0 + 1e-13
    np.testing.assert_allclose(chain.window_masses(0, 60), pmf.sum(axis=0), atol=1e-12)


@given(walks())
@settings(max_examples=60)
def test_the_mean_is_that_of_the_law(chain: NodeChain) -> None:
    means = chain.mean_hitting_times()
    horizon = int(40 * means.max())
    pmf = hitting_pmf(chain, 0, horizon)
    np.testing.assert_allclose(np.arange(horizon + 1) @ pmf, means[:, 0], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(chain.truncated_means(10**12), means, rtol=1e-10, atol=1e-14)


@given(walks())
@settings(max_examples=60)
def test_mean_hitting_identities(chain: NodeChain) -> None:
    means = chain.mean_hitting_times()
    kemeny = means @ chain.stationary
    np.testing.assert_allclose(kemeny, kemeny[0], rtol=1e-11)
    after_a_step = 1.0 + chain.transition_matrix @ means
    np.testing.assert_allclose(after_a_step.diagonal(), 1.0 / chain.stationary, rtol=1e-10)
    off = ~np.eye(chain.n_nodes, dtype=bool)
    np.testing.assert_allclose(after_a_step[off], means[off], rtol=1e-11)


@given(walks(), st.integers(0, 200), st.integers(0, 200), st.integers(1, 10**6))
@settings(max_examples=60)
def test_windows_add_up(chain: NodeChain, first: int, width: int, later: int) -> None:
    middle = first + width
    whole = chain.window_masses(first, middle + later)
    parts = chain.window_masses(first, middle) + chain.window_masses(middle + 1, middle + later)
    np.testing.assert_allclose(whole, parts, rtol=1e-9, atol=1e-14)
    total = chain.window_masses(0, middle)
    ((_, pmf),) = chain.hitting_laws(middle)
    np.testing.assert_allclose(total, pmf.sum(axis=0), rtol=1e-10)


@given(walks(), st.integers(0, 10**5))
@settings(max_examples=60)
def test_detailed_balance_of_returns(chain: NodeChain, time: int) -> None:
    survival = chain.return_survival([50, time])
    matrix = chain.transition_matrix.toarray()
    returned = np.array([return_law(matrix, node, 50).sum() for node in range(chain.n_nodes)])
    np.testing.assert_allclose(returned + survival[0], 1.0, rtol=1e-12)
    assert np.all((survival >= 0.0) & (survival <= 1.0 + 1e-12))
    # A return after t + 1 is a first step and then a hitting time after t.
    step = chain.transition_matrix @ (1.0 - chain.window_masses(0, time))
    np.testing.assert_allclose(chain.return_survival([time + 1])[0], step.diagonal(), atol=1e-10)
