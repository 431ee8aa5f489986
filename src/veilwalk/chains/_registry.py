"""Which chain each kind of walk has."""

from __future__ import annotations

from collections.abc import Callable

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._chain import Chain
from veilwalk.chains._node_chain import NodeChain
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

#: How the chain of each kind of walk is made; a kind that is not here has none.
CHAINS: dict[str, Callable[[Graph], Chain]] = {
    "simple": NodeChain.simple,
    "lazy": NodeChain.lazy,
    "metropolis": NodeChain.metropolis,
    "non-backtracking": ArcChain,
}


def chain_of(graph: Graph, walk: Walk) -> Chain | None:
    """Return the exact chain of ``walk`` on ``graph``, None where it has none."""
    return CHAINS[walk.kind](graph) if walk.kind in CHAINS else None


def require_chain(graph: Graph, walk: Walk) -> Chain:
    """Return the exact chain of ``walk``, or refuse one that has none."""
    chain = chain_of(graph, walk)
    if chain is None:
        need = f"one of {', '.join(CHAINS)}: this one has no chain; its audit measures it"
        raise InvalidParameterError("walk", str(walk), need)
    return chain
