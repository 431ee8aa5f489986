"""Destination laws by name, to be audited side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilwalk import theory
from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw, DistanceLaw, design_regular, law_by_distance, load_law
from veilwalk.graphs import Graph

#: plain: hand the update to a random neighbour, who knows the source. uniform-distance: the paper's "no
#: countermeasure". uniform-node: evenly over all nodes of the support. paper: p*, corrected. paper-printed: as printed.
SCHEMES = ("plain", "uniform-distance", "uniform-node", "paper", "paper-printed")


def chosen_law(name: str, graph: Graph, support: DistanceSupport) -> DestinationLaw:
    """Return the law called ``name`` on ``graph``, or the one in the file of that name."""
    if not name.endswith((".json", ".npz")):
        return scheme_law(name, graph, support)
    found = load_law(Path(name))
    return found.on(graph) if isinstance(found, DistanceLaw) else found


def scheme_law(name: str, graph: Graph, support: DistanceSupport) -> DestinationLaw:
    """Return the law called ``name`` on ``graph``; ``plain`` has none (see :func:`audit_plain`)."""
    match name:
        case "uniform-distance":
            return DistanceLaw(support, np.full(support.size, 1 / support.size)).on(graph)
        case "uniform-node":
            return law_by_distance(graph, support, np.ones(support.hi + 1))
        case "paper" | "paper-printed":
            if not graph.is_regular:
                low, high = graph.degrees.min(), graph.degrees.max()
                raise GraphError(f"law {name} is for regular graphs, degrees range from {low} to {high}: design one")
            walk = theory.WalkModel(n_nodes=graph.n_nodes, degree=int(graph.degrees[0]))
            model = theory.AnonymityModel(walk=walk, support=support)
            formulas = "printed" if name == "paper-printed" else "corrected"
            pmf = design_regular(model, formulas=formulas).distance_pmf
            return DistanceLaw(support, pmf).on(graph)
        case _:
            raise InvalidParameterError("law", name, f"one of {', '.join(SCHEMES)}, or a law file")
