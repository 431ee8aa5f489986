"""Registers every destination law by name, with its options; chooses the default law and support of a graph.

A law depends on a :class:`LawRequest` and on nothing else. A new law is one entry in ``LAWS``; design, audit, training
and nodes then know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import islice

import numpy as np
from scipy.sparse import csgraph

from veilwalk import theory
from veilwalk.core import validate
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES, LARGE_NODES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.validate import refuse_removed
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw, DistanceLaw, far_law, law_by_distance, parse_far
from veilwalk.design._optimal import BestLaw, Certificate, LawDesigner
from veilwalk.design._paper import WindowDesign, design_on_graph, design_regular
from veilwalk.graphs import Graph, iter_distances

#: Options of every law that has tables of all pairs, and of one that is priced by sampling.
_WITH_TABLES = frozenset({"balanced", "budget_hops", "observer", "window_radius", "tail_probability", "return_time"})
_SAMPLED = frozenset({"balanced"})
_WIDEST = 6
_FARS = (2, 3, 4, 5)
# The first of them, from which a law is taken where none is named.
_USUAL_FARS = 3
# Every law takes these.
_NOT_OPTIONS = {"graph", "support", "walk", "memory_bytes", "far"}


@dataclass(frozen=True, kw_only=True)
class LawRequest:
    """The graph, support, walk and options that a law is made for.

    Attributes:
        balanced: whether every node must update equally often; None for only an optimal law. An optimal law that need
            not be balanced has the prior of uniform-node.
        budget_hops: most mean hops per update; an optimal law without a budget may use as many as uniform-node.
        observer: ``return-time`` or ``last-hop``.
        window_radius: delta, of the window notion.
        tail_probability: delta', which chooses the return time designed for.
        return_time: kappa, instead.
        far: the least distance of a recipient under the law ``far``; said by its name, ``far:4``.
        memory_bytes: most that tables may take.
    """

    graph: Graph
    support: DistanceSupport
    walk: Walk = SIMPLE
    balanced: bool | None = None
    budget_hops: float = math.inf
    observer: str = "return-time"
    window_radius: int = 5
    tail_probability: float = 0.3
    return_time: float | None = None
    far: int | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES

    def __post_init__(self) -> None:
        validate.more_than(0, budget_hops=self.budget_hops)

    @cached_property
    def designer(self) -> LawDesigner:
        """The tables that all laws on this graph, support and walk share."""
        return LawDesigner(self.graph, support=self.support, walk=self.walk, memory_bytes=self.memory_bytes)

    @property
    def is_large(self) -> bool:
        """Whether tables of all pairs are out of the question."""
        return self.graph.n_nodes >= LARGE_NODES

    def changed_options(self) -> set[str]:
        """Return the names of the options that differ from their defaults."""
        options = (field for field in fields(self) if field.name not in _NOT_OPTIONS)
        return {option.name for option in options if getattr(self, option.name) != option.default}


@dataclass(frozen=True, kw_only=True, eq=False)
class LawResult:
    """A law, and the results that came with it."""

    law: DestinationLaw
    best: BestLaw | None = None
    certificates: tuple[Certificate, ...] = ()
    paper: WindowDesign | None = None


@dataclass(frozen=True)
class LawKind:
    """One kind of law.

    Attributes:
        help: One line for the user.
        make: The function that makes it; balance and budget are applied afterwards unless ``whole``.
        options: The options it takes.
        large_options: The options on graphs too large for tables of all pairs; None where it does not exist there.
        whole: It applies balance and budget itself, or has neither.
    """

    help: str
    make: Callable[[LawRequest], LawResult]
    options: frozenset[str] = _WITH_TABLES
    large_options: frozenset[str] | None = _SAMPLED
    whole: bool = False


def _make_plain(request: LawRequest) -> LawResult:
    neighbours = DistanceSupport(1, 1, allow_neighbours=True)
    return LawResult(law=law_by_distance(request.graph, neighbours, np.ones(2)))


def _make_uniform_node(request: LawRequest) -> LawResult:
    return LawResult(law=law_by_distance(request.graph, request.support, np.ones(request.support.hi + 1)))


def _make_uniform_distance(request: LawRequest) -> LawResult:
    size = request.support.size
    return LawResult(law=DistanceLaw(request.support, np.full(size, 1 / size)).place_on(request.graph))


def closed_form(graph: Graph, support: DistanceSupport, formulas: str = "corrected") -> WindowDesign:
    """Return the paper's design for random regular graphs of this size and degree; others are refused."""
    if not graph.is_regular or graph.degrees[0] < 3:
        low, high = graph.degrees.min(), graph.degrees.max()
        need = "regular graphs of degree 3 or more: take uniform-node, or paper-exact"
        raise GraphError(f"law paper is for {need} (degrees range from {low} to {high})")
    walk = theory.WalkModel(n_nodes=graph.n_nodes, degree=int(graph.degrees[0]))
    return design_regular(theory.AnonymityModel(walk=walk, support=support), formulas=formulas)


