"""Sealed for several, by three roads that share no code, and by a small simulation of its own."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from veilwalk import chains, walks
from veilwalk.chains._openings import MeanOpenings
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, distances, random_regular
from veilwalk.walks._protocol import Updates

KINDS = ["simple", "non-backtracking"]
NODES, DEGREE, RECIPIENTS, FAR = 100, 3, 8, 3


@cache
def network() -> Graph:
    return random_regular(NODES, DEGREE, seed=23)


def far_law() -> sparse.csr_array:
    """Everybody at distance FAR or more alike."""
    far = distances(network()) >= FAR
    return sparse.csr_array(far / far.sum(axis=1, keepdims=True))


@cache
def chained(kind: str) -> MeanOpenings:
    return chains.chain_of(network(), Walk(kind)).mean_openings(far_law(), RECIPIENTS, n_sets=24, seed=1)


@cache
def played(kind: str) -> Updates:
    law = walks.ExcludedRows.nearer_than(network(), FAR)
    return walks.run_protocol(network(), law, updates=64_000, seed=5, walk=Walk(kind), recipients=RECIPIENTS)


def spread(hops: FloatArray) -> tuple[float, float]:
    """The mean over lanes and the half-width of its 95% interval."""
    return float(hops.mean()), float(1.96 * hops.std(ddof=1) / np.sqrt(len(hops)))


def agree(mean: float, half: float, exact: MeanOpenings) -> bool:
    """Whether two estimates are within 1.5 joint intervals of 95%: three standard errors."""
    return abs(mean - exact.mean_hops) < 1.5 * float(np.hypot(half, exact.mean_hops_error))


def simulated(kind: str, *, lanes: int, hops: int, redraw: bool) -> tuple[float, float]:
    """Hops an update, many tokens abreast; a mutant draws the set anew at every hop."""
    rng = np.random.default_rng(11)
    graph, far = network(), distances(network()) >= FAR
    near = graph.indices.reshape(NODES, DEGREE)

    def drawn(sources: IntArray) -> npt.NDArray[np.bool_]:
        keys = np.where(far[sources], rng.random((len(sources), NODES)), 2.0)
        order = np.argpartition(keys, RECIPIENTS, axis=1)
        chosen = np.zeros((len(sources), NODES), dtype=bool)
        np.put_along_axis(chosen, order[:, :RECIPIENTS], values=True, axis=1)
        return chosen

    here: IntArray = rng.integers(0, NODES, lanes)
    came = near[here, rng.integers(0, DEGREE, lanes)]
    source, sealed, every = here.copy(), drawn(here), np.arange(lanes)
    opened, warm = np.zeros(lanes), hops // 5
    for hop in range(hops + warm):
        way = near[here, rng.integers(0, DEGREE, lanes)]
        while kind == "non-backtracking" and np.any(way == came):
            back = way == came
            way[back] = near[here[back], rng.integers(0, DEGREE, int(back.sum()))]
        came, here = here, way
        if redraw:
            sealed = drawn(source)
        at = sealed[every, here]
        opened += at * (hop >= warm)
        source = np.where(at, here, source)
        if at.any():
            sealed[at] = drawn(here[at])
    mean, half = spread(opened / hops)
    return 1 / mean, half / mean**2


@pytest.mark.parametrize("kind", KINDS)
def test_three_roads_give_one_price(kind: str) -> None:
    """Chains, the protocol, the set summed out, and a simulation, within their intervals."""
    exact = chained(kind)
    lanes = played(kind)["leg_hops"].reshape(64, -1).mean(axis=1)
    summed = walks.estimate_openings(
        network(),
        walks.ExcludedRows.nearer_than(network(), FAR),
        RECIPIENTS,
        walk=Walk(kind),
        legs=20_000,
        seed=3,
        joint=False,
    )
    assert agree(*spread(lanes), exact)
    assert agree(summed.hops, summed.hops_interval[1] - summed.hops, exact)
    assert agree(*simulated(kind, lanes=2000, hops=300, redraw=False), exact)


@pytest.mark.parametrize("kind", KINDS)
def test_a_set_drawn_anew_at_every_hop_is_rejected(kind: str) -> None:
    """The mutant forgets whom the walk has met already; by the rule that accepts the others."""
    lanes = 1000 if kind == "simple" else 4000
    assert not agree(*simulated(kind, lanes=lanes, hops=240, redraw=True), chained(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_chains_and_protocol_agree_who_opens(kind: str) -> None:
    """By distance, and how often each node does; the drawn sets of the chains leave some spread."""
    exact, updates, hops = chained(kind), played(kind), distances(network())
    at = np.bincount(hops[updates["source"], updates["destination"]], minlength=12)[:12] / len(updates)
    shares = exact.joint.sum(axis=0)
    chain_at = np.bincount(hops.ravel(), (shares[:, np.newaxis] * exact.by_node).ravel(), minlength=12)[:12]
    assert np.abs(chain_at - at).sum() / 2 < 0.01
    opened = np.bincount(updates["destination"], minlength=NODES) / len(updates)
    assert np.abs(opened - shares).sum() / 2 < 0.04


def test_weighted_rows_are_drawn_one_after_the_other() -> None:
    """A law that is not even: chains over drawn sets and the protocol agree; the even law is told apart."""
    law = far_law()
    rng = np.random.default_rng(2)
    weights = law.multiply(1 + 9 * (rng.random(NODES) < 0.3)[np.newaxis, :]).tocsr()
    weighted = sparse.csr_array(weights / weights.sum(axis=1)[:, np.newaxis])
    chain = chains.chain_of(network(), Walk("non-backtracking"))
    exact = chain.mean_openings(weighted, RECIPIENTS, n_sets=24, seed=1)
    updates = walks.run_protocol(
        network(), weighted, updates=64_000, seed=5, walk=Walk("non-backtracking"), recipients=RECIPIENTS
    )
    assert agree(*spread(updates["leg_hops"].reshape(64, -1).mean(axis=1)), exact)
    opened = np.bincount(updates["destination"], minlength=NODES) / len(updates)
    assert np.abs(opened - exact.joint.sum(axis=0)).sum() / 2 < 0.06
    even = chained("non-backtracking")
    assert np.abs(opened - even.joint.sum(axis=0)).sum() / 2 > 0.3
