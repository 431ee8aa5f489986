"""Design by the paper's closed forms, for a random regular graph known only by its size and degree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from veilwalk import theory
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design._law import DestinationLaw, DistanceLaw
from veilwalk.theory import printed

FORMULAS = ("corrected", "printed")


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowDesign:
    """A law by the paper's window notion: what it guarantees, what it costs, and which assumptions bend.

    Entropies are those of the paper's window notion at the design return time. ``floor_kind`` says what stands
    behind ``anonymity_floor_nats``: a proved bound, the printed bound, or a computed minimum.
    """

    n_nodes: int
    degree: int | None
    formulas: str
    window_radius: int
    tail_probability: float
    return_time_design: float
    return_time_from: float
    distances: IntArray
    distance_pmf: FloatArray
    shell_sizes: FloatArray
    distance_entropy_nats: float
    node_entropy_nats: float
    anonymity_floor_nats: float
    floor_kind: str
    mean_iteration_hops: float
    worst_destination: int | None
    warnings: tuple[str, ...]
    law: DistanceLaw | DestinationLaw

    @property
    def destination_law(self) -> DestinationLaw:
        """The law of a design that was made on a graph."""
        if isinstance(self.law, DistanceLaw):
            raise InvalidParameterError("law", "of distances", "one made on a graph")
        return self.law

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data under its stable JSON keys."""
        content: dict[str, Any] = {
            "n_nodes": self.n_nodes,
            "degree": self.degree,
            "formulas": self.formulas,
            "support": [int(self.distances[0]), int(self.distances[-1])],
            "window_radius": self.window_radius,
            "tail_probability": self.tail_probability,
            "return_time_design": self.return_time_design,
            "return_time_from": self.return_time_from,
            "distance_pmf": self.distance_pmf,
            "shell_sizes": self.shell_sizes,
            "distance_entropy_nats": self.distance_entropy_nats,
            "node_entropy_nats": self.node_entropy_nats,
            "anonymity_floor_nats": self.anonymity_floor_nats,
            "floor_kind": self.floor_kind,
            "mean_iteration_hops": self.mean_iteration_hops,
            "warnings": list(self.warnings),
        }
        if not isinstance(self.law, DistanceLaw):
            content["graph_digest"] = self.law.graph_digest
            content["worst_destination"] = self.worst_destination
            content["destination_pmf"] = self.law.matrix.toarray()
        return content


def design_regular(
    model: theory.AnonymityModel,
    *,
    tail_probability: float = 0.3,
    return_time: float | None = None,
    formulas: str = "corrected",
) -> WindowDesign:
    """Design the law of lemma:rrgopt and say what it guarantees and costs.

    Args:
        model: network, support and window.
        tail_probability: delta'; the guarantee holds with probability 1 - delta'.
        return_time: kappa; without it the paper's choice, to the nearest hop.
        formulas: ``corrected``, or ``printed`` to see what the paper's own text would give.

    Example:
        >>> from veilwalk.core.support import DistanceSupport
        >>> walk = theory.WalkModel(n_nodes=300, degree=3)
        >>> found = design_regular(theory.AnonymityModel(walk=walk, support=DistanceSupport(2, 6)))
        >>> found.return_time_design, round(found.mean_iteration_hops, 1)
        (634.0, 574.9)
    """
    if formulas not in FORMULAS:
        raise InvalidParameterError("formulas", formulas, f"one of {', '.join(FORMULAS)}")
    # First of all: it refuses a support that no array could hold.
    sizes = theory.shell_sizes(model)
    kappa = return_time
    if kappa is None:
        kappa = float(round(theory.design_return_time(tail_probability, model=model)))
        # A support that reaches beyond the paper's choice would leave no window at all.
        kappa = max(kappa, model.support.hi + 1.0)
    if formulas == "corrected":
        pmf = theory.optimal_distance_pmf(kappa, model=model)
        posterior = theory.source_posterior(pmf, kappa, model=model)
        promise = theory.guarantee(tail_probability, model=model, return_time_design=kappa)
        floor, start = promise.anonymity_floor_nats, promise.return_time_from
        kind = "proved lower bound at every return time covered, given ass:frt"
    else:
        theory.window_likelihood(kappa, model=model)  # refuses what the printed forms would turn into nonsense
        pmf = printed.optimal_distance_pmf(kappa, model=model)
        posterior = printed.source_posterior(pmf, kappa, model=model)
        floor = printed.guaranteed_entropy(tail_probability, model=model, corollary=math.isinf(kappa))
        start = printed.guaranteed_return_time(tail_probability, model=model)
        kind = "bound as printed in the paper, which is not what it should be (erratum 3)"
    return WindowDesign(
        n_nodes=model.walk.n_nodes,
        degree=model.walk.degree,
        formulas=formulas,
        window_radius=model.window_radius,
        tail_probability=tail_probability,
        return_time_design=kappa,
        return_time_from=start,
        distances=model.support.distances,
        distance_pmf=pmf,
        shell_sizes=sizes,
        distance_entropy_nats=float(theory.distance_entropy(posterior)),
        node_entropy_nats=float(theory.node_entropy(posterior, sizes=sizes)),
        anonymity_floor_nats=floor,
        floor_kind=kind,
        mean_iteration_hops=theory.mean_iteration_hops(pmf, model=model),
        worst_destination=None,
        warnings=_warnings(model, kappa, start, formulas),
        law=DistanceLaw(model.support, pmf, model.walk.n_nodes, model.walk.degree),
    )


def _warnings(model: theory.AnonymityModel, kappa: float, start: float, formulas: str) -> tuple[str, ...]:
    """Name every assumption that ignores more than 5%, at the design return time or at the shortest covered."""
    found = []
    seen: set[str] = set()
    for return_time in (kappa, max(start, model.support.hi + 1.0)):
        for term in theory.ignored_terms(return_time, model=model):
            if term.bends and term.label not in seen:
                seen.add(term.label)
                found.append(f"{term.label} ignores {term.ignored_share:.1%}: {term.meaning}")
    if formulas == "printed":
        found.append("printed formulas: kept for comparison only; see paper/errata.md")
    return tuple(found)
