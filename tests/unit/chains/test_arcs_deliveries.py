"""The protocol on a non-backtracking walk against its whole token chain written out as one dense matrix."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.helpers.dense_walks import arc_steps
from tests.helpers.token_chains import (
    TokenChain,
    assert_bits_are_the_same,
    assert_sources_have_the_prior,
    drawn_law,
    graph_of,
    hops_apart,
)

from veilwalk.chains import DeliveryLaw, NodeChain
from veilwalk.chains._arc_chain import ArcChain, ArcUpdates
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.graphs import Graph

HORIZON = 50
# On the path the walk is never free: end to end and back, and the law alone leaves things to chance.
GRAPHS = ("prism", "irregular", "cube", "path")


class ArcTokenChain(TokenChain):
    """States (whence, position, destination, source of the ciphertext); the stationary law by one dense solve."""

    def __init__(self, name: str, *, forgets: bool = False) -> None:
        law, around = drawn_law(name), [np.flatnonzero(row == 1).tolist() for row in hops_apart(name)]
        nodes = range(len(around))
        self.states = [
            (w, x, d, s) for d in nodes for s in nodes if law[s, d] > 0 for x in nodes if x != d for w in around[x]
        ]
        number = {state: index for index, state in enumerate(self.states)}
        self.matrix = np.zeros((len(number), len(number)))
        self.arriving = np.zeros(len(number))
        for (w, x, d, s), row in number.items():
            # A token that forgets its past when it is sealed may go back where it came from.
            onward = around[x] if forgets and s == x else [y for y in around[x] if y != w] or around[x]
            for y in onward:
                if y != d:
                    self.matrix[row, number[x, y, d, s]] += 1 / len(onward)
                    continue
                self.arriving[row] += 1 / len(onward)
                for goal in np.flatnonzero(law[d]):
                    self.matrix[row, number[x, d, int(goal), d]] += law[d, goal] / len(onward)
        system = self.matrix.T - np.eye(len(number))
        system[-1] = 1.0
        self.stationary = np.linalg.solve(system, np.eye(len(number))[-1])
        self.whence, self.position, self.goal, self.source = np.array(self.states).T


@cache
def token_chain(name: str) -> ArcTokenChain:
    return ArcTokenChain(name)


@cache
def chain_on(name: str) -> ArcChain:
    return ArcChain(graph_of(name))


@cache
def found(name: str, horizon: int = HORIZON) -> list[DeliveryLaw]:
    return list(chain_on(name).deliveries(drawn_law(name), horizon))


@cache
def updates_of(name: str) -> ArcUpdates:
    return chain_on(name).solve_updates(drawn_law(name))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_joint_law_is_that_of_the_whole_token_chain(name: str) -> None:
    """Return time, last hop and source at every destination; swapped last hops would not do."""
    for law in found(name):
        want = token_chain(name).deliveries(law.destination, HORIZON)
        np.testing.assert_allclose(law.joint, want[:, law.neighbours][:, :, law.sources], atol=1e-10, rtol=0)
        assert law.joint.sum() == pytest.approx(want.sum(), abs=1e-9)
        mutant = want[:, law.neighbours[::-1]][:, :, law.sources]
        assert len(law.neighbours) < 2 or np.abs(law.joint - mutant).max() > 1e-5


@pytest.mark.parametrize("name", ["prism", "irregular", "cube"])
def test_the_past_counts_where_an_update_is_sealed(name: str) -> None:
    """Named mutants: a token that forgets on sealing whence it came, and the simple walk, have other laws."""
    forgetful = ArcTokenChain(name, forgets=True)
    simple = list(NodeChain.simple(chain_on(name).graph).deliveries(drawn_law(name), HORIZON))
    for law, other in zip(found(name), simple, strict=True):
        mutant = forgetful.deliveries(law.destination, HORIZON)[:, law.neighbours][:, :, law.sources]
        assert np.abs(law.joint - mutant).max() > 1e-4
        assert np.abs(law.joint - other.joint).max() > 1e-4


@pytest.mark.parametrize("name", GRAPHS)
def test_everything_sums_to_one_and_sources_to_the_prior(name: str) -> None:
    """Summed over what is seen, the posterior is mu_i P_ij; with an even mu it would not be."""
    assert_sources_have_the_prior(found(name), drawn_law(name))


@pytest.mark.parametrize("name", GRAPHS)
def test_what_cannot_happen_has_exactly_zero(name: str) -> None:
    """Sources outside the law, returns shorter than there and back, odd returns on a bipartite graph."""
    far = hops_apart(name)
    for law in found(name):
        assert law.sources.tolist() == np.flatnonzero(drawn_law(name)[:, law.destination]).tolist()
        assert np.all(law.joint >= 0)
        for column, source in enumerate(law.sources):
            assert np.all(law.joint[: 2 * int(far[source, law.destination]), :, column] == 0)
        assert (law.joint[1::2].sum() == 0) == (name in {"cube", "path"})
        # No walk comes back in two hops but by way of a leaf.
        assert name in {"irregular", "path"} or law.joint[:3].sum() == 0


@pytest.mark.parametrize("name", ["prism", "irregular", "cube"])
def test_beyond_is_the_tail_of_a_longer_horizon(name: str) -> None:
    """Entry by entry, at a horizon that leaves much beyond it."""
    for short, long in zip(found(name, 12), found(name, 1500), strict=True):
        np.testing.assert_allclose(short.beyond, long.joint[13:].sum(axis=0) + long.beyond, atol=1e-12, rtol=0)
        np.testing.assert_array_equal(short.joint, long.joint[:13])
        assert long.beyond.sum() < 1e-9
        assert short.beyond.sum() > 0.05


@pytest.mark.parametrize("name", GRAPHS)
def test_the_long_run_is_that_of_the_whole_token_chain(name: str) -> None:
    """Sources with the arc they were reached by, visits on the way, mean hops."""
    dense, chain, got = token_chain(name), chain_on(name), updates_of(name)
    place = {arc: k for k, arc in enumerate(zip(chain.graph.indices.tolist(), chain.heads.tolist(), strict=True))}
    arcs = np.array([place[w, x] for w, x, _, _ in dense.states])
    visits = np.zeros((chain.n_arcs, chain.n_nodes))
    np.add.at(visits, (arcs, dense.goal), dense.stationary)
    per_hop = dense.stationary @ dense.arriving
    assert got.mean_hops == pytest.approx(1 / per_hop, rel=1e-9)
    np.testing.assert_allclose(got.visits, visits / per_hop, atol=1e-9, rtol=0)
    assert np.all(got.visits[np.arange(chain.n_arcs), chain.heads] == 0)
    # The token stands where it was just sealed: a start of a leg, not a later visit.
    flow = dense.stationary[:, np.newaxis] * dense.matrix
    started = np.zeros(chain.n_arcs)
    for state, (x, d) in enumerate(zip(dense.position, dense.goal, strict=True)):
        fresh = (dense.whence == x) & (dense.position == d)
        np.add.at(started, arcs[fresh], flow[state, fresh])
    np.testing.assert_allclose(got.sources, started / per_hop, atol=1e-9, rtol=0)


def test_the_arc_by_which_a_source_was_reached_matters() -> None:
    """On the irregular graph hops with uniform arrivals differ; with the exact ones they are those of the long run."""
    chain, law, got = chain_on("irregular"), drawn_law("irregular"), updates_of("irregular")
    shares = np.add.reduceat(got.sources, chain.graph.indptr[:-1])
    exact, uniform = np.zeros((2, chain.n_nodes, chain.n_nodes))
    steps = arc_steps(chain.graph)
    for node in range(chain.n_nodes):
        others = np.flatnonzero(chain.heads != node)
        times = np.linalg.solve(np.eye(len(others)) - steps[np.ix_(others, others)], np.ones(len(others)))
        np.add.at(exact[:, node], chain.heads[others], times * (got.sources / shares[chain.heads])[others])
        np.add.at(uniform[:, node], chain.heads[others], times / chain.graph.degrees[chain.heads][others])
    assert (shares[:, np.newaxis] * law * exact).sum() == pytest.approx(got.mean_hops, rel=1e-10)
    assert (shares[:, np.newaxis] * law * uniform).sum() != pytest.approx(got.mean_hops, rel=1e-3)


def test_threads_and_the_choice_of_destinations_change_no_bit(two_threads: int) -> None:
    """One thread, two, and the destinations asked for in another order."""
    chain, law = chain_on("irregular"), drawn_law("irregular")
    assert_bits_are_the_same(lambda goals: list(chain.deliveries(law, 40, goals)), two_threads)


def test_unfit_requests_are_refused_before_anything_is_computed() -> None:
    """A law of another size, too much memory, a node that is not there, a ring."""
    chain, law = chain_on("irregular"), drawn_law("irregular")
    for asked in (chain.solve_updates, lambda law: chain.deliveries(law, 10)):
        with pytest.raises(InvalidParameterError, match=r"^law = \(6, 6\): "):
            asked(drawn_law("prism"))
    with pytest.raises(ResourceLimitError, match=r"delivery laws need \d+ bytes"):
        chain.deliveries(law, 10, memory_bytes=1000)
    with pytest.raises(ResourceLimitError, match="update chain on arcs"):
        chain.solve_updates(law, memory_bytes=1000)
    with pytest.raises(InvalidParameterError, match="target = 8"):
        chain.deliveries(law, 10, [8])
    ring = ArcChain(Graph.from_edges(5, np.array([(i, (i + 1) % 5) for i in range(5)])))
    with pytest.raises(GraphError, match="ring"):
        ring.solve_updates(np.full((5, 5), 0.25) - 0.25 * np.eye(5))
