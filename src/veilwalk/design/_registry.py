"""Every destination law by name: what it is, what it takes, how it is made; and the default for a graph.

A law is made from a :class:`Request` and nothing else. Adding one is one entry in ``LAWS``; design, audit, training and
nodes then know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csgraph

from veilwalk import theory
from veilwalk.core import validate
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.removed import refuse_removed
from veilwalk.core.sizes import LARGE_NODES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._bench import Best, Certificate, LawBench, certify_best
from veilwalk.design._law import DestinationLaw, DistanceLaw, far_law, far_of, law_by_distance
from veilwalk.design._optimal import OBJECTIVES
from veilwalk.design._paper import WindowDesign, design_on_graph, design_regular
from veilwalk.design._scaling import balanced as balanced_law
from veilwalk.graphs import Graph, iter_distances

#: Options of every law that has tables of all pairs, and of one that is made and priced by sampling.
_WITH_TABLES = frozenset(
    {"balanced", "budget_hops", "objective", "observer", "window_radius", "tail_probability", "return_time"}
)
_SAMPLED = frozenset({"balanced", "seed"})
_WIDEST = 6
_WAY_OUT = "take a sparser graph, or a law that admits neighbours (design --allow-neighbours --support 1:1)"
# What every law takes.
_NOT_OPTIONS = {"graph", "support", "walk", "memory_bytes", "large_nodes", "far"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What law is wanted, on what, for whom.

    Attributes:
        graph: any connected graph.
        support: distances a destination may have.
        walk: how ciphertexts walk.
        balanced: whether every node must update equally often; None for only an optimal law. An optimal law that need
            not be balanced has the prior of uniform-node.
        budget_hops: most mean hops per update; an optimal law without a budget may use what uniform-node uses.
        objective: ``entropy`` or ``hit-ratio``: what certificates compare, and what ``optimal`` improves.
        observer: ``return-time`` or ``last-hop``.
        window_radius: delta, of the window notion.
        tail_probability: delta', which chooses the return time designed for.
        return_time: kappa, instead.
        seed: of what is sampled, on graphs too large for tables of all pairs.
        far: the least distance of a recipient under the law ``far``; said by its name, ``far:4``.
        memory_bytes: most that tables may take.
        large_nodes: from how many nodes on tables of all pairs are out of the question.
    """

    graph: Graph
    support: DistanceSupport
    walk: Walk = SIMPLE
    balanced: bool | None = None
    budget_hops: float = math.inf
    objective: str = "entropy"
    observer: str = "return-time"
    window_radius: int = 5
    tail_probability: float = 0.3
    return_time: float | None = None
    seed: int = 1
    far: int | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    large_nodes: int = LARGE_NODES

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InvalidParameterError("objective", self.objective, f"one of {', '.join(OBJECTIVES)}")
        validate.more_than(0, budget_hops=self.budget_hops)

    @cached_property
    def bench(self) -> LawBench:
        """The tables that all laws on this graph, support and walk share."""
        return LawBench(self.graph, support=self.support, walk=self.walk, memory_bytes=self.memory_bytes)

    @cached_property
    def return_time_and_why(self) -> tuple[float, str]:
        """Kappa, and how it was chosen."""
        return (
            self.bench.return_time(self.tail_probability) if self.return_time is None else (self.return_time, "given")
        )

    @cached_property
    def likelihood(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """The window likelihood of all pairs at that return time."""
        return self.bench.window_likelihood(self.return_time_and_why[0], self.window_radius)

    @property
    def is_large(self) -> bool:
        """Whether tables of all pairs are out of the question."""
        return self.graph.n_nodes >= self.large_nodes

    def given(self) -> set[str]:
        """Return the options that were set to something else than their defaults."""
        options = (field for field in fields(self) if field.name not in _NOT_OPTIONS)
        return {option.name for option in options if getattr(self, option.name) != option.default}


@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """A law and what its making found out besides."""

    law: DestinationLaw
    best: Best | None = None
    certificates: tuple[Certificate, ...] = ()
    window: WindowDesign | None = None


@dataclass(frozen=True)
class LawKind:
    """One kind of law.

    Attributes:
        help: What it is, in a line.
        make: How it is made; balance and budget are seen to afterwards unless it says ``whole``.
        options: What it takes.
        large_options: What it takes on graphs too large for tables of all pairs; None where it cannot be made there.
        whole: It sees to balance and budget itself, or has neither.
    """

    help: str
    make: Callable[[Request], Made]
    options: frozenset[str] = _WITH_TABLES
    large_options: frozenset[str] | None = _SAMPLED
    whole: bool = False


def _plain(request: Request) -> Made:
    neighbours = DistanceSupport(1, 1, allow_neighbours=True)
    return Made(law=law_by_distance(request.graph, neighbours, np.ones(2)))


def _uniform_node(request: Request) -> Made:
    return Made(law=law_by_distance(request.graph, request.support, np.ones(request.support.hi + 1)))


def _uniform_distance(request: Request) -> Made:
    size = request.support.size
    return Made(law=DistanceLaw(request.support, np.full(size, 1 / size)).on(request.graph))


def closed_form(graph: Graph, support: DistanceSupport, formulas: str = "corrected") -> WindowDesign:
    """Return the paper's design for random regular graphs of this size and degree; others are refused."""
    if not graph.is_regular or graph.degrees[0] < 3:
        low, high = graph.degrees.min(), graph.degrees.max()
        need = "regular graphs of degree 3 or more: take uniform-node, or paper-exact"
        raise GraphError(f"law paper is for {need} (degrees range from {low} to {high})")
    walk = theory.WalkModel(n_nodes=graph.n_nodes, degree=int(graph.degrees[0]))
    return design_regular(theory.AnonymityModel(walk=walk, support=support), formulas=formulas)


def _paper(request: Request) -> Made:
    pmf = closed_form(request.graph, request.support).distance_pmf
    return Made(law=DistanceLaw(request.support, pmf).on(request.graph))


def _paper_printed(request: Request) -> Made:
    pmf = closed_form(request.graph, request.support, "printed").distance_pmf
    return Made(law=DistanceLaw(request.support, pmf).on(request.graph))


def _paper_exact(request: Request) -> Made:
    found = design_on_graph(
        request.graph,
        support=request.support,
        walk=request.walk,
        window_radius=request.window_radius,
        tail_probability=request.tail_probability,
        return_time=request.return_time,
        memory_bytes=request.memory_bytes,
    )
    return Made(law=found.destination_law, window=found)


def _far(request: Request) -> Made:
    if request.far is None:
        raise InvalidParameterError("law", "far", "far:R, such as far:4: everybody at distance R or more")
    return Made(law=far_law(request.graph, request.far))


def _optimal(request: Request) -> Made:
    bench = request.bench
    even = request.balanced is not False
    start = bench.within_budget(balanced_law(bench.uniform) if even else bench.uniform, request.budget_hops)
    budget = start.mean_hops(bench.hops) if math.isinf(request.budget_hops) else request.budget_hops
    best = bench.optimal(start, budget, objective=request.objective, observer=request.observer)
    return Made(law=best.law, best=best, certificates=certify_best(best, start, budget=budget, even=even))


#: Every law, the simplest first.
LAWS: dict[str, LawKind] = {
    "plain": LawKind("no law: unsealed to a neighbour, who knows the source; for comparison", _plain, frozenset()),
    "uniform-distance": LawKind("evenly over distances: the paper's 'no countermeasure'", _uniform_distance),
    "uniform-node": LawKind("evenly over all nodes of the support; any graph, any size", _uniform_node),
    "far": LawKind(
        "far:R, such as far:4: evenly over everybody at distance R or more; any graph, any size",
        _far,
        options=frozenset({"seed"}),
        large_options=frozenset({"seed"}),
        whole=True,
    ),
    "paper": LawKind("the paper's closed form, corrected; regular graphs", _paper),
    "paper-printed": LawKind("the paper's closed form as printed; regular graphs", _paper_printed),
    "paper-exact": LawKind(
        "the paper's rule with exact chains on the very graph",
        _paper_exact,
        options=frozenset({"window_radius", "tail_probability", "return_time"}),
        large_options=None,
        whole=True,
    ),
    "optimal": LawKind("the best there is, with a certificate", _optimal, large_options=None, whole=True),
}


def _written(names: Iterable[str]) -> str:
    """Return names of laws as they are asked for; the plain walk stands last, since nobody trains by it."""
    asked = ["far:R" if name == "far" else name for name in names if name != "plain"]
    return ", ".join([*asked, "plain (for design and audit)"])


def make(name: str, request: Request) -> Made:
    """Make the law called ``name``; an option that it does not take is refused.

    Raises:
        InvalidParameterError: No law has that name, or it does not take an option, or not on so large a graph.
    """
    far = far_of(name)
    if far is not None:
        name, request = "far", replace(request, far=far)
    refuse_removed("law", name)
    if name not in LAWS:
        raise InvalidParameterError("law", name, f"one of {_written(LAWS)}, or a law file")
    kind = LAWS[name]
    options = kind.large_options if request.is_large else kind.options
    if options is None:
        able = _written(other for other, one in LAWS.items() if one.large_options is not None)
        need = f"one of {able} from {request.large_nodes} nodes on: others need tables of all pairs"
        raise InvalidParameterError("law", name, need)
    for option in sorted(request.given() - options - (set() if request.is_large else {"seed"})):
        where = f" on {request.graph.n_nodes} nodes" if request.is_large and option in kind.options else ""
        raise InvalidParameterError(
            option, getattr(request, option), f"left out: the law {name} does not use it{where}"
        )
    made = kind.make(request)
    if kind.whole or name == "plain":
        return made
    law = balanced_law(made.law) if request.balanced else made.law
    if not math.isinf(request.budget_hops):
        law = request.bench.within_budget(law, request.budget_hops)
    return made if law is made.law else replace(made, law=law)


def make_law(name: str, graph: Graph, support: DistanceSupport, *, walk: Walk = SIMPLE) -> DestinationLaw:
    """Return the law called ``name`` on ``graph``, with everything else left as it is by default."""
    return make(name, Request(graph=graph, support=support, walk=walk)).law.named(name)


def default_support(graph: Graph) -> DistanceSupport:
    """Return the distances from 2 to the largest that every node has somebody at, at most 6.

    Where steps of two hops alone do not lead everywhere, as between the two sides of a bipartite graph, 3 is added.

    Raises:
        GraphError: Some node is next to all others, or two hops lead nowhere and nobody is farther.
    """
    reach, farthest = _WIDEST, 0
    large = graph.n_nodes >= LARGE_NODES
    for _, apart in iter_distances(graph):
        reach, farthest = min(reach, int(apart.max(axis=1).min())), max(farthest, int(apart.max()))
        if reach < 2:
            raise GraphError(f"some node is next to all others: no destination is two hops away; {_WAY_OUT}")
        if large:
            break
    if reach == 2 and not large and not _leads_everywhere(graph, DistanceSupport(2, 2)):
        if farthest == 2:
            raise GraphError(f"steps of two hops do not lead to all nodes, and none is farther; {_WAY_OUT}")
        reach = 3
    return DistanceSupport(2, reach)


def _leads_everywhere(graph: Graph, support: DistanceSupport) -> bool:
    law = law_by_distance(graph, support, np.ones(support.hi + 1))
    groups, _ = csgraph.connected_components(law.matrix, directed=True, connection="strong")
    return bool(groups == 1)


def default_law(graph: Graph) -> str:
    """Return the paper's law on regular graphs, which it was made for, and uniform-node on all others."""
    return "paper" if graph.is_regular and graph.degrees[0] >= 3 else "uniform-node"
