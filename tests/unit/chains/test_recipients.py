"""Sealed for several: exact laws against rational arithmetic and enumeration written here."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import sparse

from veilwalk import chains
from veilwalk.chains._openings import SetPotentials
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, distances, hypercube, random_regular, ring

CUBE = [(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit]
# A hub, a leaf and cycles of several lengths.
KITE = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 2), (5, 6)]
GRAPHS = {"cube": (8, CUBE), "kite": (7, KITE)}
WALKS = ["simple", "non-backtracking"]
# Where it came from and where it is; the beginning has no past.
Place = tuple[int, int]


def graph(name: str) -> Graph:
    size, edges = GRAPHS[name]
    return Graph.from_edges(size, np.array(edges))


def neighbours(name: str) -> dict[int, list[int]]:
    """Adjacency lists, from the edges alone."""
    found: dict[int, list[int]] = defaultdict(list)
    for a, b in GRAPHS[name][1]:
        found[a].append(b)
        found[b].append(a)
    return found


def moves(near: dict[int, list[int]], place: Place, walk: str) -> dict[Place, Fraction]:
    """Where the token goes next: anywhere, or anywhere but back; without a past, and from a leaf, anywhere."""
    came, here = place
    ways = near[here]
    if walk == "non-backtracking" and came >= 0 and len(ways) > 1:
        ways = [way for way in ways if way != came]
    return {(here, way): Fraction(1, len(ways)) for way in ways}


def opened(name: str, walk: str, begin: Place, chosen: set[int], horizon: int) -> list[dict[Place, Fraction]]:
    """P(opened at hop t by a node that was entered from another), by following every path."""
    near, token, law = neighbours(name), {begin: Fraction(1)}, []
    for _ in range(horizon):
        after: dict[Place, Fraction] = defaultdict(Fraction)
        for place, weight in token.items():
            for to, chance in moves(near, place, walk).items():
                after[to] += weight * chance
        law.append({place: weight for place, weight in after.items() if place[1] in chosen})
        token = {place: weight for place, weight in after.items() if place[1] not in chosen}
    return law


def survival_with_sets_summed_out(
    name: str, walk: str, source: int, *, far: int, k: int, horizon: int
) -> list[Fraction]:
    """E[s(R_t)], over places and visited sets: no set of recipients is ever drawn."""
    near = neighbours(name)
    hops, queue = {source: 0}, [source]
    for here in queue:
        for way in near[here]:
            if way not in hops:
                hops[way] = hops[here] + 1
                queue.append(way)
    eligible = frozenset(node for node, hop in hops.items() if hop >= far)
    size, token, law = len(eligible), {((-1, source), frozenset[int]()): Fraction(1)}, []
    for _ in range(horizon):
        after: dict[tuple[Place, frozenset[int]], Fraction] = defaultdict(Fraction)
        for (place, met), weight in token.items():
            for to, chance in moves(near, place, walk).items():
                after[to, met | ({to[1]} & eligible)] += weight * chance
        token = after
        kept = (w * Fraction(comb(size - len(met), k), comb(size, k)) for (_, met), w in token.items())
        law.append(sum(kept, Fraction(0)))
    return law


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_given_set_opens_as_counted_path_by_path(name: str, walk: str) -> None:
    """Joint law of hop, last hop and opener, by fractions; the whole law and the mean are its sums."""
    chain = chains.chain_of(graph(name), Walk(walk))
    for source, chosen in [(0, [3, 5, 6]), (1, [4, 6]), (2, [0, 4, 5, 6])]:
        got = chain.opening_law(source, chosen, 2000)
        want = opened(name, walk, (-1, source), set(chosen), 12)
        for hop, ways in enumerate(want, start=1):
            expected = [float(ways.get((int(a), int(b)), 0)) for a, b in zip(got.came_from, got.opener, strict=True)]
            np.testing.assert_allclose(got.pmf[hop], expected, atol=1e-15)
            assert sum(ways.values()) == pytest.approx(got.pmf[hop].sum(), abs=1e-14)
        np.testing.assert_allclose(got.pmf.sum(axis=0), got.chances, atol=1e-13)
        assert np.arange(2001) @ got.pmf.sum(axis=1) == pytest.approx(got.mean_hops, rel=1e-12)
        assert got.by_recipient.sum() == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_all_sets_together_thin_the_range_of_the_walk(name: str, walk: str) -> None:
    """The mean over every set of K equals E[C(E - R_t, K)] / C(E, K) over visited sets."""
    chain, hops, far = chains.chain_of(graph(name), Walk(walk)), distances(graph(name)), 2
    for source in (0, 2):
        eligible = np.flatnonzero(hops[source] >= far)
        for k in range(1, len(eligible) + 1):
            laws = [chain.opening_law(source, s, 9).pmf.sum(axis=1) for s in combinations(eligible.tolist(), k)]
            survival = 1 - np.mean(laws, axis=0).cumsum()
            want = survival_with_sets_summed_out(name, walk, source, far=far, k=k, horizon=9)
            np.testing.assert_allclose(survival[1:], [float(share) for share in want], atol=1e-14)


@pytest.mark.parametrize("walk", ["simple", "lazy", "metropolis", "non-backtracking"])
def test_one_recipient_is_a_destination(walk: str) -> None:
    """Hitting times and their laws are those that the chain had before."""
    network = graph("kite")
    chain = chains.chain_of(network, Walk(walk))
    means = chain.mean_hitting_times()
    laws = {int(j): pmf[:, :, k] for js, pmf in chain.hitting_laws(30) for k, j in enumerate(js)}
    for source, target in [(0, 6), (3, 1), (5, 4), (6, 2)]:
        got = chain.opening_law(source, [target], 30)
        assert got.mean_hops == pytest.approx(means[source, target], rel=1e-12)
        np.testing.assert_allclose(got.pmf.sum(axis=1), laws[target][:31, source], atol=1e-14)
        assert got.by_recipient == pytest.approx(1)


@pytest.mark.parametrize("walk", WALKS)
def test_sealed_for_everybody_far_it_is_opened_where_the_walk_leaves_the_ball(walk: str) -> None:
    """No set is left to chance: no error, and the law of every source is its exit law, by fractions."""
    network = hypercube(3)
    far = distances(network) >= 2
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    chain = chains.chain_of(network, Walk(walk))
    got = chain.mean_openings(law, 4, n_sets=2, seed=0)
    exits: dict[int, Fraction] = defaultdict(Fraction)
    mean = Fraction(0)
    for hop, ways in enumerate(opened("cube", walk, (-1, 0), set(np.flatnonzero(far[0]).tolist()), 80), start=1):
        for (_, opener), chance in ways.items():
            exits[opener] += chance
            mean += hop * chance
    np.testing.assert_allclose(got.by_node[0], [float(exits[node]) for node in range(8)], atol=1e-12)
    assert got.mean_hops == pytest.approx(float(mean), rel=1e-12)
    assert max(got.mean_hops_error, got.predecessor_error) < 1e-12
    assert got.predecessor_guess == pytest.approx(float(max(exits.values())), rel=1e-12)
    # Sent to node 1 first: by the symmetry of the cube, any of the first hops will do.
    after: dict[int, Fraction] = defaultdict(Fraction)
    for ways in opened("cube", walk, (0, 1), set(np.flatnonzero(far[0]).tolist()), 80):
        for (_, opener), chance in ways.items():
            after[opener] += chance
    assert got.sender_guess == pytest.approx(float(max(after.values())), rel=1e-12)
    assert got.sender_guess > got.predecessor_guess


@pytest.mark.parametrize("walk", WALKS)
def test_the_mean_over_sets_covers_the_mean_over_all_sets(walk: str) -> None:
    """Every set of 2 of the kite, enumerated, with the arcs by which sources are come to; and of one, mean_hops."""
    network = graph("kite")
    far = distances(network) >= 2
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    chain = chains.chain_of(network, Walk(walk))
    for k in (1, 2):
        got = chain.mean_openings(law, k, n_sets=400, seed=3)
        if k == 1:
            assert abs(got.mean_hops - chain.mean_hops(law)) < 2 * got.mean_hops_error
            assert got.predecessor_guess == pytest.approx(1)
        assert 0 < got.mean_hops_error < 0.05 * got.mean_hops
        for source in range(network.n_nodes):
            pairs = list(combinations(np.flatnonzero(far[source]).tolist(), k))
            want = np.zeros(network.n_nodes)
            for pair in pairs:
                found = chain.opening_law(source, pair)
                want[found.recipients] += found.by_recipient / len(pairs)
            if walk == "simple":
                # Each entry has a binomial spread at most; four of its standard errors.
                assert np.all(np.abs(got.by_node[source] - want) <= 4 * np.sqrt(want * (1 - want) / 400) + 1e-12)
        assert got.by_node.sum(axis=1) == pytest.approx(1)
        assert got.sources @ got.entries == pytest.approx(got.sources, abs=1e-12)


def test_the_same_seed_draws_the_same_sets() -> None:
    """And another one others."""
    network = random_regular(20, 3, seed=1)
    far = distances(network) >= 3
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    chain = chains.chain_of(network, Walk("non-backtracking"))
    first, again, other = (chain.mean_openings(law, 2, n_sets=3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.entries, again.entries)
    assert first.mean_hops != other.mean_hops


def test_what_cannot_be_drawn_is_refused_in_one_line() -> None:
    """No recipient, more than a row holds, the source itself, somebody twice, somebody unknown."""
    network = graph("cube")
    chain = chains.chain_of(network, Walk("simple"))
    far = distances(network) >= 2
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    for k, need in [(0, ">= 1"), (5, "at most 4: node 0"), (1.5, "whole")]:
        with pytest.raises(InvalidParameterError, match=f"recipients = {k}.*{need}"):
            chain.mean_openings(law, k, n_sets=2, seed=0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="sets = 1"):
        chain.mean_openings(law, 2, n_sets=1, seed=0)
    for recipients in ([], [0, 3], [3, 3], [8], [-1], [2.5]):
        with pytest.raises(InvalidParameterError, match="recipients"):
            chain.opening_law(0, recipients)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="source = 9"):
        chain.opening_law(9, [1])
    with pytest.raises(GraphError, match="ring"):
        chains.chain_of(ring(6), Walk("non-backtracking")).opening_law(0, [3])
    with pytest.raises(ResourceLimitError):
        SetPotentials(chain.states, chain.node_shares, memory_bytes=1000)
