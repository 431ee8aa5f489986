"""The content attack: whose data has the model that was delivered just learnt from?

Anonymous routing hides where an update came from, not what it says. The attacker is granted the data of every
candidate, as in Shatter's linkability attack, which is more than a real one will have. Its evidence is

``loss``
    the loss of the received model on each candidate's data, lowest first (Shatter);
``drop``
    how far that loss has fallen since the destination's own last model, the only earlier one it holds;
``step``
    how far it fell in the very update. That takes the model before it, which only the update's predecessor holds,
    who chose the source and knows it anyway: an upper bound on what content can give away, not an attack.

Each alone, and joined with what the route says. Evidence becomes a posterior by exp(evidence / temperature), with the
temperature fitted on one half of the deliveries and used on the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from veilwalk.audit import SCORES, estimate, score
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.experiments._train_setup import Setup
from veilwalk.graphs import distances
from veilwalk.learning import Params, Tell, TrainingTrace, candidate_losses, train

EVIDENCE = ("loss", "drop", "step")
# Runs of consecutive deliveries, whose means the intervals are from: neighbours in time are not independent.
_BLOCKS = 20
_MEANS = ("node_entropy_nats", "inverse_rank", "ndcg")


def attacked_rows(trace: TrainingTrace, count: int) -> IntArray:
    """Return up to ``count`` deliveries, evenly spread, whose destination has updated before and whose source too."""
    earlier = np.ones(len(trace), dtype=np.bool_)
    for column in (trace.node, trace.model):
        earlier[np.unique(column, return_index=True)[1]] = False
    found = np.flatnonzero(earlier)
    return found[np.unique(np.linspace(0, len(found) - 1, min(count, len(found))).astype(np.int64))]


@dataclass(frozen=True, eq=False)
class Evidence:
    """For each delivery (row) and candidate (column) how much speaks for it; -inf for the destination itself."""

    by_name: dict[str, FloatArray]
    sources: IntArray


def gather_evidence(setup: Setup, trace: TrainingTrace, rows: IntArray, tell: Tell | None = None) -> Evidence:
    """Train along ``trace`` once more and look at the models delivered in ``rows`` as an attacker would."""
    collector = _Collector(setup, trace, rows)
    train(setup.task(trace.algorithm), trace.first(int(rows[-1]) + 1), evaluations=1, observe=collector.see, tell=tell)
    return Evidence({name: collector.found[name] for name in EVIDENCE}, trace.source[rows])


class _Collector:
    """Keeps what each party would hold: destinations their own last model, predecessors the one they received."""

    def __init__(self, setup: Setup, trace: TrainingTrace, rows: IntArray) -> None:
        self._setup, self._trace = setup, trace
        self._place = {int(row): index for index, row in enumerate(rows)}
        self._own: dict[int, Params] = {}
        self._before: dict[int, Params] = {}
        shape = (len(rows), setup.graph.n_nodes)
        self.found = {name: np.full(shape, -np.inf) for name in EVIDENCE}

    def see(self, row: int, received: Params, sent: Params) -> None:
        """Look at one update: ``received`` is what was delivered to the node that makes it."""
        node, model = int(self._trace.node[row]), int(self._trace.model[row])
        index = self._place.get(row)
        if index is not None:
            losses = self._losses(received)
            evidence = {
                "loss": -losses,
                "drop": self._losses(self._own[node]) - losses,
                "step": self._losses(self._before[model]) - losses,
            }
            for name, values in evidence.items():
                # A candidate without data fits nothing; the destination did not send it to itself.
                self.found[name][index] = np.where(np.isfinite(values), values, np.nanmin(values))
                self.found[name][index, node] = -np.inf
        self._own[node], self._before[model] = sent, received

    def _losses(self, params: Params) -> FloatArray:
        return candidate_losses(self._setup.learner, params, self._setup.partitions)


def content_attack(setup: Setup, evidence: Evidence, route: FloatArray) -> list[dict[str, Any]]:
    """Score every attacker: the route alone, content alone, both together."""
    rows = [_scored("route alone", route, evidence.sources, setup)]
    flat = np.isfinite(evidence.by_name["loss"]).astype(np.float64)
    for name in EVIDENCE:
        for label, base in ((f"content alone: {name}", normalised(flat)), (f"route and content: {name}", route)):
            posterior, temperature = _joined(evidence.by_name[name], base, evidence.sources)
            rows.append(_scored(label, posterior, evidence.sources, setup) | {"temperature_nats": temperature})
    return rows


def _joined(evidence: FloatArray, base: FloatArray, sources: IntArray) -> tuple[FloatArray, float]:
    """Return base times exp(evidence / temperature), each half of the rows with the temperature of the other."""
    half = np.arange(len(evidence)) % 2 == 0
    posterior, temperatures = np.empty_like(base), []
    for mine, other in ((half, ~half), (~half, half)):
        temperature = _fitted(evidence[other], base[other], sources[other])
        posterior[mine] = np.exp(_log_posterior(evidence[mine], base[mine], temperature))
        temperatures.append(temperature)
    return posterior, float(np.mean(temperatures))


def _log_posterior(evidence: FloatArray, base: FloatArray, temperature: float) -> FloatArray:
    with np.errstate(divide="ignore"):
        total = np.log(base) + evidence / temperature
    return np.asarray(total - special.logsumexp(total, axis=1, keepdims=True))


def _fitted(evidence: FloatArray, base: FloatArray, sources: IntArray) -> float:
    """Return the temperature that makes the true sources likeliest."""
    rows = np.arange(len(sources))

    def surprise(log_temperature: float) -> float:
        return -float(_log_posterior(evidence, base, float(np.exp(log_temperature)))[rows, sources].mean())

    # From a thousandth to ten thousand nats: at either end content says all, or nothing.
    best = optimize.minimize_scalar(surprise, bounds=(np.log(1e-3), np.log(1e4)), method="bounded")
    return float(np.exp(best.x))


def _scored(label: str, posterior: FloatArray, sources: IntArray, setup: Setup) -> dict[str, Any]:
    apart = distances(setup.graph)[0]
    # Distances play no part in the scores that are shown.
    values = score(posterior, sources, apart, setup.law.support)
    lanes = np.arange(len(sources)) * min(_BLOCKS, len(sources)) // len(sources)
    hits = values[:, SCORES.index("hit_ratio")]
    # Exact for counts: no hit at all still leaves room for some.
    range_ = stats.binomtest(round(float(hits.sum())), len(hits)).proportion_ci(0.95)
    row: dict[str, Any] = {"attacker": label, "deliveries": len(sources), "hit_ratio": float(hits.mean())}
    row["hit_ratio_interval"] = [float(range_.low), float(range_.high)]
    for name in _MEANS:
        found = estimate(values[:, SCORES.index(name)], lanes)
        row |= {name: found.mean, f"{name}_interval": [found.low, found.high]}
    return row
