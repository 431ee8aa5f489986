"""Two lists of the same nodes, matched by what their owner calls them."""

from __future__ import annotations

from collections.abc import Sequence

from veilwalk.core.errors import InvalidParameterError


def places_by_label(own: Sequence[str] | None, wanted: Sequence[str] | None, n_nodes: int) -> list[int] | None:
    """Return where each of ``wanted`` stands in ``own``; None where position decides.

    Without labels a node is called by its number. Position decides between nodes that have labels and nodes that have
    only numbers, for there is nothing else; two lists of different labels are of different networks.
    """
    numbers = tuple(map(str, range(n_nodes)))
    here, there = (numbers if labels is None else tuple(labels) for labels in (own, wanted))
    if here == there:
        return None
    if set(here) == set(there):
        place = {label: index for index, label in enumerate(here)}
        return [place[label] for label in there]
    if own is None or wanted is None:
        return None
    stranger = min(set(there) - set(here))[:60]
    raise InvalidParameterError(
        "graph", f"a node called {stranger}", "the one the law was designed for, which has none"
    )
