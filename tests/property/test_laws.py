"""What holds for destination laws on every connected graph."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.helpers.present import present

from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import Channel, DestinationLaw, LawDesigner
from veilwalk.design._law import law_by_distance
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
        even = law.balance()
    except InfeasibleDesignError:
        return
    matrix = even.matrix.toarray()
    np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-9)
    assert not matrix[law.matrix.toarray() == 0].any()
    np.testing.assert_allclose(even.balance().matrix.toarray(), matrix, atol=1e-9)


@QUICK
@given(connected_graphs(), st.sampled_from(["simple", "lazy", "metropolis"]))
def test_no_law_passes_its_certificate(graph: Graph, walk: str) -> None:
    """Uniform-node lies below the bound for its own prior and hops, and the best law found between them."""
    law = uniform_law(graph)
    designer = LawDesigner(graph, support=law.support, walk=Walk(walk))
    channel = designer.channel(law)
    problem = designer.problem(law, channel, law.mean_hops(designer.hops), balanced=False)
    best = problem.solve()
    own = channel.expose(law).node_entropy.mean
    assert own <= best.bound + 1e-12
    assert own - 1e-9 <= best.value <= best.bound + 1e-12
    assert best.gap < 1e-5


@QUICK
@given(connected_graphs(), st.integers(0, 2**32 - 1))
def test_seeing_less_never_helps_the_observer(graph: Graph, seed: int) -> None:
    """Merging observations raises the entropy and lowers the hit ratio; seeing nothing gives the blind values."""
    law = uniform_law(graph)
    channel = LawDesigner(graph, support=law.support).channel(law)
    cut = int(np.random.default_rng(seed).integers(1, len(channel.tables[0])))
    merged = Channel(
        channel.observer,
        "merged",
        channel.horizon,
        channel.sources,
        tuple(np.concatenate((table[:cut], table[cut:].sum(axis=0)[np.newaxis])) for table in channel.tables),
    )
    sharp, dull = channel.expose(law), merged.expose(law)
    assert sharp.node_entropy.mean <= dull.node_entropy.mean + 1e-12
    assert present(sharp.hit_ratio).mean >= present(dull.hit_ratio).mean - 1e-12
    assert dull.blind_node_entropy is not None
    assert dull.blind_hit_ratio is not None
    assert dull.node_entropy.mean <= dull.blind_node_entropy.mean + 1e-12
    assert present(dull.hit_ratio).mean >= dull.blind_hit_ratio.mean - 1e-12
    widest = int((law.matrix.toarray() > 0).sum(axis=0).max())
    assert sharp.node_entropy.mean <= math.log(widest) + 1e-12


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
        designer = LawDesigner(each, support=law.support)
        exposure = designer.channel(designer.uniform).expose(designer.uniform)
        found.append(
            (designer.uniform.mean_hops(designer.hops), exposure.node_entropy.mean, present(exposure.hit_ratio).mean)
        )
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
