"""What private walks are compared with: the same data, model and step size, by other ways of passing models on."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.randomness import task_generator
from veilwalk.graphs import Graph
from veilwalk.learning._trace import TrainingTrace

#: private-walk: sealed for distant nodes, of whom the first to be met opens. paper-walk: the same, sealed for one as in
#: the paper, many hops an update. plain-walk: handed to a neighbour, who updates it.
#: gossip: D-PSGD, everybody updates and averages with its neighbours in rounds. central: all data in one place.
ALGORITHMS = ("private-walk", "paper-walk", "plain-walk", "gossip", "central")
# A stream of its own for the plain walk.
_PLAIN_TASK = 0x706C6169
_NOT_SEEN = -1


def plain_trace(graph: Graph, *, updates: int, seed: int, tokens: int = 1) -> TrainingTrace:
    """Walk the plain protocol: every node updates what its neighbour hands it, and hands it on."""
    validate.integer(updates=updates, tokens=tokens)
    validate.at_least(1, updates=updates, tokens=tokens)
    tokens = min(tokens, updates)
    steps = -(-updates // tokens)
    paths = np.stack([_path(graph, steps, task_generator(seed, _PLAIN_TASK, token)) for token in range(tokens)])
    # One hop each in turn: updates of one clock by token.
    node, source = paths[:, 1:].T.reshape(-1)[:updates], paths[:, :-1].T.reshape(-1)[:updates]
    return TrainingTrace(
        algorithm="plain-walk",
        n_nodes=graph.n_nodes,
        n_models=tokens,
        node=node,
        model=np.tile(np.arange(tokens), steps)[:updates],
        hops=np.ones(updates, dtype=np.int64),
        clock=np.repeat(np.arange(1, steps + 1), tokens)[:updates],
        source=source,
        last_hop=source.copy(),
        return_time=np.full(updates, _NOT_SEEN),
    )


def gossip_trace(graph: Graph, *, rounds: int) -> TrainingTrace:
    """Return the rounds of D-PSGD: every node updates its own model, then all average with their neighbours.

    An update is one node's gradient step; it costs as many transfers as the node has neighbours. The weights are
    Metropolis': 1 / (1 + the larger degree) for each edge, and what is left for oneself.
    """
    validate.integer(rounds=rounds)
    validate.at_least(1, rounds=rounds)
    n_nodes = graph.n_nodes
    nobody = np.full(rounds * n_nodes, _NOT_SEEN)
    return TrainingTrace(
        algorithm="gossip",
        n_nodes=n_nodes,
        n_models=n_nodes,
        node=np.tile(np.arange(n_nodes), rounds),
        model=np.tile(np.arange(n_nodes), rounds),
        hops=np.tile(graph.degrees.astype(np.int64), rounds),
        clock=np.repeat(np.arange(1, rounds + 1), n_nodes),
        source=nobody,
        last_hop=nobody.copy(),
        return_time=nobody.copy(),
        mixing=_metropolis(graph),
    )


def central_trace(*, updates: int) -> TrainingTrace:
    """Return plain SGD in one place: a network of one node that holds all data, and sends nothing."""
    validate.integer(updates=updates)
    validate.at_least(1, updates=updates)
    zeros, nobody = np.zeros(updates, dtype=np.int64), np.full(updates, _NOT_SEEN)
    return TrainingTrace(
        algorithm="central",
        n_nodes=1,
        n_models=1,
        node=zeros,
        model=zeros.copy(),
        hops=zeros.copy(),
        clock=np.arange(1, updates + 1),
        source=nobody,
        last_hop=nobody.copy(),
        return_time=nobody.copy(),
    )


def _path(graph: Graph, steps: int, rng: np.random.Generator) -> IntArray:
    """Return the nodes of a simple walk of ``steps`` hops, started anywhere by the law it tends to."""
    node = int(rng.choice(graph.n_nodes, p=graph.stationary_distribution))
    picks, path = rng.random(steps), np.empty(steps + 1, dtype=np.int64)
    path[0] = node
    indptr, indices = graph.indptr.tolist(), graph.indices
    for step, pick in enumerate(picks.tolist(), start=1):
        first, width = indptr[node], indptr[node + 1] - indptr[node]
        node = int(indices[first + int(pick * width)])
        path[step] = node
    return path


def _metropolis(graph: Graph) -> sparse.csr_array:
    degrees = graph.degrees.astype(np.float64)
    rows = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    weights = 1 / (1 + np.maximum(degrees[rows], degrees[graph.indices]))
    edges = sparse.csr_array((weights, graph.indices, graph.indptr), shape=(graph.n_nodes, graph.n_nodes))
    own: FloatArray = 1 - np.asarray(edges.sum(axis=1)).ravel()
    return sparse.csr_array(edges + sparse.diags_array(own))
