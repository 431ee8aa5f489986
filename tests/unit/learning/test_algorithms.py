"""The other ways of passing models on."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.graphs import path

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import random_regular
from veilwalk.learning import (
    Partition,
    Partitions,
    SoftmaxLearner,
    TrainingTask,
    apply_update,
    average_params,
    central_trace,
    fedavg_trace,
    gossip_trace,
    init_generator,
    plain_trace,
    sparse_gossip_trace,
    train,
)

GRAPH = random_regular(40, 3, seed=3)
PATH = path(4)


def test_the_plain_walk_steps_along_edges() -> None:
    """One hop an update, from the neighbour who made the last one."""
    trace = plain_trace(GRAPH, updates=500, seed=1)
    assert (trace.hops == 1).all()
    assert (trace.source[1:] == trace.node[:-1]).all()
    assert (trace.last_hop == trace.source).all()
    edges = {(a, b) for a in range(40) for b in GRAPH.neighbours(a).tolist()}
    assert {(a, b) for a, b in zip(trace.source.tolist(), trace.node.tolist(), strict=True)} <= edges


def test_the_plain_walk_is_the_simple_walk() -> None:
    """On an uneven graph nodes are visited by degree, and not evenly."""
    visits = np.bincount(plain_trace(PATH, updates=60_000, seed=4).node, minlength=4) / 60_000
    assert visits == pytest.approx(np.array([1, 2, 2, 1]) / 6, abs=0.01)
    assert abs(visits - 0.25).max() > 0.05


def test_plain_tokens_take_turns() -> None:
    """Three tokens, one hop each in turn; a count that does not divide is cut."""
    trace = plain_trace(GRAPH, updates=200, seed=1, tokens=3)
    assert trace.model[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert trace.clock[:6].tolist() == [1, 1, 1, 2, 2, 2]
    assert len(trace) == 200
    for token in range(3):
        mine = trace.model == token
        assert (trace.source[mine][1:] == trace.node[mine][:-1]).all()


def test_gossip_mixes_by_metropolis_weights() -> None:
    """Symmetric, rows sum to one, 1/(1 + larger degree) on edges: by hand on a path of four."""
    trace = gossip_trace(PATH, rounds=3)
    assert trace.mixing is not None
    third = 1 / 3
    expected = [
        [2 * third, third, 0, 0],
        [third, third, third, 0],
        [0, third, third, third],
        [0, 0, third, 2 * third],
    ]
    assert trace.mixing(2).toarray() == pytest.approx(np.array(expected))


def test_random_pairs_take_their_mean_and_push_averages_what_came() -> None:
    """Pairs are neighbours, each in one pair at most; whoever is pushed to counts its own model as one of them."""
    graph = random_regular(20, 3, seed=1)
    pairs = sparse_gossip_trace(graph, rounds=2, seed=4, push=False)
    push = sparse_gossip_trace(graph, rounds=2, seed=4, push=True)
    assert pairs.mixing is not None
    assert push.mixing is not None
    weights = pairs.mixing(0).toarray()
    assert (weights == weights.T).all()
    assert set(weights[weights > 0].tolist()) == {0.5, 1.0}
    assert weights.sum(axis=1) == pytest.approx(1)
    assert (pairs.hops[:20] == (weights.diagonal() < 1)).all()
    assert (weights != pairs.mixing(1).toarray()).any()
    for number in range(2):
        weights = push.mixing(number).toarray()
        came = (weights > 0).sum(axis=1)
        assert weights.sum(axis=1) == pytest.approx(1)
        assert came.sum() == 40
        assert (weights.diagonal() == 1 / came).all()
    for first, second in np.argwhere(weights - np.diag(weights.diagonal())).tolist():
        assert second in graph.neighbours(first)


def test_fedavg_asks_other_nodes_every_round_and_takes_their_mean() -> None:
    """A tenth, none twice in a round; all of them begin with the same model."""
    trace = fedavg_trace(random_regular(40, 3, seed=1), updates=8, seed=2)
    assert (trace.n_nodes, trace.n_models, len(trace)) == (40, 4, 8)
    assert all(len(set(trace.node[k : k + 4].tolist())) == 4 for k in (0, 4))
    assert trace.mixing is not None
    assert trace.mixing(0).toarray() == pytest.approx(np.full((4, 4), 0.25))


def test_walks_that_meet_go_on_from_their_mean() -> None:
    """Two walks of two updates that meet in between, made by hand; without meeting they end elsewhere."""
    graph = random_regular(20, 3, seed=1)
    rng = np.random.default_rng(0)
    rows = Partition(rng.random((100, 3), dtype=np.float32), rng.integers(2, size=100))
    learner = SoftmaxLearner(n_features=3, n_classes=2)
    parts = Partitions(rows, [5] * 20)
    task = TrainingTask(learner=learner, partitions=parts, held_out=rows, seed=3)
    apart = plain_trace(graph, updates=4, seed=6, tokens=2)
    trace = apart.add_meetings(graph, 1)
    models = [learner.init_params(init_generator(3))] * 2
    for step in range(2):
        for walk in range(2):
            node = int(apart.node[2 * step + walk])
            made = int((apart.node[: 2 * step + walk] == node).sum())
            result = apply_update(learner, models[walk], parts[node], seed=3, node=node, step=made, state={})
            models[walk] = result.params
        models = [average_params(models)] * 2 if step == 0 else models
    for end, expected in zip(train(task, trace).models, models, strict=True):
        assert end["weight"] == pytest.approx(expected["weight"], abs=1e-7)
    assert not np.allclose(train(task, apart).models[0]["weight"], models[0]["weight"], atol=1e-6)


def test_a_gossip_round_sends_a_model_over_every_directed_edge() -> None:
    """Everybody updates once a round."""
    trace = gossip_trace(PATH, rounds=3)
    assert trace.node.tolist() == [0, 1, 2, 3] * 3
    assert trace.clock.tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert trace.hops[:4].tolist() == [1, 2, 2, 1]
    assert trace.n_models == 4


def test_central_training_sends_nothing() -> None:
    """A network of one."""
    trace = central_trace(updates=7)
    assert trace.hops.sum() == 0
    assert trace.n_nodes == 1
    assert trace.node.tolist() == [0] * 7


@pytest.mark.parametrize("bad", [0, -1, 1.5])
def test_counts_must_be_counts(bad: float) -> None:
    """Nought updates, or half of one, are refused by name."""
    with pytest.raises(InvalidParameterError, match="updates"):
        plain_trace(GRAPH, updates=bad, seed=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="updates"):
        central_trace(updates=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="rounds"):
        gossip_trace(GRAPH, rounds=bad)  # type: ignore[arg-type]
