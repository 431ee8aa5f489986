"""The paper's claims as a table, and its three figures as records: printed, corrected and exact, for c = 3 and c = 4.

The paper says c = 4 in its text and c = 3 in its captions; its numbers are those of c = 3 (erratum 1).
Both are drawn, for its 300 nodes and distances 2:6; other networks may be asked for, and have no published numbers.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any

import numpy as np

from veilwalk import theory
from veilwalk.chains import Chain, chain_of
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.records import Record
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE
from veilwalk.design import covered_return_times, exact_window_likelihood, mean_by_distance
from veilwalk.graphs import distances, random_regular
from veilwalk.theory import printed, published


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One definition, assumption, lemma, proposition, theorem, corollary, equation or figure of the paper."""

    label: str
    kind: str
    says: str
    function: str
    test: str
    status: str
    note: str = ""


def load_claims() -> tuple[Claim, ...]:
    """Read the table of claims, ``paper/claims.toml`` in the repository."""
    text = resources.files(__package__).joinpath("claims.toml").read_text(encoding="utf-8")
    return tuple(Claim(**entry) for entry in tomllib.loads(text)["claim"])


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledGraphs:
    """Exact quantities on ``n_graphs`` sampled RRG(n_nodes, degree); graph k has seed (seed + k)."""

    n_nodes: int
    degree: int
    n_graphs: int
    seed: int
    progress: Progress = silent

    @cached_property
    def each(self) -> list[tuple[Chain, IntArray]]:
        """The chain and the table of distances of every sampled graph."""
        graphs = [random_regular(self.n_nodes, self.degree, seed=self.seed + k) for k in range(self.n_graphs)]
        return [(chain_of(graph, SIMPLE), distances(graph)) for graph in graphs]

    @property
    def reach(self) -> int:
        """The largest distance at which every sampled graph has a pair."""
        return min(int(hops.max()) for _, hops in self.each)

    def mean_shells(self, support: DistanceSupport) -> FloatArray:
        """Mean number of nodes at each distance of the support."""
        counts = sum(np.bincount(hops.ravel(), minlength=support.hi + 1)[: support.hi + 1] for _, hops in self.each)
        return np.asarray(counts / (self.n_graphs * self.n_nodes))[support.lo :]

    def mean_hitting_times(self, support: DistanceSupport) -> FloatArray:
        """E[T | l] of each graph (row) at each distance of the support; NaN where a graph has no such pair."""
        return np.stack([mean_by_distance(chain.mean_hitting_times(), hops, support) for chain, hops in self.each])

    def window_likelihoods(
        self, return_times: FloatArray, *, window_radius: int, support: DistanceSupport
    ) -> FloatArray:
        """Mean chance of a hit within the window, by return time (row) and distance, over all graphs."""
        total = np.zeros((len(return_times), support.size))
        for number, (chain, hops) in enumerate(self.each, start=1):
            for row, return_time in enumerate(return_times):
                likelihood = exact_window_likelihood(chain, float(return_time), window_radius)
                total[row] += mean_by_distance(likelihood, hops, support)
            self.progress(f"degree {self.degree}: exact chains", number, self.n_graphs, "graphs")
        return total / self.n_graphs

    def covered_return_times(self, support: DistanceSupport, shares: FloatArray) -> FloatArray:
        """Mean over graphs of the return time covered with each probability, from exact return laws."""
        times = [covered_return_times(chain, support, list(shares)) for chain, _ in self.each]
        return np.asarray(np.mean(times, axis=0))


NETWORK = (300, (3, 4), DistanceSupport(2, 6))
WINDOW_RADIUS = 5
TAIL_PROBABILITY = 0.3
FIGURES = ("side-information", "probability", "trade-off")

# The supports of the trade-off end so much below and above that of the others: 2:4 to 2:9 around 2:6.
_NARROWER, _WIDER = 2, 3


