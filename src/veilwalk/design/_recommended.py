"""For how many to seal, how far away and by which walk: the least bytes that keep so much of the node entropy.

The floor is a share of log(N - 1), the node entropy of a source that may be anybody else: not of the log of those
eligible, which a law could lower by choosing from fewer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._files import choose_scheme
from veilwalk.design._hidden import QUICK, Hidden, what_is_hidden
from veilwalk.design._law import FarLaw
from veilwalk.design._registry import default_support
from veilwalk.design._scheme import Scheme
from veilwalk.design._several import Sealing
from veilwalk.graphs import Graph

#: The share of the node entropy that is kept unless another is named.
KEEP = 0.97
_STRAIGHT = Walk("non-backtracking")
_FARS = (2, 3, 4, 5)
_MOST_RECIPIENTS = 1_024
# Nobody chooses to walk so far for an update; to measure it would take minutes.
_LONGEST_LEG = 8_192
# Once so much below the floor, more recipients are not looked at.
_HOPELESS = 0.1
# Where nothing keeps the floor, what keeps nearly as much as the best is as good, and may be cheaper.
_NEARLY = 0.005
# Of what costs hardly more than the cheapest, the one is taken whose opener guesses worst.
_HARDLY_MORE = 1.1
# About how many new nodes a message should meet before it is opened, as a first guess.
_NEW_NODES = 16
_NEARLY_TWICE = 1.7


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """One choice: a scheme, and what it leaves hidden."""

    scheme: Scheme
    hidden: Hidden
    sealing: Sealing

    @property
    def bytes_per_update(self) -> float:
        """Mean hops times the length of a message."""
        return self.hidden.price.hops * self.sealing.message_bytes(self.scheme.recipients)

    @property
    def kept(self) -> float:
        """Node entropy left to an opener with its last hop, as a share of the log of all other nodes."""
        return self.hidden.last_hop_nats.mean / _all_others(self.scheme.graph)

    @property
    def kept_at_least(self) -> float:
        """The lower end of its interval."""
        return self.hidden.last_hop_nats.low / _all_others(self.scheme.graph)


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """What was looked at, and which of it is best.

    Attributes:
        keep: The floor: a share of the log of all other nodes.
        points: Every choice that was looked at.
    """

    keep: float
    points: tuple[Point, ...]

    @property
    def is_kept(self) -> bool:
        """Whether any choice keeps the floor."""
        return any(point.kept_at_least >= self.keep for point in self.points)

    @property
    def best(self) -> Point:
        """The cheapest that keeps the floor, surely; where none does, of the nearest.

        Of those that cost up to a tenth more, the one whose opener's best guess is right least often.
        """
        kept = [point for point in self.points if point.kept_at_least >= self.keep]
        if not kept:
            most = max(point.kept for point in self.points)
            kept = [point for point in self.points if point.kept >= most - _NEARLY]
        least = min(point.bytes_per_update for point in kept)
        cheap = [point for point in kept if point.bytes_per_update <= _HARDLY_MORE * least]
        return min(cheap, key=lambda point: (point.hidden.top_posterior or (0.0, 0.0))[1])

    def record(self) -> Record:
        """Return all points, and which is best, as plain data."""
        graph, sealing = self.best.scheme.graph, self.best.sealing
        rows = [_row(point) | {"keeps": point.kept_at_least >= self.keep} for point in self.points]
        return Record(
            kind="recipients-frontier",
            params={"graph": graph.name, "nodes": graph.n_nodes, "graph_digest": graph.digest, "keep": self.keep}
            | {"model_bytes": sealing.model_bytes, "suite": sealing.suite},
            seed=1,
            result={"rows": rows, "kept": self.is_kept, "best": _row(self.best)},
        )


def recipients_frontier(
    graph: Graph,
    *,
    keep: float = KEEP,
    walks: Sequence[Walk] | None = None,
    sealing: Sealing | None = None,
    progress: Progress = silent,
) -> Frontier:
    """Look at every number of recipients, distance and walk, and say which is best.

    Numbers of recipients are powers of two; those under which nothing would be kept, or a leg would take thousands of
    hops, are left out.
    """
    search = _Search(graph, keep, sealing or Sealing())
    kinds = search.walks if walks is None else walks
    for walk in kinds:
        for law in search.laws:
            for count in search.counts(law):
                progress(f"{walk}, {law.name}: sealed for {count}")
                point = search.at(law, walk, count)
                if point.kept < keep - _HOPELESS:
                    break
    return search.found()


def recommended_scheme(graph: Graph, *, keep: float = KEEP, sealing: Sealing | None = None) -> Scheme:
    """Return what to use on ``graph`` when nothing is said: the least bytes that keep so much of the node entropy.

    Looks at few points of :func:`recipients_frontier`, as bytes and entropy vary smoothly; always finds the same. Where
    nothing keeps the floor it returns the nearest, and where there is nobody two hops away it refuses.

    Raises:
        GraphError: some node is next to all others.
    """
    search = _Search(graph, keep, sealing or Sealing())
    if not search.laws:
        return choose_scheme(graph)
    walk = search.walks[-1]
    for law in search.by_promise():
        counts = search.counts(law)
        first = search.found().best.scheme.recipients if search.points else int(law.choices.mean()) // _NEW_NODES
        _climb(search, law, walk, counts, max(bisect_right(counts, first) - 1, 0))
    return search.found().best.scheme


def _climb(search: _Search, law: FarLaw, walk: Walk, counts: Sequence[int], place: int) -> None:
    """Look at more recipients while the floor is kept, or at fewer until it is; then at fewer while that is cheaper."""
    begun = bool(search.points)
    if search.keeps(law, walk, counts[place]):
        while place + 1 < len(counts) and search.keeps(law, walk, counts[place + 1]):
            place += 1
    elif begun and search.found().is_kept:
        # As many were kept by another law already: with fewer this one would have to be far cheaper, and is not.
        return
    else:
        while place > 0 and not search.keeps(law, walk, counts[place]):
            place -= 1
    # Half as many take nearly twice the hops: that is cheaper only where slots are most of a message.
    length = search.sealing.message_bytes
    while place > 0 and _NEARLY_TWICE * length(counts[place - 1]) < length(counts[place]):
        place -= 1
        search.at(law, walk, counts[place])


class _Search:
    """The choices that a graph allows, and the points that were looked at."""

    def __init__(self, graph: Graph, keep: float, sealing: Sealing) -> None:
        validate.finite(keep=keep)
        if not 0.0 < keep <= 1.0:
            raise InvalidParameterError("keep", keep, "a share of the node entropy, above 0 and at most 1")
        default_support(graph)
        self.graph, self.keep, self.sealing = graph, keep, sealing
        self.points: dict[tuple[int, str, int], Point] = {}
        # Where nobody has a third neighbour, a walk that never turns goes round, or to the end and back.
        self.walks = (SIMPLE,) if graph.degrees.max() < 3 else (SIMPLE, _STRAIGHT)
        self.laws = tuple(_laws(graph))

    def by_promise(self) -> list[FarLaw]:
        """Return the laws, those first that are likeliest to be best: four hops, or as far as the graph allows."""
        return sorted(self.laws, key=lambda law: (abs(law.support.lo - 4), law.support.lo))

    def counts(self, law: FarLaw) -> list[int]:
        """Return numbers of recipients: powers of two that every row allows, and that do not take for ever."""
        most = min(int(law.choices.min()), _MOST_RECIPIENTS)
        allowed = [2**power for power in range(most.bit_length()) if 2**power <= most]
        return [count for count in allowed if float(law.choices.mean()) / count <= _LONGEST_LEG] or allowed[-1:]

    def at(self, law: FarLaw, walk: Walk, count: int) -> Point:
        """Look at one choice, once."""
        key = (law.support.lo, str(walk), count)
        if key not in self.points:
            scheme = Scheme(self.graph, law, walk, recipients=count, designed_for=walk)
            self.points[key] = Point(scheme=scheme, hidden=what_is_hidden(scheme, effort=QUICK), sealing=self.sealing)
        return self.points[key]

    def keeps(self, law: FarLaw, walk: Walk, count: int) -> bool:
        """Return whether that choice keeps the floor, surely."""
        return self.at(law, walk, count).kept_at_least >= self.keep

    def found(self) -> Frontier:
        """Return what was looked at."""
        return Frontier(keep=self.keep, points=tuple(self.points.values()))


def _laws(graph: Graph) -> Iterator[FarLaw]:
    for far in _FARS:
        try:
            law = FarLaw(graph, far)
        except InvalidParameterError:
            return
        # A hub that may choose from few only would walk long for them, and hide among few.
        if far > 2 and 2 * int(law.choices.min()) < graph.n_nodes:
            return
        yield law


def _all_others(graph: Graph) -> float:
    return math.log(max(graph.n_nodes - 1, 2))


def _row(point: Point) -> dict[str, Any]:
    scheme, hidden = point.scheme, point.hidden
    return {
        "walk": str(scheme.walk),
        "law": scheme.law.name,
        "recipients": scheme.recipients,
        "mean_iteration_hops": hidden.price.hops,
        "mean_iteration_hops_interval": hidden.price.interval,
        "bytes_per_update": point.bytes_per_update,
        "node_entropy_nats": hidden.last_hop_nats.mean,
        "node_entropy_interval": hidden.last_hop_nats.interval,
        "node_entropy_kind": hidden.kind,
        "node_entropy_kept": point.kept,
        "top_posterior": hidden.top_posterior,
    }
