"""Sealed for several: exact laws against rational arithmetic and enumeration written here."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from veilwalk import chains
from veilwalk.chains._openings import SetPotentials, find_makers, list_sets
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, barabasi_albert, distances, hypercube, random_regular, ring
from veilwalk.walks import run_protocol

CUBE = [(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit]
# A hub, a leaf and cycles of several lengths.
KITE = [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (5, 2), (5, 6)]
GRAPHS = {"cube": (8, CUBE), "kite": (7, KITE)}
WALKS = ["simple", "non-backtracking"]
WHOLE = Fraction(1)
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


def opened(
    name: str,
    walk: str,
    begin: Place,
    chosen: set[int],
    horizon: int,
    *,
    unit: Any = WHOLE,
) -> list[dict[Place, Any]]:
    """P(opened at hop t by a node that was entered from another), by following every path."""
    near, token, law = neighbours(name), {begin: unit}, []
    for _ in range(horizon):
        after: dict[Place, Any] = defaultdict(type(unit))
        for place, weight in token.items():
            for to, chance in moves(near, place, walk).items():
                after[to] += weight * chance
        law.append({place: weight for place, weight in after.items() if place[1] in chosen})
        token = {place: weight for place, weight in after.items() if place[1] not in chosen}
    return law


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_given_set_opens_as_counted_path_by_path(name: str, walk: str) -> None:
    """The chance of each opener from every state: the first hops by fractions, the sum over hops by all paths."""
    chain, network = chains.chain_of(graph(name), Walk(walk)), graph(name)
    for source, chosen in [(0, [3, 5, 6]), (1, [4, 6]), (2, [0, 4, 5, 6])]:
        for place, state in enumerate(np.flatnonzero(chain.state_nodes == source)):
            begin = (-1 if walk == "simple" else int(network.neighbours(source)[place]), source)
            got = chain.potentials.opening_chances(int(state), np.array(chosen))
            for horizon, unit in ((12, WHOLE), (2000, 1.0)):
                want = np.zeros(len(chosen))
                for ways in opened(name, walk, begin, set(chosen), horizon, unit=unit):
                    for (_, opener), chance in ways.items():
                        want[chosen.index(opener)] += float(chance)
                assert np.all(want <= got + 1e-12)
            np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("walk", ["simple", "lazy", "metropolis", "non-backtracking"])
def test_one_recipient_is_a_destination(walk: str) -> None:
    """It opens for sure, after the mean hitting time that the chain computes without potentials."""
    chain = chains.chain_of(graph("kite"), Walk(walk))
    means, potentials = chain.mean_hitting_times(), SetPotentials(chain.states)
    for source, target in [(0, 6), (3, 1), (5, 4), (6, 2)]:
        hops, entries = potentials.solve_hits(target)
        own = chain.state_nodes == source
        assert hops[own].mean() == pytest.approx(means[source, target], rel=1e-12)
        np.testing.assert_allclose(entries.sum(axis=1), 1.0, atol=1e-13)
        assert chain.potentials.opening_chances(int(np.argmax(own)), np.array([target])) == pytest.approx(1)


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
            if walk == "simple":
                for pair in pairs:
                    want[list(pair)] += chain.potentials.opening_chances(source, np.array(pair)) / len(pairs)
                # Each entry has a binomial spread at most; four of its standard errors.
                assert np.all(np.abs(got.by_node[source] - want) <= 4 * np.sqrt(want * (1 - want) / 400) + 1e-12)
        assert got.by_node.sum(axis=1) == pytest.approx(1)
        shares = got.joint.sum(axis=0)
        assert shares @ got.by_node == pytest.approx(shares, abs=1e-12)


def test_the_same_seed_draws_the_same_sets() -> None:
    """And another one others."""
    network = random_regular(20, 3, seed=1)
    far = distances(network) >= 3
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    chain = chains.chain_of(network, Walk("non-backtracking"))
    first, again, other = (chain.mean_openings(law, 2, n_sets=3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.joint, again.joint)
    assert first.mean_hops != other.mean_hops


def test_what_cannot_be_drawn_is_refused_in_one_line() -> None:
    """No recipient, more than a row holds, one set alone, a ring, too little memory."""
    network = graph("cube")
    chain = chains.chain_of(network, Walk("simple"))
    far = distances(network) >= 2
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    for k, need in [(0, ">= 1"), (5, "at most 4: node 0"), (1.5, "whole")]:
        with pytest.raises(InvalidParameterError, match=f"recipients = {k}.*{need}"):
            chain.mean_openings(law, k, n_sets=2, seed=0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="sets = 1"):
        chain.mean_openings(law, 2, n_sets=1, seed=0)
    with pytest.raises(GraphError, match="ring"):
        chains.chain_of(ring(6), Walk("non-backtracking")).potentials.opening_chances(0, np.array([3]))
    with pytest.raises(ResourceLimitError):
        SetPotentials(chain.states, memory_bytes=1000)


def test_listed_sets_have_the_chances_of_draws_without_replacement() -> None:
    """Against every order of drawing; a mutant that multiplies the chances of one draw each is told apart."""
    row = np.array([0.0, 0.4, 0.1, 0.0, 0.3, 0.2])
    for size in (1, 2, 3, 4):
        sets, got = list_sets(row, size)
        assert got.sum() == pytest.approx(1.0, rel=1e-12)
        for chosen, chance in zip(sets.tolist(), got, strict=True):
            want = 0.0
            for order in permutations(chosen):
                left, product = 1.0, 1.0
                for node in order:
                    product *= row[node] / left
                    left -= row[node]
                want += product
            assert chance == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("walk", ["simple", "lazy", "metropolis", "non-backtracking"])
def test_arrivals_by_arc_are_those_of_plays(walk: str) -> None:
    """Last hops of openers and their sources, uneven rows: against a play; a mutant that turns arcs round fails."""
    network = graph("kite")
    far = (distances(network) >= 2) * np.arange(1, 8)
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    exact = chains.chain_of(network, Walk(walk)).mean_openings(law, 2)
    records = run_protocol(network, law, updates=200_000, seed=3, walk=Walk(walk), recipients=2)
    heads = np.repeat(np.arange(7), network.degrees)
    arcs = np.searchsorted(heads * 7 + network.indices, records["destination"] * 7 + records["last_hop"])
    played = np.zeros_like(exact.joint)
    np.add.at(played, (arcs, records["source"]), 1 / len(records))
    assert exact.joint.sum() == pytest.approx(1.0, rel=1e-9)
    # Updates of a lane follow each other: four standard errors of independent ones, half as wide again.
    assert np.all(np.abs(played - exact.joint) < 6 * np.sqrt(exact.joint / len(records)) + 1e-4)
    assert exact.mean_hops == pytest.approx(records["leg_hops"].mean(), rel=0.01)


@pytest.mark.parametrize("train_probability", [1.0, 0.5])
def test_one_recipient_by_nodes_is_one_by_arcs(train_probability: float) -> None:
    """A hub, leaves and triangles, uneven rows: one equation a node says what the matrix over the arcs says."""
    network = barabasi_albert(20, 2, seed=1)
    pendant = [(0, 20), (20, 21), (5, 22)]
    edges = [(a, b) for a in range(20) for b in network.neighbours(a).tolist() if a < b] + pendant
    network = Graph.from_edges(23, np.array(edges))
    chances = (distances(network) >= 1) * np.random.default_rng(1).random((23, 23))
    law = sparse.csr_array(chances / chances.sum(axis=1, keepdims=True))
    chain = chains.chain_of(network, Walk("non-backtracking"))
    assert chain.lists_one
    got = chain.mean_openings(law, 1, train_probability=train_probability)
    makers = train_probability, find_makers(law.toarray(), train_probability)
    want = SetPotentials(chain.states).mean_over_sets(law, 1, None, 0, makers)
    np.testing.assert_allclose(got.joint, want.joint, atol=1e-13)
    np.testing.assert_allclose(got.by_node, want.by_node, atol=1e-12)
    assert got.mean_hops == pytest.approx(want.mean_hops, rel=1e-11)
    assert (got.predecessor_guess, got.sender_guess) == pytest.approx((want.predecessor_guess, want.sender_guess))
    assert got.n_sets == want.n_sets
    # Two neighbours with two neighbours each: the arcs are asked.
    assert not chains.chain_of(graph("kite"), Walk("non-backtracking")).lists_one


@pytest.mark.parametrize("walk", WALKS)
def test_one_recipient_on_a_dense_network_is_what_walks_play(walk: str) -> None:
    """More than 750 links: price and last hops are exact; the other walk, a mutant, is told apart."""
    network = barabasi_albert(60, 16, seed=3)
    assert network.n_edges > 700
    far = (distances(network) >= 1) * np.arange(1.0, 61.0)
    law = sparse.csr_array(far / far.sum(axis=1, keepdims=True))
    kinds = (walk, *set(WALKS) - {walk})
    exact, mutant = (chains.chain_of(network, Walk(kind)).mean_openings(law, 1) for kind in kinds)
    records = run_protocol(network, law, updates=200_000, seed=3, walk=Walk(walk))
    hops = records["leg_hops"].mean()
    error = records["leg_hops"].std() / np.sqrt(len(records))
    assert abs(exact.mean_hops - hops) < 4 * error < abs(mutant.mean_hops - hops)
    heads = np.repeat(np.arange(60), network.degrees)
    arcs = np.searchsorted(heads * 60 + network.indices, records["destination"] * 60 + records["last_hop"])
    played = np.bincount(arcs, minlength=len(heads)) / len(records)
    by_arc = exact.joint.sum(axis=1)
    assert by_arc.sum() == pytest.approx(1.0, rel=1e-9)
    assert np.all(np.abs(played - by_arc) < 6 * np.sqrt(by_arc / len(records)) + 1e-5)
    # Who is handed back what it sealed: the update came straight from its source.
    straight = np.bincount(network.indices, weights=exact.joint[np.arange(len(heads)), network.indices], minlength=60)
    assert straight.sum() == pytest.approx(np.mean(records["last_hop"] == records["source"]), rel=0.05)
