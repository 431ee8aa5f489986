"""Recommends a scheme: the number of recipients, the law and the walk with the least bytes above a floor of entropy.

The floor is a share of log(N - 1), the node entropy of a source that may be any other node. A share of the log of the
eligible nodes would favour laws that choose from few.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, show_progress
from veilwalk.core.records import Record
from veilwalk.core.sizes import FEW_NODES
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._design import Design, Sealing, evaluate_scheme
from veilwalk.design._files import choose_scheme
from veilwalk.design._law import DestinationLaw
from veilwalk.design._openings import QUICK, TENTH, estimate_coalition
from veilwalk.design._overlay import CoalitionLimits, expose_overlay, exposed_share
from veilwalk.design._registry import default_support, iter_far_laws
from veilwalk.design._scheme import Scheme
from veilwalk.graphs import Graph, complete, parse_graph_spec, random_regular

_NONBACKTRACKING = Walk("non-backtracking")
_MOST_RECIPIENTS = 1_024
# A longer mean leg is of no use, and takes minutes to measure.
_LONGEST_LEG = 8_192
# So far below the floor, more recipients are not evaluated.
_HOPELESS = 0.1
# Where no candidate meets the floor, candidates this near to the largest share count as equal.
_NEARLY = 0.005
# Of candidates up to this much dearer than the cheapest, the one with the least hit ratio is chosen.
_HARDLY_MORE = 1.1
# About the number of new nodes that a message should meet before it is opened, as a first guess.
_NEW_NODES = 16
_NEARLY_TWICE = 1.7
# Fewest members of a network whose graph is free; of fewer than six all are linked.
_FEWEST_MEMBERS, _FEWEST_REGULAR = 3, 6
# On an overlay, the fewest hops between two updates, about: with fewer the maker is next to whom opens.
_FEWEST_HOPS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Recommendation:
    """The recommended scheme as a ``design``, the ``floor`` of the search, and all evaluated ``candidates``.

    ``most_read`` is the most that members who share keys were to read, on an overlay.
    """

    design: Design
    floor: float
    candidates: tuple[Design, ...]
    most_read: float = 1.0

    @property
    def scheme(self) -> Scheme:
        """The recommended scheme."""
        return self.design.scheme

    @property
    def meets_floor(self) -> bool:
        """Whether the recommended scheme meets the floor; else it is the nearest."""
        return self.design.least_entropy_share >= self.floor

    @property
    def meets_read_limit(self) -> bool:
        """Whether members who share keys read no more than they should; else no candidate meets the limit."""
        return reads_at_most(self.design, self.most_read)

    def __repr__(self) -> str:
        return f"Recommendation({self.scheme!r}, {self.design.price.hops:.1f} hops per update)"

    def record(self) -> Record:
        """Return all candidates and the recommended one as plain data."""
        graph, sealing = self.scheme.graph, self.design.sealing
        rows = [
            candidate.summary()
            | {"graph": candidate.scheme.graph.name, "meets_floor": candidate.least_entropy_share >= self.floor}
            for candidate in self.candidates
        ]
        return Record(
            kind="recipients-frontier",
            params={"graph": graph.name, "nodes": graph.n_nodes, "graph_digest": graph.digest, "keep": self.floor}
            | {"model_bytes": sealing.model_bytes, "suite": sealing.suite},
            seed=1,
            result={
                "rows": rows,
                "meets_floor": self.meets_floor,
                "most_read": self.most_read,
                "meets_read_limit": self.meets_read_limit,
                "best": self.design.summary() | {"graph": graph.name},
            },
        )


def recommend(
    graph: Graph | str | None = None,
    *,
    members: int | None = None,
    keep: float = 0.97,
    walks: Sequence[Walk | str] | None = None,
    sealing: Sealing | None = None,
    exhaustive: bool = False,
    limits: CoalitionLimits | None = None,
    progress: Progress | bool = False,
) -> Recommendation:
    """Recommend a scheme: the least bytes whose node entropy keeps the floor; the result is always the same.

    Bytes and entropy vary smoothly, so the search evaluates few candidates. ``exhaustive`` evaluates all of them: it
    adds candidates to the result and does not change the recommended scheme. Where no candidate meets the floor, the
    nearest is recommended.

    Args:
        graph: any connected graph, or its spec.
        members: instead, the number of members of a network whose graph is free: a random regular graph of
            degree 3, or 4 where it is odd; for up to 20 members also the complete graph, whichever is better.
        keep: the floor, a share of log(N - 1).
        walks: walks to choose from; by default non-backtracking, since a simple walk shows makers to relays; simple on
            a ring.
        sealing: size and suite of a message.
        exhaustive: evaluate all numbers of recipients, powers of two, under all laws, and also the simple walk.
        limits: on an overlay, what a coalition may name and read at most.
        progress: True for a display on standard error, or a function that receives stage, done and total.

    Example:
        >>> from veilwalk.graphs import random_regular
        >>> recommend(random_regular(60, 3, seed=1), keep=0.9).scheme.law.name
        'far:2'
    """
    if (graph is None) == (members is None):
        raise InvalidParameterError("members", members, "given where there is no graph, and left out with one")
    if members is not None:
        validate.integer(_FEWEST_MEMBERS, members=members)
        # Three links each take an even number of members.
        graphs = [random_regular(members, 4 if members % 2 else 3, seed=0)] if members >= _FEWEST_REGULAR else []
        graphs += [complete(members)] if members <= FEW_NODES else []
    else:
        graphs = [parse_graph_spec(graph or "")]
    quick: list[Design] = []
    candidates: list[Design] = []
    with show_progress(progress=progress) as listener:
        if graphs[0].is_overlay:
            limits = limits or CoalitionLimits()
            designs = _evaluate_overlay(graphs[0], keep, sealing or Sealing(), limits, listener)
            best = _choose_on_overlay(designs, keep, limits)
            return Recommendation(design=best, floor=keep, candidates=tuple(designs), most_read=limits.most_read)
        for network in graphs:
            search = _Search(network, keep, sealing or Sealing(), listener)
            kinds = search.walks[-1:] if walks is None else tuple(Walk.parse(walk) for walk in walks)
            search.climb_laws(kinds)
            quick += search.candidates.values()
            if exhaustive:
                search.evaluate_all(search.walks if walks is None else kinds)
            candidates += search.sorted_candidates()
    return Recommendation(design=choose_candidate(quick, keep), floor=keep, candidates=tuple(candidates))


def _evaluate_overlay(
    graph: Graph, keep: float, sealing: Sealing, limits: CoalitionLimits, progress: Progress
) -> list[Design]:
    """Evaluate all numbers of recipients, powers of two, on an overlay: nothing else is to be chosen."""
    search, designs = _Search(graph, keep, sealing, progress), []
    counts = [count for count in search.list_counts(search.laws[0]) if count <= graph.n_nodes / _FEWEST_HOPS]
    for done, count in enumerate(counts or [1]):
        progress("candidates", done, len(counts), f"{count} recipients")
        design = evaluate_scheme(choose_scheme(graph, recipients=count), colluders=None, sealing=sealing)
        exposure = expose_overlay(design.scheme, (limits.colluding,))
        placed, _, read = estimate_coalition(design.scheme, limits.colluding, hops=design.price.hops)
        designs.append(replace(design, exposure=replace(exposure, read_by_colluders={placed: read})))
    return designs


def _choose_on_overlay(designs: Sequence[Design], keep: float, limits: CoalitionLimits) -> Design:
    """Return the design with the least bytes that keeps the floor and both limits; refuse a degree that cannot."""
    graph, colluding = designs[0].scheme.graph, limits.colluding
    share = exposed_share(colluding, int(graph.degrees.max()))
    if share > limits.most_named:
        need = f"{share:.3f} or more: of so many members one is among the {graph.degrees.max()} neighbours that often"
        raise InvalidParameterError("most_named", limits.most_named, need)
    keeping = [design for design in designs if design.least_entropy_share >= keep] or list(designs)
    quiet = [design for design in keeping if reads_at_most(design, limits.most_read)]
    return min(quiet or keeping, key=lambda design: design.bytes_per_update)


def reads_at_most(design: Design, limit: float) -> bool:
    """Return whether members who share keys read at most that share of honest updates."""
    return all(read.mean <= limit for read in design.exposure.read_by_colluders.values())


def choose_candidate(candidates: Sequence[Design], keep: float) -> Design:
    """Return the cheapest candidate that meets the floor for certain; where none does, the cheapest of the nearest.

    Of candidates that cost up to a tenth more, the one with the least hit ratio is taken.
    """
    # A bound says nothing about an estimate: bounds count only where there is nothing else.
    candidates = [candidate for candidate in candidates if not candidate.exposure.is_bound] or candidates
    eligible = [candidate for candidate in candidates if candidate.least_entropy_share >= keep]
    if not eligible:
        most = max(candidate.entropy_share for candidate in candidates)
        eligible = [candidate for candidate in candidates if candidate.entropy_share >= most - _NEARLY]
    least = min(candidate.bytes_per_update for candidate in eligible)
    cheap = [candidate for candidate in eligible if candidate.bytes_per_update <= _HARDLY_MORE * least]
    return min(cheap, key=lambda candidate: hit_ratio.high if (hit_ratio := candidate.exposure.hit_ratio) else 0.0)


class _Search:
    """The choices that a graph allows, and the candidates that were evaluated."""

    def __init__(self, graph: Graph, keep: float, sealing: Sealing, progress: Progress) -> None:
        validate.finite(keep=keep)
        if not 0.0 < keep <= 1.0:
            raise InvalidParameterError("keep", keep, "a share of the node entropy, above 0 and at most 1")
        validate.instance(Sealing, "a Sealing", sealing=sealing)
        default_support(graph)
        self.graph, self.keep, self.sealing, self.progress = graph, keep, sealing.settle(graph), progress
        self.candidates: dict[tuple[str, int, int], Design] = {}
        # On a ring a walk that never turns goes round for ever.
        self.walks = (SIMPLE,) if graph.degrees.min() == graph.degrees.max() == 2 else (SIMPLE, _NONBACKTRACKING)
        self.laws = tuple(iter_far_laws(graph)) or (choose_scheme(graph).law,)
        self._expected, self._began = 0, time.monotonic()

    def list_counts(self, law: DestinationLaw) -> list[int]:
        """Return numbers of recipients: powers of two that every row allows, without endless legs."""
        most = min(int(law.n_choices.min()), _MOST_RECIPIENTS)
        allowed = [2**power for power in range(most.bit_length()) if 2**power <= most]
        walk = self.walks[-1]
        allowed = [count for count in allowed if not Scheme(self.graph, law, walk, recipients=count).idle_nodes.size]
        return [count for count in allowed if float(law.n_choices.mean()) / count <= _LONGEST_LEG] or allowed[-1:]

    def evaluate(self, law: DestinationLaw, walk: Walk, count: int) -> Design:
        """Evaluate a choice, once."""
        key = (str(walk), law.support.lo, count)
        if key not in self.candidates:
            self._report(f"{walk}, {law.name}, {count} recipients")
            scheme = Scheme(self.graph, law, walk, recipients=count, designed_for=walk)
            design = evaluate_scheme(scheme, effort=QUICK, colluders=None, sealing=self.sealing)
            placed, _, read = estimate_coalition(scheme, TENTH, hops=design.price.hops, effort=QUICK)
            exposure = replace(design.exposure, read_by_colluders={placed: read})
            self.candidates[key] = replace(design, exposure=exposure)
        return self.candidates[key]

    def _report(self, choice: str) -> None:
        """Report the candidates that are done and that remain, and about how long they take."""
        done = len(self.candidates)
        total = max(self._expected, done + 1)
        left_s = (time.monotonic() - self._began) * (total - done) / max(done, 1)
        self.progress("candidates", done, total, f"{choice}; about {left_s:.0f} s left" if done else choice)

    def meets_floor(self, law: DestinationLaw, walk: Walk, count: int) -> bool:
        """Return whether that choice meets the floor for certain."""
        return self.evaluate(law, walk, count).least_entropy_share >= self.keep

    def climb_laws(self, walks: Sequence[Walk]) -> None:
        """Evaluate few choices for each walk and law, the most promising law first: four hops, or as far as it goes."""
        self._expected = 3 * len(walks) * len(self.laws)
        for walk in walks:
            for law in sorted(self.laws, key=lambda law: (abs(law.support.lo - 4), law.support.lo)):
                counts = self.list_counts(law)
                first = int(law.n_choices.mean()) // _NEW_NODES
                if self.candidates:
                    first = choose_candidate(tuple(self.candidates.values()), self.keep).scheme.recipients
                self._climb_counts(law, walk, counts, max(bisect_right(counts, first) - 1, 0))

    def _climb_counts(self, law: DestinationLaw, walk: Walk, counts: Sequence[int], place: int) -> None:
        """Evaluate more recipients while the floor is met, or fewer until it is; then fewer while that is cheaper."""
        is_first = not self.candidates
        if self.meets_floor(law, walk, counts[place]):
            while place + 1 < len(counts) and self.meets_floor(law, walk, counts[place + 1]):
                place += 1
        elif not is_first and any(candidate.least_entropy_share >= self.keep for candidate in self.candidates.values()):
            # Another law meets the floor with as many: with fewer, this law would have to be far cheaper.
            return
        else:
            while not self.meets_floor(law, walk, counts[place]) and place > 0:
                place -= 1
            # Where even the fewest miss the floor, more recipients that hide nearly as much are cheaper.
            fewest = self.evaluate(law, walk, counts[place])
            while fewest.least_entropy_share < self.keep and place + 1 < len(counts):
                if self.evaluate(law, walk, counts[place + 1]).entropy_share < fewest.entropy_share - _NEARLY:
                    break
                place += 1
        # Half as many recipients take nearly twice the hops: that is cheaper only where slots fill most of a message.
        length = self.sealing.message_bytes
        while place > 0 and _NEARLY_TWICE * length(counts[place - 1]) < length(counts[place]):
            place -= 1
            self.evaluate(law, walk, counts[place])

    def evaluate_all(self, walks: Sequence[Walk]) -> None:
        """Evaluate every choice, up to the number of recipients at which the floor is out of reach."""
        choices = list(itertools.product(walks, self.laws))
        left = [len(self.list_counts(law)) for _, law in choices]
        for place, (walk, law) in enumerate(choices):
            for count in self.list_counts(law):
                self._expected = len(self.candidates) + sum(left[place:])
                left[place] -= 1
                if self.evaluate(law, walk, count).entropy_share < self.keep - _HOPELESS:
                    break

    def sorted_candidates(self) -> tuple[Design, ...]:
        """Return all candidates by walk, law and number of recipients."""
        order = sorted(self.candidates, key=lambda key: (key[0] != str(SIMPLE), key))
        return tuple(self.candidates[key] for key in order)
