"""Scores posteriors against the truth, and summarises scores with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.stats import Estimate, quantile_edges, student_quantile, wilson_interval
from veilwalk.core.support import DistanceSupport

#: Names of the scores, in the order of the columns of :func:`score_posteriors`.
SCORES = (
    "node_entropy_nats",
    "distance_entropy_nats",
    "min_entropy_nats",
    "top_posterior",
    "hit_ratio",
    "inverse_rank",
    "ndcg",
)
#: Those that lie from 0 to 1, and so do their intervals.
SHARES = ("top_posterior", "hit_ratio", "inverse_rank", "ndcg")
# Fewer hits or misses than this are few.
_FEW = 10
# A smaller variance between lanes is rounding.
_ROUNDING = 1e-20
# Quantiles that cut return times: finely where they are short, since there the observer learns most.
_CUTS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Fewest updates of a worst destination or arc.
_ENOUGH = 50
# The makers that are named most often, and the updates of the mean beside those of each.
_TENTH, _TRUSTED = 0.1, 4.0
# The share of updates that the observer knows best.
_WORST_SHARE = 0.01
# Scores of groups of linked updates, and the lane of each group's first update.
Linked = tuple[FloatArray, IntArray]


def score_posteriors(
    posteriors: FloatArray, sources: IntArray, hops_away: IntArray, support: DistanceSupport
) -> FloatArray:
    """Score each posterior (row) against its true source; columns as in ``SCORES``.

    Node entropy, min-entropy (-log of the top) and the top itself are properties of the posterior. Distance entropy
    is the paper's: of the mean weight of ONE node at each distance (``hops_away``). Hit ratio,
    inverse rank and NDCG measure the rank of the true source; ties share their places evenly.
    """
    rows = np.arange(len(posteriors))
    true_weight = posteriors[rows, sources][:, np.newaxis]
    above = (posteriors > true_weight).sum(axis=1)
    # Weights equal to the true source's, itself included: it may have any of these places.
    ties = (posteriors == true_weight).sum(axis=1)
    top = posteriors.max(axis=1)
    out = np.empty((len(posteriors), len(SCORES)))
    out[:, 0] = special.entr(posteriors).sum(axis=1)
    out[:, 1] = _distance_entropies(posteriors, hops_away, support)
    out[:, 2] = -np.log(top)
    out[:, 3] = top
    out[:, 4] = np.where(above == 0, 1 / ties, 0.0)
    place = np.arange(1.0, posteriors.shape[1] + 1)
    out[:, 5] = _mean_over_places(1 / place, above, ties)
    out[:, 6] = _mean_over_places(1 / np.log2(1 + place), above, ties)
    return out


def _distance_entropies(posteriors: FloatArray, hops_away: IntArray, support: DistanceSupport) -> FloatArray:
    shells = (hops_away == support.distances[:, np.newaxis]).astype(np.float64)
    mean = posteriors @ (shells / np.maximum(shells.sum(axis=1, keepdims=True), 1)).T
    total = mean.sum(axis=1, keepdims=True)
    # A posterior wholly outside the support (a plain walk) has one certain distance.
    return np.asarray(special.entr(mean / np.where(total > 0, total, 1.0)).sum(axis=1))


def _mean_over_places(gain: FloatArray, above: IntArray, ties: IntArray) -> FloatArray:
    """Mean of ``gain`` over the places above+1 to above+ties, by prefix sums."""
    sums = np.concatenate(([0.0], np.cumsum(gain)))
    return np.asarray((sums[above + ties] - sums[above]) / ties)


def estimate_over_lanes(values: FloatArray, lanes: IntArray, *, share: bool = False) -> Estimate:
    """Mean of ``values`` with an interval from the spread of lane means.

    Updates of one token follow each other and are not quite independent; lanes are, so they are the sample. Of a
    ``share``, whose values lie from 0 to 1, an interval that would leave these is replaced by Wilson's for as many
    independent updates as would spread as far; so is that of a share near 0 or 1.
    """
    counts = np.bincount(lanes)
    used = counts > 0
    means = np.bincount(lanes, weights=values)[used] / counts[used]
    weight = normalised(counts[used].astype(np.float64))
    mean = float(weight @ means)
    if share:
        # Rounding may exceed 1; exact arithmetic does not.
        mean = min(mean, 1.0)
    if len(means) < 2:
        return Estimate(mean, 0.0, 1.0) if share else Estimate(mean, -np.inf, np.inf)
    # Variance of a weighted mean of independent lane means.
    free = len(means) - 1
    variance = float((weight**2) @ (means - mean) ** 2) * len(means) / free
    quantile = student_quantile(free)
    few = min(mean, 1.0 - mean) * len(values) < _FEW
    if share and few:
        # A few hits may fall evenly on the lanes by chance: use at least the variance between updates.
        variance = max(variance, float(values.var(ddof=1)) / len(values))
    half = quantile * variance**0.5
    if share and (few or not 0.0 <= mean - half <= mean + half <= 1.0):
        # Where all hit, or all miss, the variance is 0: the size is the number of updates.
        even = values[0] in {0.0, 1.0} and bool((values == values[0]).all())
        size = mean * (1.0 - mean) / variance if variance > _ROUNDING else math.inf
        return wilson_interval(mean, len(values) if even else size, quantile)
    return Estimate(mean, mean - half, mean + half)


def _no_column() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Exposed:
    """The maker of each scored update, and of each node how many neighbours collude, and whether it does not."""

    makers: IntArray
    watched: IntArray
    honest: BoolArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Scored:
    """Scored updates of one observer: a row each, or tables by number of linked updates.

    ``sampled``: the destinations are a sample; intervals then come from their spread, not from that of the lanes.
    ``floor`` is the share of colluding nodes: no routing keeps a coalition from naming that share. ``linked`` has a
    table for each number of linked updates and what they are; ``subsets`` are places of rows; ``exposure`` is of
    coalitions.
    """

    how: str
    sampled: bool = False
    scores: FloatArray = field(default_factory=lambda: np.zeros((0, len(SCORES))))
    blind: FloatArray = field(default_factory=lambda: np.zeros(0))
    lanes: IntArray = field(default_factory=_no_column)
    return_time: IntArray = field(default_factory=_no_column)
    destination: IntArray = field(default_factory=_no_column)
    last_hop: IntArray = field(default_factory=_no_column)
    floor: float = 0.0
    linked: dict[tuple[int, str], Linked] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)
    subsets: dict[str, IntArray] = field(default_factory=dict)
    exposure: Exposed | None = None


def summarise_scores(scored: Scored) -> dict[str, Any]:
    """Return overall, by_return_time (quantiles) and worst rows; or by_linked_updates.

    The worst rows are the destination and the arc (last hop and destination) with the least mean node entropy, among
    those with enough updates, and the percent of updates with the least.
    """
    report: dict[str, Any] = {"posterior": scored.how, "scored_updates": len(scored.scores)} | scored.facts
    if scored.linked:
        report["by_linked_updates"] = [
            {"linked": count, **({"of": of} if of else {}), **_summarise_table(scores, lanes, None, scored.floor)}
            for (count, of), (scores, lanes) in scored.linked.items()
        ]
        return report
    everything = np.arange(len(scored.scores))
    report["overall"] = _summarise_rows(scored, everything)
    report["by_return_time"] = [_summarise_rows(scored, rows) for rows in _quantile_bins(scored.return_time)]
    report["worst_destination"] = _worst_group(scored, "destination")
    report["worst_arc"] = _worst_group(scored, "destination", "last_hop")
    fewest = max(round(_WORST_SHARE * len(everything)), 1)
    report["worst_percent"] = _summarise_rows(scored, np.sort(np.argsort(scored.scores[:, 0], kind="stable")[:fewest]))
    if scored.subsets:
        report["by_knowledge"] = [
            {"of": name, **_summarise_rows(scored, rows)} for name, rows in scored.subsets.items()
        ]
    if scored.exposure is not None:
        report["by_maker"] = _rows_by_maker(scored, scored.exposure)
    return report


def _rows_by_maker(scored: Scored, exposure: Exposed) -> list[dict[str, Any]]:
    """Return rows over makers with so many colluding neighbours, and over the tenth of makers that is named most often.

    The tenth is chosen on one half of the lanes and scored on the other, both ways.
    """
    watched, rows = exposure.watched[exposure.makers], []
    for count in np.unique(watched):
        makers = int((exposure.honest & (exposure.watched == count)).sum())
        row = _summarise_rows(scored, np.flatnonzero(watched == count))
        rows.append({"makers": f"{count} colluding neighbours", "colluding_neighbours": int(count), "of": makers} | row)
    half, hits = scored.lanes % 2 == 1, scored.scores[:, SCORES.index("hit_ratio")]
    worst = np.zeros(len(half), dtype=np.bool_)
    for chosen in (half, ~half):
        counts, named = (np.bincount(exposure.makers[chosen], w, len(exposure.honest)) for w in (None, hits[chosen]))
        # The mean counts as some updates of each: a maker of one update is not worst by luck.
        rate = np.where(counts > 0, (named + hits.mean() * _TRUSTED) / (counts + _TRUSTED), -1.0)
        tenth = np.argsort(-rate, kind="stable")[: max(round(_TENTH * int(exposure.honest.sum())), 1)]
        worst |= ~chosen & np.isin(exposure.makers, tenth)
    if worst.any():
        rows.append({"makers": "worst tenth", "of": len(tenth)} | _summarise_rows(scored, np.flatnonzero(worst)))
    return rows


def _quantile_bins(return_time: IntArray) -> list[IntArray]:
    if not len(return_time):
        return []
    edges = quantile_edges(return_time, _CUTS)
    index = np.searchsorted(edges, return_time)
    return [rows for b in range(len(edges) + 1) if len(rows := np.flatnonzero(index == b))]


def _summarise_rows(scored: Scored, rows: IntArray) -> dict[str, Any]:
    place: dict[str, Any] = {"lo": None, "hi": None, "share": len(rows) / len(scored.scores)} | scored.facts
    if len(scored.return_time):
        times = scored.return_time[rows]
        place |= {"lo": int(times.min()), "hi": int(times.max())}
    groups = scored.destination if scored.sampled and len(np.unique(scored.destination[rows])) > 1 else scored.lanes
    return place | _summarise_table(scored.scores[rows], groups[rows], scored.blind[rows], scored.floor)


def _summarise_table(scores: FloatArray, groups: IntArray, blind: FloatArray | None, floor: float) -> dict[str, Any]:
    """Return mean and 95% interval of every score, in nats and bits, with the hit ratio of a blind guess."""
    row: dict[str, Any] = {"updates": len(scores)}
    for column, name in enumerate(SCORES):
        mean = estimate_over_lanes(scores[:, column], groups, share=name in SHARES)
        row[name], row[f"{name}_interval"] = mean.mean, [mean.low, mean.high]
        if name.endswith("_nats"):
            row[name.replace("_nats", "_bits")] = mean.mean / math.log(2)
    row["effective_anonymity_set"] = math.exp(row["node_entropy_nats"])
    if blind is not None:
        row["blind_hit_ratio"] = float(blind.mean())
    if floor > 0.0:
        row |= {"floor": floor, "times_floor": row["hit_ratio"] / floor}
    return row


def _worst_group(scored: Scored, *names: str) -> dict[str, Any] | None:
    """Return the row over the updates alike in these columns that have the least mean node entropy.

    Returns None where no group has enough updates.
    """
    columns = np.stack([getattr(scored, name) for name in names])
    nodes, group = np.unique(columns, axis=1, return_inverse=True)
    counts, entropy = np.bincount(group.ravel()), np.bincount(group.ravel(), weights=scored.scores[:, 0])
    if counts.max() < _ENOUGH:
        return None
    worst = np.where(counts >= _ENOUGH, entropy / counts, np.inf).argmin()
    ends = {name: int(node) for name, node in zip(names, nodes[:, worst], strict=True)}
    return ends | _summarise_rows(scored, np.flatnonzero(group.ravel() == worst))