def _make_paper(request: LawRequest, formulas: str = "corrected") -> LawResult:
    pmf = closed_form(request.graph, request.support, formulas).distance_pmf
    return LawResult(law=DistanceLaw(request.support, pmf).place_on(request.graph))


def _make_paper_exact(request: LawRequest) -> LawResult:
    paper = design_on_graph(
        request.graph,
        support=request.support,
        walk=request.walk,
        window_radius=request.window_radius,
        tail_probability=request.tail_probability,
        return_time=request.return_time,
        memory_bytes=request.memory_bytes,
    )
    return LawResult(law=paper.destination_law, paper=paper)


def _make_far(request: LawRequest) -> LawResult:
    if request.far == 1 and default_support(request.graph).lo > 1:
        raise InvalidParameterError("far", 1, "2 or more on this graph: a neighbour that opens may know the source")
    return LawResult(law=far_law(request.graph, request.far or 0))


def _make_optimal(request: LawRequest) -> LawResult:
    designer = request.designer
    even = request.balanced is not False
    start = designer.within_budget(designer.uniform.balance() if even else designer.uniform, request.budget_hops)
    budget = start.mean_hops(designer.hops) if math.isinf(request.budget_hops) else request.budget_hops
    best = designer.optimal(start, budget, observer=request.observer)
    prior, simply = ("uniform", "uniform-node, balanced,") if even else ("its own", "uniform-node")
    certificates = tuple(
        best.optimum.certify(name, law, best.held_fixed, prior=prior, budget=budget)
        for name, law in (("optimal", best.law), (simply, start))
    )
    return LawResult(law=best.law, best=best, certificates=certificates)


#: Every law, the simplest first.
LAWS: dict[str, LawKind] = {
    "plain": LawKind(
        "no law: unsealed to a neighbour, who knows the source; for comparison", _make_plain, frozenset(), whole=True
    ),
    "uniform-distance": LawKind("evenly over distances: the paper's 'no countermeasure'", _make_uniform_distance),
    "uniform-node": LawKind("evenly over all nodes of the support; any graph, any size", _make_uniform_node),
    "far": LawKind(
        "far:R, such as far:4: evenly over all nodes at distance R or more; any graph, any size",
        _make_far,
        options=frozenset(),
        large_options=frozenset(),
        whole=True,
    ),
    "paper": LawKind("the paper's closed form, corrected; regular graphs", _make_paper),
    "paper-printed": LawKind(
        "the paper's closed form as printed; regular graphs", partial(_make_paper, formulas="printed")
    ),
    "paper-exact": LawKind(
        "the paper's rule with exact chains on the very graph",
        _make_paper_exact,
        options=frozenset({"window_radius", "tail_probability", "return_time"}),
        large_options=None,
        whole=True,
    ),
    "optimal": LawKind("the best there is, with a certificate", _make_optimal, large_options=None, whole=True),
}


def _format_names(names: Iterable[str]) -> str:
    """Return names of laws as options take them; the plain walk is last, since it is not for training."""
    options = ["far:R" if name == "far" else name for name in names if name != "plain"]
    return ", ".join([*options, "plain (for design and audit)"])


