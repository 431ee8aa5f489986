"""Observation channels and what they leave hidden, against Bayes' rule spelt out."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from tests.helpers.present import present

from veilwalk.chains import chain_of
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.core.stats import geometric_starts
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import Channel
from veilwalk.design import _channel as subject
from veilwalk.design._law import law_by_distance
from veilwalk.graphs import Graph, barabasi_albert, random_regular, ring

GRAPH = barabasi_albert(24, 2, seed=1)
SUPPORT = DistanceSupport(2, 4)
LAW = law_by_distance(GRAPH, SUPPORT, np.ones(5))


Floats = npt.NDArray[np.float64]


def by_hand(law: Floats, prior: Floats, channel: Channel) -> tuple[float, float, Floats]:
    """Expected entropy, hit ratio and weight of each true source, one observation after the other."""
    entropy = hits = 0.0
    known = np.zeros(len(law))
    for node, (nodes, table) in enumerate(zip(channel.sources, channel.tables, strict=True)):
        for likelihood in table:
            joint = [prior[i] * law[i, node] * chance for i, chance in zip(nodes, likelihood, strict=True)]
            total = sum(joint)
            posterior = [each / total for each in joint] if total > 0 else []
            entropy -= total * sum(p * math.log(p) for p in posterior if p > 0)
            hits += max(joint)
            for i, each, weight in zip(nodes, joint, posterior, strict=bool(posterior)):
                known[i] += each / prior[i] * weight
    return entropy, hits, known


@pytest.mark.parametrize("walk", ["simple", "metropolis", "non-backtracking"])
@pytest.mark.parametrize("observer", ["return-time", "last-hop"])
def test_exposure_is_bayes_rule_spelt_out(walk: str, observer: str) -> None:
    """Entropy, hit ratio and their blind versions; columns of the channel are probabilities."""
    channel = Channel.derive(chain_of(GRAPH, Walk(walk)), LAW, observer=observer)
    for nodes, table in zip(channel.sources, channel.tables, strict=True):
        np.testing.assert_allclose(table.sum(axis=0), 1.0, rtol=1e-9)
        assert table.shape[1] == len(nodes)
    found = channel.expose(LAW)
    blind_entropy, blind_hits = found.blind_node_entropy, found.blind_hit_ratio
    assert blind_entropy is not None
    assert blind_hits is not None
    assert found.weight_by_source is not None
    entropy, hits, known = by_hand(LAW.matrix.toarray(), LAW.source_prior, channel)
    np.testing.assert_allclose(found.weight_by_source, known, rtol=1e-9)
    best_known = found.to_dict(GRAPH.degrees)["best_known_sources"][0]
    assert known[best_known["node"]] == pytest.approx(known.max(), rel=1e-9)
    assert found.node_entropy.mean == pytest.approx(entropy, rel=1e-9)
    assert present(found.hit_ratio).mean == pytest.approx(hits, rel=1e-9)
    blind = Channel(observer, "none", 0, channel.sources, tuple(np.ones((1, len(own))) for own in channel.sources))
    entropy, hits, _ = by_hand(LAW.matrix.toarray(), LAW.source_prior, blind)
    assert blind_entropy.mean == pytest.approx(entropy, rel=1e-9)
    assert blind_hits.mean == pytest.approx(hits, rel=1e-9)
    assert found.node_entropy.mean < blind_entropy.mean
    assert present(found.hit_ratio).mean > blind_hits.mean


def test_destinations_average_to_the_whole_and_the_worst_come_first() -> None:
    """Weighted by how often each is a destination, which is how often it is a source."""
    channel = Channel.derive(chain_of(GRAPH, Walk("simple")), LAW)
    found = channel.expose(LAW)
    own = np.asarray(found.node_entropy_by_destination)
    assert own @ LAW.source_prior == pytest.approx(found.node_entropy.mean, rel=1e-9)
    assert np.asarray(found.hit_ratio_by_destination) @ LAW.source_prior == pytest.approx(
        present(found.hit_ratio).mean, rel=1e-9
    )
    worst = [row["node"] for row in found.to_dict(GRAPH.degrees)["worst_destinations"]]
    assert own[worst[0]] == own.min()
    assert list(own[worst]) == sorted(own)[: len(worst)]


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_classes_merge_return_times_and_lose_little(walk: str) -> None:
    """Each class is a sum over delivery laws; telling all times apart leaves less, by less than a thousandth."""
    chain = chain_of(GRAPH, Walk(walk))
    channel = Channel.derive(chain, LAW)
    starts = geometric_starts(1, channel.horizon + 1, subject._CLASSES)
    horizon = int(8 * LAW.mean_hops(chain.mean_hitting_times()))
    fine = []
    for delivery in chain.deliveries(LAW.matrix.toarray(), horizon):
        times = np.concatenate((delivery.joint.sum(axis=1), delivery.beyond.sum(axis=0)[np.newaxis]))
        shares = times / times.sum(axis=0)
        fine.append(shares)
        if delivery.destination == 5:
            for row, (first, stop) in enumerate(zip(starts, [*starts[1:], horizon + 2], strict=True)):
                np.testing.assert_allclose(channel.tables[5][row], shares[first:stop].sum(axis=0), atol=1e-9)
    apart = Channel("return-time", "every hop", horizon, channel.sources, tuple(fine)).expose(LAW)
    merged = channel.expose(LAW)
    assert apart.node_entropy.mean < merged.node_entropy.mean < 1.0005 * apart.node_entropy.mean
    assert present(apart.hit_ratio).mean > present(merged.hit_ratio).mean > 0.985 * present(apart.hit_ratio).mean


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_large_graphs_get_a_named_approximation(walk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two independent hitting times: the convolution spelt out; nearer to the exact channel the larger the graph."""
    off = []
    for size in (30, 120):
        graph = random_regular(size, 3, seed=1)
        law = law_by_distance(graph, DistanceSupport(2, 4), np.ones(5))
        chain = chain_of(graph, Walk(walk))
        exact = Channel.derive(chain, law)
        with monkeypatch.context() as patch:
            patch.setattr(subject, "EXACT_NODES", 20)
            patch.setattr(subject, "_FEWER_CLASSES", 32)
            near = Channel.derive(chain, law)
            with pytest.raises(ResourceLimitError, match="last-hop"):
                Channel.derive(chain, law, observer="last-hop")
        assert exact.kind == "exact"
        assert near.kind.startswith("approximate")
        got, want = (each.expose(law).node_entropy.mean for each in (near, exact))
        assert got == pytest.approx(want, rel=0.005)
        apart = zip(exact.tables, near.tables, strict=True)
        off.append(np.mean([np.abs(table - other).sum(axis=0).mean() / 2 for table, other in apart]))
    assert 0 < off[1] < off[0] < 0.05
    target, horizon = 7, near.horizon
    laws = {int(node): pmf[:, :, at].copy() for own, pmf in chain.hitting_laws(horizon) for at, node in enumerate(own)}
    starts = geometric_starts(1, horizon + 1, subject._CLASSES)
    for place, source in enumerate(near.sources[target][:4]):
        hits = laws[target][:, source]
        twice = np.convolve(hits, hits)[: horizon + 1]
        classes = [twice[first:stop].sum() for first, stop in pairwise(starts)]
        np.testing.assert_allclose(near.tables[target][:-1, place], classes, atol=1e-12)