def reproduce(
    name: str,
    *,
    n_graphs: int = 5,
    seed: int = 1,
    n_nodes: int = NETWORK[0],
    degrees: Sequence[int] = NETWORK[1],
    support: DistanceSupport = NETWORK[2],
    progress: Progress = silent,
) -> Record:
    """Return the record of one figure: ``side-information``, ``probability`` or ``trade-off``."""
    validate.integer(1, graphs=n_graphs)
    validate.integer(0, seed=seed)
    for degree in degrees:
        model_of(n_nodes, degree, support)  # all are refused or none
    makers = dict(zip(FIGURES, (side_information, probability, trade_off), strict=True))
    if name not in makers:
        raise InvalidParameterError("figure", name, f"one of {', '.join(FIGURES)}")
    rows: list[dict[str, Any]] = []
    for degree in degrees:
        sample = SampledGraphs(n_nodes=n_nodes, degree=degree, n_graphs=n_graphs, seed=seed, progress=progress)
        if support.hi > sample.reach:
            need = f"within {sample.reach}, the diameter of a sampled graph of {n_nodes} nodes and degree {degree}"
            raise InvalidParameterError("support", str(support), need)
        rows.extend(makers[name](sample, support))
    return Record(
        kind=f"paper figure: {name}",
        params={
            "n_nodes": n_nodes,
            "degrees": list(degrees),
            "support": str(support) if name != "trade-off" else f"{_supports(support)[0]} to {_supports(support)[-1]}",
            "window_radius": WINDOW_RADIUS,
            "tail_probability": TAIL_PROBABILITY,
            "n_graphs": n_graphs,
        },
        seed=seed,
        result={"rows": rows},
    )


def model_of(n_nodes: int, degree: int, support: DistanceSupport) -> theory.AnonymityModel:
    """The model of such a network, with the paper's window."""
    walk = theory.WalkModel(n_nodes=n_nodes, degree=degree)
    return theory.AnonymityModel(walk=walk, support=support, window_radius=WINDOW_RADIUS)


def _supports(support: DistanceSupport) -> list[DistanceSupport]:
    """The supports of the trade-off."""
    nearest = max(support.hi - _NARROWER, support.lo)
    return [DistanceSupport(support.lo, hi) for hi in range(nearest, support.hi + _WIDER + 1)]


def design_time(model: theory.AnonymityModel) -> float:
    """Kappa by the paper's rule, to the nearest hop: 634 for c = 3, 476 for c = 4."""
    return float(round(theory.design_return_time(TAIL_PROBABILITY, model=model)))


def closed_curves(model: theory.AnonymityModel, return_times: FloatArray) -> dict[str, FloatArray]:
    """Distance entropy H(W) in nats at each return time in ``return_times``, by the printed and the corrected formulas.

    ``*_uniform`` is the paper's "no countermeasure": uniform over distances.
    """
    kappa = design_time(model)
    uniform = np.full(model.support.size, 1 / model.support.size)
    curves: dict[str, FloatArray] = {}
    for name, formulas in (("printed", printed), ("corrected", theory)):
        for suffix, shortest_paths in (("", False), ("_without_fht", True)):
            law = formulas.optimal_distance_pmf(kappa, model=model, shortest_paths=shortest_paths)
            w = formulas.source_posterior(law, return_times, model=model, shortest_paths=shortest_paths)
            curves[name + suffix] = theory.distance_entropy(w)
        w = formulas.source_posterior(uniform, return_times, model=model, shortest_paths=True)
        curves[f"{name}_uniform"] = theory.distance_entropy(w)
    return curves


def exact_curves(
    sample: SampledGraphs, model: theory.AnonymityModel, return_times: FloatArray
) -> dict[str, FloatArray]:
    """The same from exact chains: window likelihoods averaged over sampled graphs, under the corrected law."""
    likelihood = sample.window_likelihoods(return_times, window_radius=WINDOW_RADIUS, support=model.support)
    shells = sample.mean_shells(model.support)
    laws = {
        "exact": theory.optimal_distance_pmf(design_time(model), model=model),
        "exact_uniform": np.full(model.support.size, 1 / model.support.size),
    }
    # W(l) is proportional to p(l)/A(l) times the window likelihood of one node at distance l.
    return {name: theory.distance_entropy(normalised(law / shells * likelihood)) for name, law in laws.items()}


