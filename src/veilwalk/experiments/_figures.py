"""The paper's three figures as records: printed, corrected and exact, side by side, for c = 3 and c = 4.

The paper says c = 4 in its text and c = 3 in its captions; its numbers are those of c = 3 (erratum 1).
Both are drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from veilwalk import theory
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.experiments._sampled import SampledGraphs, posterior
from veilwalk.theory import printed, published

N_NODES = 300
DEGREES = (3, 4)
SUPPORT = DistanceSupport(2, 6)
WINDOW_RADIUS = 5
TAIL_PROBABILITY = 0.3
FIGURES = ("side-information", "probability", "trade-off")

_FARTHEST_SUPPORTS = range(4, 10)


def reproduce(name: str, *, n_graphs: int = 5, seed: int = 1, progress: Progress = silent) -> Record:
    """Return the record of one figure: ``side-information``, ``probability`` or ``trade-off``."""
    validate.integer(graphs=n_graphs, seed=seed)
    validate.at_least(1, graphs=n_graphs)
    validate.at_least(0, seed=seed)
    makers = dict(zip(FIGURES, (side_information, probability, trade_off), strict=True))
    if name not in makers:
        raise InvalidParameterError("figure", name, f"one of {', '.join(FIGURES)}")
    rows: list[dict[str, Any]] = []
    for degree in DEGREES:
        sample = SampledGraphs(n_nodes=N_NODES, degree=degree, n_graphs=n_graphs, seed=seed, progress=progress)
        rows.extend(makers[name](sample))
    return Record(
        kind=f"paper figure: {name}",
        params={
            "n_nodes": N_NODES,
            "degrees": list(DEGREES),
            "support": str(SUPPORT) if name != "trade-off" else "2:4 to 2:9",
            "window_radius": WINDOW_RADIUS,
            "tail_probability": TAIL_PROBABILITY,
            "n_graphs": n_graphs,
        },
        seed=seed,
        result={"rows": rows},
    )


def model_of(degree: int, support: DistanceSupport = SUPPORT) -> theory.AnonymityModel:
    """The paper's network at ``degree``."""
    walk = theory.WalkModel(n_nodes=N_NODES, degree=degree)
    return theory.AnonymityModel(walk=walk, support=support, window_radius=WINDOW_RADIUS)


def design_time(model: theory.AnonymityModel) -> float:
    """Kappa by the paper's rule, to the nearest hop: 634 for c = 3, 476 for c = 4."""
    return float(round(theory.design_return_time(TAIL_PROBABILITY, model=model)))


def closed_curves(degree: int, seen: FloatArray) -> dict[str, FloatArray]:
    """Distance entropy H(W) in nats at each return time in ``seen``, by the printed and the corrected formulas.

    ``*_uniform`` is the paper's "no countermeasure": uniform over distances.
    """
    model = model_of(degree)
    kappa = design_time(model)
    uniform = np.full(SUPPORT.size, 1 / SUPPORT.size)
    curves: dict[str, FloatArray] = {}
    for name, formulas in (("printed", printed), ("corrected", theory)):
        for suffix, shortest_paths in (("", False), ("_without_fht", True)):
            law = formulas.optimal_distance_pmf(kappa, model=model, shortest_paths=shortest_paths)
            w = formulas.source_posterior(law, seen, model=model, shortest_paths=shortest_paths)
            curves[name + suffix] = theory.distance_entropy(w)
        w = formulas.source_posterior(uniform, seen, model=model, shortest_paths=True)
        curves[f"{name}_uniform"] = theory.distance_entropy(w)
    return curves


def exact_curves(sample: SampledGraphs, seen: FloatArray) -> dict[str, FloatArray]:
    """The same from exact chains: window likelihoods averaged over sampled graphs, under the corrected law."""
    model = model_of(sample.degree)
    likelihood = sample.window_likelihoods(seen, window_radius=WINDOW_RADIUS, support=SUPPORT)
    shells = sample.mean_shells(SUPPORT)
    laws = {
        "exact": theory.optimal_distance_pmf(design_time(model), model=model),
        "exact_uniform": np.full(SUPPORT.size, 1 / SUPPORT.size),
    }
    return {name: theory.distance_entropy(posterior(law, shells, likelihood)) for name, law in laws.items()}


