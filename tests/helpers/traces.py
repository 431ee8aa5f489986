"""Traces of the private protocol, walked along any law."""

from __future__ import annotations

from scipy import sparse

from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph
from veilwalk.learning import TrainingTrace, trace_of
from veilwalk.walks import run_protocol


def private_trace(
    graph: Graph, law: sparse.csr_array, *, updates: int, seed: int, tokens: int = 1, walk: Walk = SIMPLE
) -> TrainingTrace:
    """Walk the private protocol: tokens go from destination to destination, drawn from ``law``."""
    records = run_protocol(graph, law, updates=updates, seed=seed, tokens=tokens, replicas=1, walk=walk)
    return trace_of(graph, records)
