"""What ``veilwalk design`` prints about laws for graphs too large for tables of all pairs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from veilwalk.cli._output import console, print_table
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.records import plain

if TYPE_CHECKING:
    from veilwalk.core.arrays import FloatArray
    from veilwalk.core.support import DistanceSupport
    from veilwalk.design import ClassLikelihood, LawDesign, SampledDesign
    from veilwalk.graphs import Graph

_BITS = 1 / math.log(2)
# A class of sources with a larger relative error was hardly met: it took over the values of all others.
_HARDLY_SEEN = 0.4


def large_graph(
    graph: Graph,
    name: str,
    support: DistanceSupport,
    out: Path | None,
    *,
    as_json: bool,
    walk: Any,
    budget_hops: float,
    balanced: bool | None,
    tail_probability: float,
    **_unused: Any,
) -> None:
    """Price a law by sampled legs, where tables of all pairs do not fit."""
    from veilwalk.design import LARGE_NODES, sample_design, save_law

    if math.isfinite(budget_hops):
        need = f"fewer than {LARGE_NODES} for --budget-hops: it needs tables of all pairs"
        raise InvalidParameterError("nodes", graph.n_nodes, need)
    with console().status(f"sampling legs of {name}"):
        found = sample_design(
            graph, name, support=support, walk=walk, is_balanced=bool(balanced), tail_probability=tail_probability
        )
    if out is not None:
        save_law(out, found.law)
    if as_json:
        typer.echo(json.dumps(plain(sampled_as_dict(found, graph)), indent=2, allow_nan=False))
        return
    rows = [("all", found.hops)]
    rows += [(f"{distance} hops away", mean) for distance, mean in found.hops_by_distance.items()]
    rows += [(f"degree {low} to {high}", mean) for (low, high), mean in found.hops_by_degree.items()]
    print_table(
        f"law {found.name}, {found.walk} walk, {graph.n_nodes} nodes, distances {support}: hops per update, estimated",
        ("destination", ">legs", ">mean hops", ">95% interval"),
        [(what, str(one.legs), f"{one.mean:.0f}", f"{one.low:.0f} to {one.high:.0f}") for what, one in rows],
    )
    console().print(f"updates of one node, times the mean: {prior_range(found.law.source_prior)} (exact)")
    console().print(
        f"node entropy told only that it was chosen: {nats_and_bits(found.blind_node_entropy_nats)} (exact)"
    )
    if found.likelihood is not None and found.row_sums is not None:
        _print_classes(found.likelihood, support, found.row_sums)
    console().print(
        "no certificate and no window floor at this size; measure the rest with veilwalk audit", soft_wrap=True
    )


def _print_classes(likelihood: ClassLikelihood, support: DistanceSupport, sums: FloatArray) -> None:
    """Print what the equalised law was made from, in which classes, and how sure that is."""
    shown = likelihood.values / likelihood.values.max()
    print_table(
        f"chance of a hit in the window at {likelihood.return_time:.0f} hops, relative to the largest; estimated "
        f"from {likelihood.pairs} pairs, with standard errors",
        ("source", *(f">{distance} hops away" for distance in support.distances)),
        [
            (
                f"degree {2**row} to {2 ** (row + 1) - 1}",
                *(f"{value:.3f} ± {value * error:.3f}" for value, error in zip(values, errors, strict=True)),
            )
            for row, (values, errors) in enumerate(zip(shown, likelihood.relative_error, strict=True))
            if errors.min() < _HARDLY_SEEN
        ],
    )
    console().print(
        f"equalised by class: row sums {sums.min():.3f} to {sums.max():.3f} before they are normalised; all 1 where "
        "exactly equalised",
        soft_wrap=True,
    )


def identity(found: SampledDesign | LawDesign, graph: Graph) -> dict[str, Any]:
    """Return which law this is, for which walk and graph, as plain data."""
    return {
        "law": found.name,
        "walk": found.walk,
        "n_nodes": graph.n_nodes,
        "graph_digest": found.law.graph_digest,
        "support": [found.law.support.lo, found.law.support.hi],
    }


def sampled_as_dict(found: SampledDesign, graph: Graph) -> dict[str, Any]:
    """Return a sampled design as plain data under its stable JSON keys."""
    prior = found.law.source_prior * graph.n_nodes
    content = identity(found, graph) | {
        "seed": found.seed,
        "mean_iteration_hops": found.hops.mean,
        "mean_iteration_hops_interval": [found.hops.low, found.hops.high],
        "hops_by_distance": [
            {"distance": distance, "legs": one.legs, "mean": one.mean, "interval": [one.low, one.high]}
            for distance, one in found.hops_by_distance.items()
        ],
        "hops_by_degree": [
            {"degrees": list(degrees), "legs": one.legs, "mean": one.mean, "interval": [one.low, one.high]}
            for degrees, one in found.hops_by_degree.items()
        ],
        "prior_range": [prior.min(), prior.max()],
        "blind_node_entropy_nats": found.blind_node_entropy_nats,
    }
    if found.likelihood is not None and found.row_sums is not None:
        content["equalised"] = vars(found.likelihood) | {"row_sums_range": [found.row_sums.min(), found.row_sums.max()]}
    return content


def nats_and_bits(nats: float) -> str:
    """Return an entropy in both units."""
    return f"{nats:.4f} nats = {nats * _BITS:.4f} bits"


def prior_range(prior: FloatArray) -> str:
    """Say how often the rarest and the most frequent source update, times the mean."""
    times: FloatArray = prior * len(prior)
    least, most = int(times.argmin()), int(times.argmax())
    if times[most] - times[least] < 1e-6:
        return "all alike"
    return f"{times[least]:.2f} (node {least}) to {times[most]:.2f} (node {most})"
