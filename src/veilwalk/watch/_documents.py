"""What a page is told: small documents of plain data, the same live, in a replay and in a file that stands alone.

A document is a mapping with a ``kind``. A page that has got all of them in order knows all there is. One that says the
state of something (``about``, ``points``, ``state``, ``result``, ``table``, ``status``) replaces the one before.

================  ==================================================================================================
``about``         What is looked at, in words; what the page must say besides; how many nodes
``network``       Places of the nodes, from 0 to 1000, edges as a flat list of pairs, labels where there are any
``deliveries``    Columns of updates in the order in which they happened, with the last hops of each leg
``points``        Evaluations of one algorithm
``state``         How far each algorithm is, and whether all is done
``posterior``     What an observer says of one delivery
``price``         Predicted hops of an update
``result``        Means over the whole run, once it has ended
``event``         Something that happened: kill, lost walk, fork, merge, end
``table``         Finished cases of a sweep
``status``        A real node's own state
================  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from veilwalk.graphs import Graph
from veilwalk.watch._layout import layout

Document = Mapping[str, Any]

#: Nodes beyond which no map is drawn.
MOST_NODES = 5_000
MAP = (
    "A map of where the token is, is the very observer that the scheme gives no protection against. Only a simulation, "
    "and a cluster on your own machine, has one; nothing in a real network draws it, and no node could."
)


class Source(Protocol):
    """Where documents come from."""

    @property
    def finished(self) -> bool:
        """Whether nothing more will come of :meth:`look`."""
        ...

    @property
    def ready(self) -> bool:
        """Whether there is something to study."""
        ...

    def look(self) -> Iterable[Document]:
        """Return what is new since the last look."""
        ...

    def study(self) -> Iterable[Document]:
        """Return what takes long to find out; asked once, when it is ready."""
        ...


def network(graph: Graph, labels: Iterable[str] | None = None) -> Document:
    """Return the map of a network; of too large a one only that it is."""
    names = graph.labels if labels is None else tuple(labels)
    about = {"kind": "network", "nodes": graph.n_nodes, "labels": None if names is None else list(names)}
    if graph.n_nodes > MOST_NODES:
        return about | {"x": [], "y": [], "edges": []}
    places = layout(graph)
    return about | {"x": places[:, 0].tolist(), "y": places[:, 1].tolist(), "edges": graph.edges().ravel().tolist()}
