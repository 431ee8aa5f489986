"""Phase one: who updates when."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.traces import private_trace

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import choose_scheme
from veilwalk.graphs import distances, random_regular
from veilwalk.learning import trace_of
from veilwalk.walks import run_protocol

GRAPH = random_regular(40, 3, seed=3)
LAW = choose_scheme(GRAPH, "uniform-node", support=DistanceSupport(2, 4)).law.matrix


def test_a_trace_is_the_protocol_in_order_of_time() -> None:
    """One token: destinations follow each other, each update's source made the one before."""
    trace = private_trace(GRAPH, LAW, updates=200, seed=5)
    assert len(trace) == 200
    assert trace.n_models == 1
    assert (trace.source[1:] == trace.node[:-1]).all()
    assert (np.diff(trace.clock) == trace.hops[1:]).all()
    assert trace.clock[0] == trace.hops[0]
    apart = distances(GRAPH)[trace.source, trace.node]
    assert apart.min() >= 2
    assert apart.max() <= 4
    assert (trace.return_time > trace.hops).all()


def test_tokens_are_merged_by_their_own_clocks() -> None:
    """Each starts at nought, whatever it walked before; rows of one clock go by token."""
    trace = private_trace(GRAPH, LAW, updates=300, seed=5, tokens=3)
    assert np.bincount(trace.model).tolist() == [100, 100, 100]
    assert (np.diff(trace.clock) >= 0).all()
    for token in range(3):
        mine = trace.model == token
        assert (np.cumsum(trace.hops[mine]) == trace.clock[mine]).all()
        assert (trace.source[mine][1:] == trace.node[mine][:-1]).all()


@pytest.mark.parametrize("walk", ["simple", "lazy", "metropolis", "non-backtracking"])
def test_every_walk_gives_a_trace(walk: str) -> None:
    """The law decides who updates; the walk what it costs."""
    trace = private_trace(GRAPH, LAW, updates=400, seed=2, walk=Walk(walk))
    assert len(np.unique(trace.node)) > 30
    assert trace.hops.mean() > 10


def test_steps_count_the_updates_a_node_has_made_and_ages_those_a_model_has_had() -> None:
    """Over all tokens, from nought; by all nodes, from nought."""
    trace = private_trace(GRAPH, LAW, updates=300, seed=5, tokens=3)
    made, had = [0] * 40, [0] * 3
    rows = zip(trace.node.tolist(), trace.steps.tolist(), trace.model.tolist(), trace.ages.tolist(), strict=True)
    for node, step, model, age in rows:
        assert (step, age) == (made[node], had[model])
        made[node] += 1
        had[model] += 1
    assert had == [100, 100, 100]


def test_the_same_seed_gives_the_same_trace_and_another_does_not() -> None:
    """The digest tells them apart; so it does a trace cut short."""
    one, again, other = (private_trace(GRAPH, LAW, updates=50, seed=seed) for seed in (1, 1, 2))
    assert one.digest == again.digest
    assert one.digest != other.digest
    assert one.first(49).digest != one.digest
    assert one.first(50).digest == one.digest


def test_several_networks_are_not_one_trace() -> None:
    """Replicas are different networks."""
    records = run_protocol(GRAPH, LAW, updates=64, seed=1, replicas=2)
    with pytest.raises(InvalidParameterError, match="replicas = 2"):
        trace_of(GRAPH, records)