def side_information(sample: SampledGraphs) -> list[dict[str, Any]]:
    """fig:leakage_over_sideinformation: H(W) against the return time the destination saw."""
    model = model_of(sample.degree)
    kappa = design_time(model)
    seen = np.unique(np.append(np.round(np.geomspace(SUPPORT.hi + 1, 2500, 39)), kappa))
    curves = closed_curves(sample.degree, seen) | exact_curves(sample, seen)
    promise = theory.guarantee(TAIL_PROBABILITY, model=model, return_time_design=kappa)
    floor_printed = printed.guaranteed_entropy(TAIL_PROBABILITY, model=model)
    return [
        {
            "degree": sample.degree,
            "return_time_design": kappa,
            "return_time_seen": time,
            "return_time_from": promise.return_time_from,
            "maximum_nats": math.log(SUPPORT.size),
            "floor_printed_nats": floor_printed,
            "floor_corrected_nats": promise.anonymity_floor_nats,
            **{f"{name}_nats": float(values[row]) for name, values in curves.items()},
        }
        for row, time in enumerate(seen)
    ]


def probability(sample: SampledGraphs) -> list[dict[str, Any]]:
    """fig:minimum_leakage_over_delta: the least H(W) among the return times covered, against 1 - delta'.

    The design return time stays at its value for delta' = 0.3, as in the paper.
    """
    model = model_of(sample.degree)
    kappa = design_time(model)
    tails = np.array([0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    starts: dict[str, FloatArray] = {
        "printed": np.array([printed.guaranteed_return_time(t, model=model) for t in tails]),
        "corrected": np.array([theory.covered_return_time(t, model=model) for t in tails]),
        "exact": sample.covered_return_times(SUPPORT, 1 - tails),
    }
    # The minimum over all covered return times is taken on a grid that holds the first of each.
    fine = np.geomspace(SUPPORT.hi + 1, 20 * N_NODES, 300)
    grids = {name: _grid(np.append(fine, first)) for name, first in starts.items()}
    grids["exact"] = _grid(np.append(np.round(fine[::12]), starts["exact"]))
    curves = exact_curves(sample, grids["exact"])
    for name in ("printed", "corrected"):
        curves |= {k: v for k, v in closed_curves(sample.degree, grids[name]).items() if k.startswith(name)}
    rows = []
    for index, tail in enumerate(tails):
        least = {}
        for name, values in curves.items():
            way = name.split("_")[0]
            least[f"{name}_nats"] = float(values[grids[way] >= starts[way][index]].min())
        promise = theory.guarantee(float(tail), model=model, return_time_design=kappa)
        rows.append(
            {
                "degree": sample.degree,
                "return_time_design": kappa,
                "tail_probability": float(tail),
                "probability": 1 - float(tail),
                "return_time_from_corrected": float(starts["corrected"][index]),
                "return_time_from_exact": float(starts["exact"][index]),
                "maximum_nats": math.log(SUPPORT.size),
                "floor_printed_nats": printed.guaranteed_entropy(float(tail), model=model),
                "floor_corrected_nats": promise.anonymity_floor_nats,
                **least,
            }
        )
    return rows


def _grid(times: FloatArray) -> FloatArray:
    return np.append(np.unique(times[times > SUPPORT.hi]), math.inf)


def trade_off(sample: SampledGraphs) -> list[dict[str, Any]]:
    """fig:mean_iteration_times: distance entropy against mean hops per update, supports 2:4 to 2:9.

    Published numbers exist for c = 3 only, whatever the captions say. Supports beyond the typical diameter are
    left out.
    """
    reach = theory.typical_diameter(model_of(sample.degree).walk)
    widest = DistanceSupport(2, min(max(_FARTHEST_SUPPORTS), reach))
    exact = sample.mean_hitting_times(widest)
    rows = []
    for hi in range(min(_FARTHEST_SUPPORTS), widest.hi + 1):
        model = model_of(sample.degree, DistanceSupport(2, hi))
        kappa = design_time(model)
        corrected = theory.optimal_distance_pmf(kappa, model=model)
        as_written = printed.optimal_distance_pmf(kappa, model=model)
        per_graph = exact[:, : model.support.size] @ corrected
        on_paper = sample.degree == published.WALK.degree
        rows.append(
            {
                "support": str(model.support),
                "degree": sample.degree,
                "return_time_design": kappa,
                "distance_entropy_nats": float(
                    theory.distance_entropy(theory.source_posterior(corrected, kappa, model=model))
                ),
                "node_entropy_nats": float(np.log(theory.shell_sizes(model).sum())),
                "published_hops": published.TABLE[hi][1] if on_paper else None,
                "recipe_hops": published.recipe_hops(model.support) if on_paper else None,
                "integer_window_hops": published.integer_window_hops(model.support) if on_paper else None,
                "formula_hops": theory.mean_iteration_hops(as_written, model=model),
                "corrected_hops": theory.mean_iteration_hops(corrected, model=model),
                "exact_hops": float(np.nanmean(per_graph)),
                "exact_hops_standard_error": _standard_error(per_graph),
            }
        )
    return rows


def _standard_error(values: FloatArray) -> float | None:
    """Standard error of the mean over graphs; None for a single graph, which has none."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else None