def test_hops_of_a_non_backtracking_walk_are_near_the_long_run_on_arcs() -> None:
    """Arrivals by any arc alike: within one part in ten thousand of the exact mean."""
    for graph in (GRAPH, random_regular(40, 3, seed=1)):
        law = law_by_distance(graph, DistanceSupport(2, 3), np.ones(4))
        chain = chain_of(graph, Walk("non-backtracking"))
        exact = chain.mean_hops(law.matrix)
        assert law.mean_hops(chain.mean_hitting_times()) == pytest.approx(exact, rel=1e-4)


def test_what_cannot_be_is_refused() -> None:
    """Observers nobody knows, more memory than allowed, a ring that never turns."""
    chain = chain_of(GRAPH, Walk("simple"))
    with pytest.raises(InvalidParameterError, match="return-time, last-hop"):
        Channel.derive(chain, LAW, observer="window")
    with pytest.raises(ResourceLimitError, match="GiB"):
        Channel.derive(chain, LAW, memory_bytes=1000)


def test_a_graph_of_one_cycle_has_no_long_run_for_a_walk_that_never_turns() -> None:
    """The error is the chain's own, in one line."""
    graph: Graph = ring(9)
    law = law_by_distance(graph, DistanceSupport(2, 4), np.ones(5))
    with pytest.raises(GraphError, match="ring"):
        Channel.derive(chain_of(graph, Walk("non-backtracking")), law)
