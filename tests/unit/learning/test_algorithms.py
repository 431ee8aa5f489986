"""The other ways of passing models on."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.graphs import path

from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs import random_regular
from veilwalk.learning import central_trace, gossip_trace, plain_trace

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
    assert trace.mixing.toarray() == pytest.approx(np.array(expected))


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
