"""The law of far recipients: everybody at some distance or more, evenly. Nobody's farther distances need be known."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
from scipy import sparse

from veilwalk.core.arrays import FloatArray, IntArray, frozen, normalised
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.design._law import DestinationLaw
from veilwalk.graphs import Graph, distances, iter_distances
from veilwalk.walks import FarRows

_NAME = re.compile(r"far:(\d+)")
# Up to here the farthest two nodes are looked for; beyond, twice the reach of one node bounds them.
_SEARCHED_NODES = 10_000


class FarLaw(DestinationLaw):
    """Everybody at distance ``far`` or more is as likely; kept as who is nearer, so that any size of graph will do."""

    _rows: FarRows

    def __init__(self, graph: Graph, far: int, *, name: str = "") -> None:
        """Make the law for ``graph``; refused where somebody has nobody that far."""
        if far < 2:
            raise InvalidParameterError("far", far, "2 or more: a neighbour that opens knows the source")
        rows = FarRows.on(graph, far)
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "support", DistanceSupport(far, max(_farthest(graph), far)))
        object.__setattr__(self, "graph_digest", graph.digest)
        object.__setattr__(self, "name", name or f"far:{far}")

    def named(self, name: str) -> FarLaw:
        """Return the same law called ``name``."""
        other = object.__new__(FarLaw)
        other.__dict__.update(self.__dict__, name=name)
        return other

    @property
    def draws(self) -> FarRows:
        """The law as the protocol takes it: who is too near."""
        return self._rows

    @property
    def choices(self) -> IntArray:
        """How many each node may choose from."""
        return self._rows.eligible

    @property
    def is_even(self) -> bool:
        """Whether each node chooses evenly among those it may choose: it does."""
        return True

    @cached_property
    def source_prior(self) -> FloatArray:
        """How often each node is the source of what is sealed for one: who may draw whom is the same both ways.

        So the update chain is reversible, and each is the source as often as it has choices. Where each may choose more
        than half of all, updates travel between all nodes; else that is looked into.
        """
        eligible = self._rows.eligible
        if 2 * int(eligible.min()) <= self._rows.n_nodes:
            return super().source_prior
        return frozen(normalised(eligible.astype(np.float64)))

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """The law as a table of all pairs."""
        rows, n_nodes = self._rows, self._rows.n_nodes
        entries = int(rows.eligible.sum())
        if 20 * entries > DEFAULT_MEMORY_BYTES:
            raise ResourceLimitError(f"the law {self.name} as a table would have {entries} entries: too many")
        allowed = np.ones((n_nodes, n_nodes), dtype=np.bool_)
        allowed[np.repeat(np.arange(n_nodes), np.diff(rows.starts)), rows.near] = False
        table = sparse.csr_array(allowed.astype(np.float64))
        table.data /= np.repeat(rows.eligible, np.diff(table.indptr))
        return table


def far_of(name: str) -> int | None:
    """Return R where ``name`` is ``far:R``, None where it is another law's."""
    found = _NAME.fullmatch(name)
    if found is None and name.split(":", maxsplit=1)[0] == "far":
        raise InvalidParameterError("law", name, "far:R, such as far:4: everybody at distance R or more")
    return int(found[1]) if found else None


def _farthest(graph: Graph) -> int:
    if graph.n_nodes > _SEARCHED_NODES:
        return 2 * int(distances(graph, np.array([0])).max())
    return max(int(apart.max()) for _, apart in iter_distances(graph))
