"""Scores of posteriors against the truth, and the rows that people read, each with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.stats import Estimate, quantile_bins, quantile_edges, student_quantile, wilson_interval
from veilwalk.core.support import DistanceSupport

#: Names of the scores, in the order of the columns of :func:`score`.
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
# Fewer hits than these, or misses, are few.
_FEW = 10
# Lanes that differ by less are the same.
_ROUNDING = 1e-20
# Where return times are cut: finely where they are short, for there the observer learns most.
_CUTS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# A destination or an arc with fewer updates than this is not called the worst.
_ENOUGH = 50
# The share of updates of which the observer knows most.
_WORST_SHARE = 0.01
# Scores of groups of linked updates, and the lane of each group's first update.
Linked = tuple[FloatArray, IntArray]


def score(posteriors: FloatArray, sources: IntArray, hops_away: IntArray, support: DistanceSupport) -> FloatArray:
    """Score each posterior (row) against its true source; columns as in ``SCORES``.

    Node entropy, min-entropy (-log of the top) and the top itself are properties of the posterior. Distance entropy
    is the paper's: of the mean weight of ONE node at each distance, ``hops_away`` holding each node's. Hit ratio,
    inverse rank and NDCG ask where the true source stands; ties share their places evenly.
    """
    rows = np.arange(len(posteriors))
    mine = posteriors[rows, sources][:, np.newaxis]
    above = (posteriors > mine).sum(axis=1)
    # Equal to the true source's weight, itself included: it may stand on any of these places.
    ties = (posteriors == mine).sum(axis=1)
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
    # A posterior wholly outside the support (a plain walk's) has one certain distance.
    return np.asarray(special.entr(mean / np.where(total > 0, total, 1.0)).sum(axis=1))


def _mean_over_places(gain: FloatArray, above: IntArray, ties: IntArray) -> FloatArray:
    """Mean of ``gain`` over the places above+1 to above+ties, by prefix sums."""
    sums = np.concatenate(([0.0], np.cumsum(gain)))
    return np.asarray((sums[above + ties] - sums[above]) / ties)


def estimate(values: FloatArray, lanes: IntArray, *, share: bool = False) -> Estimate:
    """Mean of ``values`` with an interval from the spread of lane means.

    Updates of one token follow each other and are not quite independent; lanes are, so they are the sample. Of a
    ``share``, whose values lie from 0 to 1, an interval that would leave these is replaced by Wilson's for as many
    independent updates as would spread as far; and so is that of a share of nearly none or nearly all.
    """
    counts = np.bincount(lanes)
    used = counts > 0
    means = np.bincount(lanes, weights=values)[used] / counts[used]
    weight = normalised(counts[used].astype(np.float64))
    mean = float(weight @ means)
    if share:
        # Rounding alone could leave what it never leaves in exact arithmetic.
        mean = min(mean, 1.0)
    if len(means) < 2:
        return Estimate(mean, 0.0, 1.0) if share else Estimate(mean, -np.inf, np.inf)
    # Variance of a weighted mean of independent lane means.
    free = len(means) - 1
    variance = float((weight**2) @ (means - mean) ** 2) * len(means) / free
    quantile = student_quantile(free)
    few = min(mean, 1.0 - mean) * len(values) < _FEW
    if share and few:
        # Few hits may fall evenly on the lanes by chance: no less than they spread among updates.
        variance = max(variance, float(values.var(ddof=1)) / len(values))
    half = quantile * variance**0.5
    if share and (few or not 0.0 <= mean - half <= mean + half <= 1.0):
        # Where all hit, or all miss, nothing spreads: there are as many as there are.
        even = values[0] in {0.0, 1.0} and bool((values == values[0]).all())
        size = mean * (1.0 - mean) / variance if variance > _ROUNDING else math.inf
        return wilson_interval(mean, len(values) if even else size, quantile)
    return Estimate(mean, mean - half, mean + half)


def _nothing() -> FloatArray:
    return np.zeros((0, len(SCORES)))


def _no_column() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scored:
    """Scored updates of one observer: a row each, or tables by number of linked updates.

    ``sampled`` says that the destinations are a sample of all: intervals then come from their spread, not the lanes'.
    ``floor`` is the share of nodes that collude, 0 where none do: no routing keeps a coalition from naming that share.
    """

    how: str
    sampled: bool = False
    scores: FloatArray = field(default_factory=_nothing)
    blind: FloatArray = field(default_factory=lambda: np.zeros(0))
    lanes: IntArray = field(default_factory=_no_column)
    return_time: IntArray = field(default_factory=_no_column)
    destination: IntArray = field(default_factory=_no_column)
    last_hop: IntArray = field(default_factory=_no_column)
    floor: float = 0.0
    linked: dict[int, Linked] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)


def observer_report(scored: Scored) -> dict[str, Any]:
    """Return overall, by_return_time (quantiles) and worst rows; by_linked_updates where there are.

    Worst are the destination and the arc (last hop and destination) with the least mean node entropy, among those with
    enough updates to say, and the percent of updates with the least.
    """
    report: dict[str, Any] = {"posterior": scored.how, "scored_updates": len(scored.scores)} | scored.facts
    if scored.linked:
        report["by_linked_updates"] = [
            {"linked": count, **_row(scores, lanes, None, scored.floor)}
            for count, (scores, lanes) in scored.linked.items()
        ]
        return report
    everything = np.arange(len(scored.scores))
    report["overall"] = _chosen(scored, everything)
    report["by_return_time"] = [_chosen(scored, rows) for rows in _quantile_bins(scored.return_time)]
    report["worst_destination"] = _worst(scored)
    report["worst_arc"] = _worst_arc(scored)
    fewest = max(round(_WORST_SHARE * len(everything)), 1)
    report["worst_percent"] = _chosen(scored, np.sort(np.argsort(scored.scores[:, 0], kind="stable")[:fewest]))
    return report


def _quantile_bins(return_time: IntArray) -> list[IntArray]:
    if not len(return_time):
        return []
    edges = quantile_edges(return_time, _CUTS)
    index = quantile_bins(edges, return_time)
    return [rows for b in range(len(edges) + 1) if len(rows := np.flatnonzero(index == b))]


def _chosen(scored: Scored, rows: IntArray) -> dict[str, Any]:
    place: dict[str, Any] = {"lo": None, "hi": None, "share": len(rows) / len(scored.scores)} | scored.facts
    if len(scored.return_time):
        times = scored.return_time[rows]
        place |= {"lo": int(times.min()), "hi": int(times.max())}
    groups = scored.destination if scored.sampled and len(np.unique(scored.destination[rows])) > 1 else scored.lanes
    return place | _row(scored.scores[rows], groups[rows], scored.blind[rows], scored.floor)


def _row(scores: FloatArray, groups: IntArray, blind: FloatArray | None, floor: float) -> dict[str, Any]:
    """Mean and 95% interval of every score, in nats and bits; what a blind guess would hit stands beside."""
    row: dict[str, Any] = {"updates": len(scores)}
    for column, name in enumerate(SCORES):
        found = estimate(scores[:, column], groups, share=name in SHARES)
        row[name], row[f"{name}_interval"] = found.mean, [found.low, found.high]
        if name.endswith("_nats"):
            row[name.replace("_nats", "_bits")] = found.mean / math.log(2)
    row["effective_anonymity_set"] = math.exp(row["node_entropy_nats"])
    if blind is not None:
        row["blind_hit_ratio"] = float(blind.mean())
    if floor > 0.0:
        row |= {"floor": floor, "times_floor": row["hit_ratio"] / floor}
    return row


def _worst(scored: Scored) -> dict[str, Any] | None:
    """The destination with the least mean node entropy, among those with enough updates to say."""
    rows = _least(scored.scores[:, 0], scored.destination)
    return None if rows is None else {"destination": int(scored.destination[rows[0]])} | _chosen(scored, rows)


def _worst_arc(scored: Scored) -> dict[str, Any] | None:
    """The same of last hop and destination together."""
    if not len(scored.last_hop):
        return None
    _, arc = np.unique(np.stack((scored.destination, scored.last_hop)), axis=1, return_inverse=True)
    rows = _least(scored.scores[:, 0], arc.ravel())
    if rows is None:
        return None
    ends = {"destination": int(scored.destination[rows[0]]), "last_hop": int(scored.last_hop[rows[0]])}
    return ends | _chosen(scored, rows)


def _least(entropy: FloatArray, group: IntArray) -> IntArray | None:
    """The rows of the group with the least mean; None where no group has enough."""
    counts = np.bincount(group)
    mean = np.where(counts >= _ENOUGH, np.bincount(group, weights=entropy) / np.maximum(counts, 1), np.inf)
    return np.flatnonzero(group == mean.argmin()) if np.isfinite(mean.min()) else None