def side_information(sample: SampledGraphs, support: DistanceSupport) -> list[dict[str, Any]]:
    """fig:leakage_over_sideinformation: H(W) against the return time the destination saw."""
    model = model_of(sample.n_nodes, sample.degree, support)
    kappa = design_time(model)
    return_times = np.unique(np.append(np.round(np.geomspace(support.hi + 1, 25 * sample.n_nodes / 3, 39)), kappa))
    curves = closed_curves(model, return_times) | exact_curves(sample, model, return_times)
    promise = theory.guarantee(TAIL_PROBABILITY, model=model, return_time_design=kappa)
    floor_printed = printed.guaranteed_entropy(TAIL_PROBABILITY, model=model)
    return [
        {
            "degree": sample.degree,
            "return_time_design": kappa,
            "return_time_seen": time,
            "return_time_from": promise.return_time_from,
            "maximum_nats": math.log(support.size),
            "floor_printed_nats": floor_printed,
            "floor_corrected_nats": promise.anonymity_floor_nats,
            **{f"{name}_nats": float(values[row]) for name, values in curves.items()},
        }
        for row, time in enumerate(return_times)
    ]


def probability(sample: SampledGraphs, support: DistanceSupport) -> list[dict[str, Any]]:
    """fig:minimum_leakage_over_delta: the least H(W) among the return times covered, against 1 - delta'.

    The design return time stays at its value for delta' = 0.3, as in the paper.
    """
    model = model_of(sample.n_nodes, sample.degree, support)
    kappa = design_time(model)
    tails = np.array([0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    starts: dict[str, FloatArray] = {
        "printed": np.array([printed.guaranteed_return_time(t, model=model) for t in tails]),
        "corrected": np.array([theory.covered_return_time(t, model=model) for t in tails]),
        "exact": sample.covered_return_times(support, 1 - tails),
    }
    # The minimum over all covered return times is taken on a grid that holds the first of each.
    fine = np.geomspace(support.hi + 1, 20 * sample.n_nodes, 300)
    grids = {name: _grid(np.append(fine, first), support) for name, first in starts.items()}
    grids["exact"] = _grid(np.append(np.round(fine[::12]), starts["exact"]), support)
    curves = exact_curves(sample, model, grids["exact"])
    for name in ("printed", "corrected"):
        curves |= {k: v for k, v in closed_curves(model, grids[name]).items() if k.startswith(name)}
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
                "maximum_nats": math.log(support.size),
                "floor_printed_nats": printed.guaranteed_entropy(float(tail), model=model),
                "floor_corrected_nats": promise.anonymity_floor_nats,
                **least,
            }
        )
    return rows


def _grid(times: FloatArray, support: DistanceSupport) -> FloatArray:
    return np.append(np.unique(times[times > support.hi]), math.inf)


def trade_off(sample: SampledGraphs, support: DistanceSupport) -> list[dict[str, Any]]:
    """fig:mean_iteration_times: distance entropy against mean hops per update, supports 2:4 to 2:9 around 2:6.

    Published numbers exist for 300 nodes and c = 3 only, whatever the captions say. Supports beyond the typical
    diameter, or that of every sampled graph, are left out.
    """
    reach = theory.typical_diameter(theory.WalkModel(n_nodes=sample.n_nodes, degree=sample.degree))
    reach = min(reach, max(int(hops.max()) for _, hops in sample.each))
    supports = [candidate for candidate in _supports(support) if candidate.hi <= reach]
    exact = sample.mean_hitting_times(supports[-1])
    rows = []
    for candidate in supports:
        model = model_of(sample.n_nodes, sample.degree, candidate)
        kappa = design_time(model)
        corrected = theory.optimal_distance_pmf(kappa, model=model)
        as_written = printed.optimal_distance_pmf(kappa, model=model)
        per_graph = exact[:, : model.support.size] @ corrected
        on_paper = model.walk == published.WALK and candidate.lo == NETWORK[2].lo and candidate.hi in published.TABLE
        rows.append(
            {
                "support": str(model.support),
                "degree": sample.degree,
                "return_time_design": kappa,
                "distance_entropy_nats": float(
                    theory.distance_entropy(theory.source_posterior(corrected, kappa, model=model))
                ),
                "node_entropy_nats": float(np.log(theory.shell_sizes(model).sum())),
                "published_hops": published.TABLE[candidate.hi][1] if on_paper else None,
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