def make_from_request(law: str | DestinationLaw, request: LawRequest) -> LawResult:
    """Make the law of that name, or take a law that exists; refuse an option or a size that it does not take."""
    if isinstance(law, DestinationLaw):
        kind, name = LawKind("your own law", lambda _: LawResult(law=law)), law.name
    else:
        validate.instance(str, f"the name of a law: {', '.join(LAWS)}", law=law)
        name, far = law, parse_far(law)
        refuse_removed("law", name)
        if far is not None:
            request = replace(request, far=far)
        elif name not in LAWS:
            raise InvalidParameterError("law", name, f"one of {_format_names(LAWS)}, or a law file")
        kind = LAWS[name if far is None else "far"]
    options = kind.large_options if request.is_large else kind.options
    if options is None:
        able = _format_names(other for other, kind in LAWS.items() if kind.large_options is not None)
        need = f"one of {able} from {LARGE_NODES} nodes on: others need tables of all pairs"
        raise InvalidParameterError("law", name, need)
    for option in sorted(request.changed_options() - options):
        where = f" on {request.graph.n_nodes} nodes" if request.is_large and option in kind.options else ""
        need = f"left out: the law {name} does not use it{where}"
        raise InvalidParameterError(option, getattr(request, option), need)
    result = kind.make(request)
    shaped = result.law
    if not kind.whole:
        shaped = shaped.balance() if request.balanced else shaped
        if not math.isinf(request.budget_hops):
            shaped = request.designer.within_budget(shaped, request.budget_hops)
    return replace(result, law=shaped.named(name))


def default_support(graph: Graph) -> DistanceSupport:
    """Return the distances from 2 to the largest at which every node has another node, at most 6.

    Where steps of two hops alone do not lead everywhere, as between the two sides of a bipartite graph, 3 is added.
    Where no node is farther, or some node is next to all others, as on a complete graph or a star, everybody may be a
    recipient, neighbours too. Fewer than three nodes are refused.
    """
    if graph.n_nodes < 3:
        raise GraphError("two members are next to all others: each knows that the other made it; take three or more")
    reach, farthest = _WIDEST, 0
    large = graph.n_nodes >= LARGE_NODES
    for _, hops in iter_distances(graph):
        reach, farthest = min(reach, int(hops.max(axis=1).min())), max(farthest, int(hops.max()))
        if large:
            break
    everybody = DistanceSupport(1, min(max(farthest, 1), _WIDEST), allow_neighbours=True)
    if reach < 2:
        return everybody
    if reach == 2 and not large and not _leads_everywhere(graph, DistanceSupport(2, 2)):
        return DistanceSupport(2, 3) if farthest > 2 else everybody
    return DistanceSupport(2, reach)


def _leads_everywhere(graph: Graph, support: DistanceSupport) -> bool:
    law = law_by_distance(graph, support, np.ones(support.hi + 1))
    groups, _ = csgraph.connected_components(law.matrix, directed=True, connection="strong")
    return bool(groups == 1)


def default_law(graph: Graph) -> str:
    """Return the paper's law on regular graphs, which it is for, and uniform-node on others.

    Where neighbours must be recipients, it is ``far:1``; on an overlay ``far:2``, for members know no distances.
    """
    if graph.is_overlay:
        return "far:2"
    if default_support(graph).lo == 1:
        return "far:1"
    return "paper" if graph.is_regular and graph.degrees[0] >= 3 else "uniform-node"


def iter_far_laws(graph: Graph) -> Iterator[DestinationLaw]:
    """Yield the laws far:2, far:3, ... that suit the graph; only far:1 where neighbours must be recipients."""
    for far in (2,) if graph.is_overlay else _FARS if default_support(graph).lo > 1 else (1,):
        try:
            law = far_law(graph, far)
        except InvalidParameterError:
            return
        # A hub with few choices would need long walks to reach them, and would hide among few.
        if far > 2 and 2 * int(law.n_choices.min()) < graph.n_nodes:
            return
        yield law


def farthest_law(graph: Graph, recipients: int) -> str:
    """Return the farthest law, far:4 at most, under which every node may choose so many; far:2 where none is."""
    validate.integer(1, recipients=recipients)
    names = [law.name for law in islice(iter_far_laws(graph), _USUAL_FARS) if int(law.n_choices.min()) >= recipients]
    return names[-1] if names else f"far:{default_support(graph).lo}"
