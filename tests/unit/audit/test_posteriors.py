"""Posteriors against paths counted one by one and dense chains stepped hop by hop."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.known_runs import know

from veilwalk.audit import AuditSettings, audit
from veilwalk.audit._knowledge import source_flows
from veilwalk.audit._observers import ExactSights, Window
from veilwalk.audit._play import Run, Sightings, Truth
from veilwalk.audit._timings import LawTiming
from veilwalk.chains import DeliveryLaw, NodeChain
from veilwalk.core.arrays import FloatArray, normalised
from veilwalk.core.stats import Estimate
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw, Scheme, choose_scheme
from veilwalk.graphs import Graph

N_NODES = 9
EDGES = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6), (7, 8), (8, 3)]
GRAPH = Graph.from_edges(N_NODES, np.array(EDGES))
CHAIN = NodeChain.simple(GRAPH)
COLLUDERS = np.array([2, 8])
FREE = [node for node in range(N_NODES) if node not in COLLUDERS.tolist()]


def one_hop() -> FloatArray:
    step = np.zeros((N_NODES, N_NODES))
    for one, other in EDGES:
        step[one, other] = step[other, one] = 1.0
    return np.asarray(step / step.sum(axis=1, keepdims=True))


STEP = one_hop()


def drawn_law() -> FloatArray:
    """Uneven, and not every node may be the source of every other."""
    rng = np.random.default_rng(6)
    law = rng.uniform(0.2, 1.0, (N_NODES, N_NODES)) * (STEP == 0)
    np.fill_diagonal(law, 0.0)
    law[0, 8] = law[7, 2] = 0.0
    return np.asarray(law / law.sum(axis=1, keepdims=True))


LAW = drawn_law()


def long_run(law: FloatArray) -> FloatArray:
    """How often each node is the source, by letting the update chain run."""
    mu = np.full(len(law), 1 / len(law))
    for _ in range(4000):
        mu = mu @ (law + np.eye(len(law))) / 2
    return mu


def sightings(**columns: list[int]) -> Sightings:
    """Sightings with the columns given; there was nothing else to see."""
    size = len(next(iter(columns.values())))
    return Sightings.empty(size, **{name: np.array(column) for name, column in columns.items()})


def to_one(weight: FloatArray) -> FloatArray:
    return np.asarray(weight / weight.sum())


def scheme_of(law: FloatArray) -> Scheme:
    """A law given as a table."""
    support = DistanceSupport(1, 9, allow_neighbours=True)
    return Scheme(GRAPH, DestinationLaw(support, GRAPH.digest, sparse.csr_array(law)))


def source_priors(law: FloatArray) -> FloatArray:
    """The prior of every destination."""
    return normalised(source_flows(scheme_of(law)).toarray().T)


def test_the_prior_is_the_long_run_of_sources_times_the_law() -> None:
    """mu_i P_ij for every destination; an even mu would miss it."""
    got = source_priors(LAW)
    for node in range(N_NODES):
        np.testing.assert_allclose(got[node], to_one(long_run(LAW) * LAW[:, node]), atol=1e-14, rtol=0)
        assert np.array_equal(got[node] == 0, LAW[:, node] == 0)
    assert np.abs(got[3] - to_one(LAW[:, 3])).max() > 1e-3


def test_without_timing_the_posterior_is_the_prior() -> None:
    """A horizon of zero leaves only that the update came: the return-time posterior is the prior itself."""
    prior = source_priors(LAW)
    for delivery in CHAIN.deliveries(LAW, 0):
        got = LawTiming(delivery, N_NODES).posterior(sightings(return_time=[4, 50]), use_last_hop=False).weights
        np.testing.assert_allclose(got, np.tile(prior[delivery.destination], (2, 1)), atol=1e-12, rtol=0)


def test_the_audited_prior_is_exact_where_the_graph_is_the_same_from_every_node() -> None:
    """On the Petersen graph at two hops: log 6 nats, one guess in six, blind or not, whatever the sample."""
    edges = [(i, (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
    graph = Graph.from_edges(10, np.array(edges + [(i, i + 5) for i in range(5)]))
    found = audit(choose_scheme(graph, "uniform-node", support=(2, 2)), observers=("prior",), updates=500)
    row = found["prior"].overall
    assert row["node_entropy_nats"] == pytest.approx(np.log(6), rel=1e-12)
    assert row["blind_hit_ratio"] == pytest.approx(1 / 6, rel=1e-12)
    assert row["top_posterior"] == pytest.approx(1 / 6, rel=1e-12)


def test_return_time_and_last_hop_read_the_right_entries() -> None:
    """A law made by hand: within the horizon, at it, and past it; the node without a column has zero."""
    joint = np.arange(1.0, 13.0).reshape(3, 2, 2)
    beyond = np.array([[20.0, 5.0], [1.0, 3.0]])
    delivery = DeliveryLaw(1, np.array([0, 3]), np.array([2, 4]), joint, beyond)
    seen = sightings(return_time=[1, 2, 3, 99], last_hop=[3, 0, 3, 0])
    hop, time = (LawTiming(delivery, 5).posterior(seen, use_last_hop=use).weights for use in (True, False))
    for row, (a, b) in enumerate([(7, 8), (9, 10), (1, 3), (20, 5)]):
        np.testing.assert_allclose(hop[row], [0, 0, a / (a + b), 0, b / (a + b)], atol=1e-15)
    for row, (a, b) in enumerate([(5 + 7, 6 + 8), (9 + 11, 10 + 12), (21, 8), (21, 8)]):
        np.testing.assert_allclose(time[row], [0, 0, a / (a + b), 0, b / (a + b)], atol=1e-15)


def test_the_window_posterior_is_the_law_times_the_window_likelihood() -> None:
    """P_ij L_ij at one return time, L from the dense absorbing chain; P_ij alone would miss it."""
    kappa, radius, times = 15, 2, np.arange(2001)
    sighted = sightings(destination=list(range(N_NODES)), return_time=[kappa] * N_NODES)
    nobody, truth = np.zeros(0, dtype=np.int64), Truth(np.zeros(N_NODES, dtype=np.int64), np.arange(N_NODES))
    run = Run(sighted, truth, Estimate(1.0, 1.0, 1.0), nobody, complete=True)
    knowledge, window = know(scheme_of(LAW), AuditSettings(window_radius=radius), run), Window()
    window.fit(knowledge)
    for node in range(N_NODES):
        pmf, arriving = [np.zeros(N_NODES)], STEP[:, node]
        for _ in times[1:]:
            pmf.append(np.where(np.arange(N_NODES) == node, 0.0, arriving))
            arriving = STEP @ pmf[-1]
        table = np.array(pmf)
        seen = table[: kappa + 1]
        total = seen.sum(axis=0)
        centre = (times[: kappa + 1] @ seen) / np.where(total > 0, total, 1)
        likelihood = np.where(np.abs(times[:, None] - centre) <= radius + 1e-9, table, 0).sum(axis=0)
        got = window.posterior(knowledge, np.array([node])).weights[0]
        np.testing.assert_allclose(got, to_one(LAW[:, node] * likelihood), atol=1e-9, rtol=0)
        assert np.abs(got - to_one(LAW[:, node])).max() > 1e-3


def first_exits() -> FloatArray:
    """P(a colluder first receives it from y, and it is c | sealed by i), [i, y, c], summed hop by hop."""
    found = np.zeros((N_NODES, N_NODES, N_NODES))
    law = np.eye(N_NODES)
    for _ in range(3000):
        law[:, COLLUDERS] = 0.0
        found += law[:, :, None] * STEP[None]
        law = law @ STEP
    kept = np.zeros_like(found)
    kept[np.ix_(FREE, FREE, COLLUDERS.tolist())] = found[np.ix_(FREE, FREE, COLLUDERS.tolist())]
    return kept


def test_first_sight_is_bayes_on_the_absorbing_chain() -> None:
    """For every destination, every last free node and every colluder next to it: which colluder adds nothing."""
    exits, mu = first_exits(), long_run(LAW)
    adversary = ExactSights(CHAIN, LAW, COLLUDERS)
    checked = 0
    for destination in COLLUDERS.tolist():
        for y in FREE:
            for c in COLLUDERS.tolist():
                if STEP[y, c] == 0:
                    continue
                seen = sightings(destination=[destination], first_sight_from=[y], first_sight_node=[c])
                want = to_one(mu * LAW[:, destination] * exits[:, y, c])
                got = adversary.posterior(seen).weights[0]
                np.testing.assert_allclose(got, want, atol=1e-12, rtol=0)
                assert np.all(got[COLLUDERS] == 0)
                checked += 1
    assert checked == 10
