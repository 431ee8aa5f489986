"""What holds for destination laws on every connected graph."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import Channel, DestinationLaw, LawBench, balanced, exposure, law_by_distance
from veilwalk.graphs import Graph, distances

QUICK = settings(max_examples=25)


@st.composite
def connected_graphs(draw: st.DrawFn) -> Graph:
    """A random tree on 8 to 13 nodes and some more edges: leaves, hubs and cycles."""
    size = draw(st.integers(8, 13))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, size)}
    extra = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=4, max_size=14))
    edges |= {(min(pair), max(pair)) for pair in extra if pair[0] != pair[1]}
    return Graph.from_edges(size, sorted(edges))


def uniform_law(graph: Graph) -> DestinationLaw:
    """Uniform over all nodes two hops away or more, where that reaches everywhere."""
    apart = distances(graph)
    assume(apart.max() > 2 and np.all(apart.max(axis=1) > 1))
    law = law_by_distance(graph, DistanceSupport(2, int(apart.max())), np.ones(int(apart.max()) + 1))
    try:
        _ = law.source_prior
    except InfeasibleDesignError:
        assume(condition=False)
    return law


@QUICK
@given(connected_graphs())
def test_a_balanced_law_updates_every_node_alike_or_does_not_exist(graph: Graph) -> None:
    """Doubly stochastic within the support, and balancing it again changes nothing."""
    law = uniform_law(graph)
    try:
        even = balanced(law)
    except InfeasibleDesignError:
        return
    matrix = even.matrix.toarray()
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-9)
    assert not matrix[law.matrix.toarray() == 0].any()
    np.testing.assert_allclose(balanced(even).matrix.toarray(), matrix, atol=1e-9)


@QUICK
@given(connected_graphs(), st.sampled_from(["simple", "lazy", "metropolis"]))
def test_no_law_passes_its_certificate(graph: Graph, walk: str) -> None:
    """Uniform-node lies below the bound for its own prior and hops, and the best law found between them."""
    law = uniform_law(graph)
    bench = LawBench(graph, support=law.support, walk=Walk(walk))
    channel = bench.channel(law)
    problem = bench.problem(law, channel, law.mean_hops(bench.hops), balanced=False)
    best = problem.solve("entropy")
    mine = exposure(law, channel).node_entropy_nats
    assert mine <= best.bound + 1e-12
    assert mine - 1e-9 <= best.value <= best.bound + 1e-12
    assert best.gap < 1e-5


@QUICK
@given(connected_graphs(), st.integers(0, 2**32 - 1))
def test_seeing_less_never_helps_the_observer(graph: Graph, seed: int) -> None:
    """Merging observations raises the entropy and lowers the hit ratio; seeing nothing gives the blind values."""
    law = uniform_law(graph)
    channel = LawBench(graph, support=law.support).channel(law)
    cut = int(np.random.default_rng(seed).integers(1, len(channel.tables[0])))
    merged = Channel(
        channel.observer,
        "merged",
        channel.horizon,
        channel.sources,
        tuple(np.concatenate((table[:cut], table[cut:].sum(axis=0)[np.newaxis])) for table in channel.tables),
    )
    sharp, dull = exposure(law, channel), exposure(law, merged)
    assert sharp.node_entropy_nats <= dull.node_entropy_nats + 1e-12
    assert sharp.hit_ratio >= dull.hit_ratio - 1e-12
    assert dull.node_entropy_nats <= dull.blind_node_entropy_nats + 1e-12
    assert dull.hit_ratio >= dull.blind_hit_ratio - 1e-12
    widest = int((law.matrix.toarray() > 0).sum(axis=0).max())
    assert sharp.node_entropy_nats <= math.log(widest) + 1e-12


@QUICK
@given(connected_graphs(), st.integers(0, 2**32 - 1))
def test_names_of_nodes_do_not_matter(graph: Graph, seed: int) -> None:
    """Relabelled, a graph has the same price and the same exposure of its uniform law."""
    law = uniform_law(graph)
    order = np.random.default_rng(seed).permutation(graph.n_nodes)
    rows, columns = graph.adjacency.nonzero()
    edges = sorted({(int(min(a, b)), int(max(a, b))) for a, b in zip(order[rows], order[columns], strict=True)})
    found = []
    for each in (graph, Graph.from_edges(graph.n_nodes, edges)):
        bench = LawBench(each, support=law.support)
        seen = exposure(bench.uniform, bench.channel(bench.uniform))
        found.append((bench.uniform.mean_hops(bench.hops), seen.node_entropy_nats, seen.hit_ratio))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
