"""A design that seals for several: what it costs and leaves hidden, and how many recipients to choose.

The choice is the least bytes that keep a floor of the node entropy. The floor is a share of log(N - 1), the node
entropy of a source that may be anybody else: not of the log of those eligible, which a law could lower by choosing from
fewer.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import MessageGeometry, SuiteName
from veilwalk.core.progress import Progress, show_progress, silent
from veilwalk.core.records import Record
from veilwalk.core.stats import Estimate
from veilwalk.core.support import DistanceSupport
from veilwalk.core.tables import html_table
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._files import choose_scheme
from veilwalk.design._hidden import (
    QUICK,
    FirstSight,
    Hidden,
    Predecessor,
    first_sights,
    predecessor_guess,
    what_is_hidden,
)
from veilwalk.design._law import DestinationLaw, far_law
from veilwalk.design._registry import default_support
from veilwalk.design._scheme import Scheme, require_destinations
from veilwalk.graphs import Graph, parse_graph_spec

#: Bytes of the model that prices are told for, unless another is named: softmax regression on MNIST, in float32.
MODEL_BYTES = 31_400
_SUITES: tuple[SuiteName, ...] = ("hybrid", "x25519")
#: The share of the node entropy that is kept unless another is named.
KEEP = 0.97
_STRAIGHT = Walk("non-backtracking")
_FARS = (2, 3, 4, 5)
# The first of them, from which a law is taken where none is named.
_USUAL_FARS = 3
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


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """What is sealed, and how: what a hop costs in bytes follows."""

    model_bytes: int = MODEL_BYTES
    suite: SuiteName = "hybrid"

    def __post_init__(self) -> None:
        validate.integer(model_bytes=self.model_bytes)
        validate.at_least(1, model_bytes=self.model_bytes)
        if self.suite not in _SUITES:
            raise InvalidParameterError("suite", self.suite, "hybrid or x25519")

    def message_bytes(self, recipients: int) -> int:
        """Return the length of a message that is sealed for so many."""
        return MessageGeometry.for_body(self.model_bytes, suite=self.suite, recipients=recipients).message_bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """A scheme that seals for several, and what the opener can tell of the source.

    Attributes:
        scheme: Graph, law, walk and number of recipients.
        sealing: What a message carries.
        hidden: What who opens can tell of the source.
    """

    scheme: Scheme
    sealing: Sealing
    hidden: Hidden

    @property
    def bytes_per_update(self) -> float:
        """Mean hops times the length of a message."""
        return self.hidden.price.hops * self.sealing.message_bytes(self.scheme.recipients)

    @property
    def kept(self) -> float:
        """Node entropy left to an opener with its last hop, as a share of the log of all other nodes."""
        return self.hidden.last_hop_nats.mean / self._all_others

    @property
    def kept_at_least(self) -> float:
        """The lower end of its interval."""
        return self.hidden.last_hop_nats.low / self._all_others

    @property
    def _all_others(self) -> float:
        return math.log(max(self.scheme.graph.n_nodes - 1, 2))

    def figures(self) -> dict[str, Any]:
        """Return the scheme, its price and the opener's node entropy as plain data."""
        scheme, hidden = self.scheme, self.hidden
        return {
            "walk": str(scheme.walk),
            "law": scheme.law.name,
            "recipients": scheme.recipients,
            "mean_iteration_hops": hidden.price.hops,
            "mean_iteration_hops_interval": hidden.price.interval,
            "bytes_per_update": self.bytes_per_update,
            "node_entropy_nats": hidden.last_hop_nats.mean,
            "node_entropy_interval": hidden.last_hop_nats.interval,
            "node_entropy_kind": hidden.kind,
            "node_entropy_kept": self.kept,
            "top_posterior": hidden.top_posterior,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Several(Point):
    """A point with what the source and colluders can tell besides.

    Attributes:
        predecessor: What the source can tell of who will open; None where its walk cannot be started at will.
        colluders: How often colluders name the source at first sight, a row a share of colluders.
    """

    predecessor: Predecessor | None
    colluders: tuple[FirstSight, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data under its stable JSON keys."""
        scheme, hidden, law = self.scheme, self.hidden, self.scheme.law
        content = self.figures() | {
            "n_nodes": scheme.graph.n_nodes,
            "graph_digest": law.graph_digest,
            "eligible": [int(law.n_choices.min()), int(law.n_choices.max())],
            "mean_iteration_hops_kind": hidden.price.kind,
            "model_bytes": self.sealing.model_bytes,
            "suite": self.sealing.suite,
            "message_bytes": self.sealing.message_bytes(scheme.recipients),
            "update_range": hidden.update_range,
            "certain_to_a_relay": scheme.certain_to_a_relay(),
        }
        if hidden.opener_nats is not None:
            content["opener_node_entropy_nats"] = hidden.opener_nats.mean
            content["opener_node_entropy_interval"] = hidden.opener_nats.interval
            content["top_posterior_worst_percent"] = hidden.worst_percent
            content["top_posterior_worst_arc"] = hidden.worst_arc
        if self.predecessor is not None:
            content["predecessor"] = {
                "knows_set": _mean(self.predecessor.knows_set),
                "knows_first_hop": _mean(self.predecessor.knows_first_hop),
                "kind": self.predecessor.kind,
            }
        content["colluders_first_sight"] = [
            {"share": one.share, "named": _mean(one.named), "times_floor": one.times_floor} for one in self.colluders
        ]
        return content if scheme.graph.labels is None else content | {"labels": list(scheme.graph.labels)}

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        scheme = self.scheme
        params = {"graph": scheme.graph.name, "law": scheme.law.name, "walk": str(scheme.walk)}
        return Record(kind="design", params=params | {"recipients": scheme.recipients}, seed=1, result=self.to_dict())

    def _repr_html_(self) -> str:
        hidden = self.hidden
        shown = {
            "law": self.scheme.law.name,
            "walk": str(self.scheme.walk),
            "recipients": str(self.scheme.recipients),
            "hops per update": f"{hidden.price.hops:.1f} ({hidden.price.kind})",
            "node entropy, nats": f"{hidden.last_hop_nats.mean:.4f} ({hidden.kind})",
        }
        return html_table([{"": name, "value": value} for name, value in shown.items()])


def design_several(
    graph: Graph | str,
    law: str | DestinationLaw | None = None,
    *,
    recipients: int | None = None,
    walk: Walk | str | None = None,
    support: DistanceSupport | tuple[int, int] | str | None = None,
    sealing: Sealing | None = None,
) -> Several:
    """Say what a scheme that seals for several costs and leaves hidden; sampled, with a fixed seed.

    Args:
        graph: any connected graph, or its spec.
        law: a law, its name or its file; by default the farthest of far:2, far:3 and far:4 that fits the graph.
        recipients: for how many a source seals; by default as the file says, or one.
        walk: how ciphertexts walk; by default as the file says, or the simple walk.
        support: distances of a law given by name that takes any.
        sealing: what is sealed, for prices in bytes.

    Example:
        >>> from veilwalk.graphs import random_regular
        >>> found = design_several(random_regular(30, 3, seed=1), "far:3", recipients=2, walk="non-backtracking")
        >>> round(found.hidden.price.hops), found.scheme.recipients
        (18, 2)
    """
    graph = parse_graph_spec(graph)
    law = _usual_law(graph, 1 if recipients is None else recipients) if law is None else law
    scheme = require_destinations(choose_scheme(graph, law, support=support, walk=walk, recipients=recipients))
    return look_at(scheme, sealing or Sealing())


def look_at(scheme: Scheme, sealing: Sealing) -> Several:
    """Return all that is known about ``scheme``."""
    hidden = what_is_hidden(scheme)
    hops = hidden.price.hops
    return Several(
        scheme=scheme,
        sealing=sealing,
        hidden=hidden,
        predecessor=predecessor_guess(scheme, hops=hops),
        colluders=first_sights(scheme, hops=hops),
    )


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
        rows = [point.figures() | {"keeps": point.kept_at_least >= self.keep} for point in self.points]
        return Record(
            kind="recipients-frontier",
            params={"graph": graph.name, "nodes": graph.n_nodes, "graph_digest": graph.digest, "keep": self.keep}
            | {"model_bytes": sealing.model_bytes, "suite": sealing.suite},
            seed=1,
            result={"rows": rows, "kept": self.is_kept, "best": self.best.figures()},
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
    search = _Search(graph, keep, sealing or Sealing(), progress)
    kinds = search.walks if walks is None else walks
    for walk in kinds:
        for law in search.laws:
            for count in search.counts(law):
                point = search.at(law, walk, count)
                if point.kept < keep - _HOPELESS:
                    break
    return search.found()


def recommended_scheme(
    graph: Graph | str, *, keep: float = KEEP, sealing: Sealing | None = None, progress: Progress | bool = False
) -> Scheme:
    """Return what to use on ``graph`` when nothing is said: the least bytes that keep so much of the node entropy.

    Looks at few points of :func:`recipients_frontier`, as bytes and entropy vary smoothly; always finds the same. Where
    nothing keeps the floor it returns the nearest, and where there is nobody two hops away it refuses.

    Raises:
        GraphError: some node is next to all others.
    """
    graph = parse_graph_spec(graph)
    with show_progress(progress=progress) as listener:
        search = _Search(graph, keep, sealing or Sealing(), listener)
        if not search.laws:
            return choose_scheme(graph)
        walk = search.walks[-1]
        for law in search.by_promise():
            counts = search.counts(law)
            first = search.found().best.scheme.recipients if search.points else int(law.n_choices.mean()) // _NEW_NODES
            _climb(search, law, walk, counts, max(bisect_right(counts, first) - 1, 0))
        return search.found().best.scheme


def _climb(search: _Search, law: DestinationLaw, walk: Walk, counts: Sequence[int], place: int) -> None:
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

    def __init__(self, graph: Graph, keep: float, sealing: Sealing, progress: Progress) -> None:
        validate.finite(keep=keep)
        if not 0.0 < keep <= 1.0:
            raise InvalidParameterError("keep", keep, "a share of the node entropy, above 0 and at most 1")
        validate.instance(Sealing, "a Sealing", sealing=sealing)
        default_support(graph)
        self.graph, self.keep, self.sealing, self.progress = graph, keep, sealing, progress
        self.points: dict[tuple[int, str, int], Point] = {}
        # Where nobody has a third neighbour, a walk that never turns goes round, or to the end and back.
        self.walks = (SIMPLE,) if graph.degrees.max() < 3 else (SIMPLE, _STRAIGHT)
        self.laws = tuple(_laws(graph))

    def by_promise(self) -> list[DestinationLaw]:
        """Return the laws, those first that are likeliest to be best: four hops, or as far as the graph allows."""
        return sorted(self.laws, key=lambda law: (abs(law.support.lo - 4), law.support.lo))

    def counts(self, law: DestinationLaw) -> list[int]:
        """Return numbers of recipients: powers of two that every row allows, and that do not take for ever."""
        most = min(int(law.n_choices.min()), _MOST_RECIPIENTS)
        allowed = [2**power for power in range(most.bit_length()) if 2**power <= most]
        return [count for count in allowed if float(law.n_choices.mean()) / count <= _LONGEST_LEG] or allowed[-1:]

    def at(self, law: DestinationLaw, walk: Walk, count: int) -> Point:
        """Look at one choice, once."""
        key = (law.support.lo, str(walk), count)
        if key not in self.points:
            self.progress(f"{walk}, {law.name}: sealed for {count}")
            scheme = Scheme(self.graph, law, walk, recipients=count, designed_for=walk)
            self.points[key] = Point(scheme=scheme, hidden=what_is_hidden(scheme, effort=QUICK), sealing=self.sealing)
        return self.points[key]

    def keeps(self, law: DestinationLaw, walk: Walk, count: int) -> bool:
        """Return whether that choice keeps the floor, surely."""
        return self.at(law, walk, count).kept_at_least >= self.keep

    def found(self) -> Frontier:
        """Return what was looked at."""
        return Frontier(keep=self.keep, points=tuple(self.points.values()))


def _usual_law(graph: Graph, recipients: int) -> str:
    """Return the farthest law, far:4 at most, under which every node may choose so many; far:2 where none is."""
    validate.integer(recipients=recipients)
    validate.at_least(1, recipients=recipients)
    default_support(graph)
    laws = [law for law in islice(_laws(graph), _USUAL_FARS) if int(law.n_choices.min()) >= recipients]
    return laws[-1].name if laws else "far:2"


def _laws(graph: Graph) -> Iterator[DestinationLaw]:
    for far in _FARS:
        try:
            law = far_law(graph, far)
        except InvalidParameterError:
            return
        # A hub that may choose from few only would walk long for them, and hide among few.
        if far > 2 and 2 * int(law.n_choices.min()) < graph.n_nodes:
            return
        yield law


def _mean(one: Estimate) -> dict[str, Any]:
    return {"mean": one.mean, "interval": one.interval}
