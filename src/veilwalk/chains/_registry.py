"""Which chain each kind of walk has."""

from __future__ import annotations

from collections.abc import Callable

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._chain import Chain
from veilwalk.chains._node_chain import NodeChain
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

#: How the chain of each kind of walk is made.
CHAINS: dict[str, Callable[[Graph], Chain]] = {
    "simple": NodeChain.simple,
    "lazy": NodeChain.lazy,
    "metropolis": NodeChain.metropolis,
    "non-backtracking": ArcChain,
}


def chain_of(graph: Graph, walk: Walk) -> Chain:
    """Return the exact chain of ``walk`` on ``graph``."""
    return CHAINS[walk.kind](graph)
