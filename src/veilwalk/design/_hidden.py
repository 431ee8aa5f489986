"""What sealing for several leaves hidden from who opens: node entropy and best guesses, and how sure they are.

P(opener and last hop, source) is estimated by walks with the set summed out (``walks.estimate_openings``), in groups
that are independent. An entropy of estimated shares is too low, by about (shares)/(2 observations): the jackknife over
groups takes that off to first order, and its spread gives the interval. A best guess fitted on the very walks it is
scored by is too good; fitted on the others it is no better than true. Both are told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.stats import Estimate, estimate_mean, jackknife
from veilwalk.design._far import FarLaw
from veilwalk.design._hidden_classes import class_bound
from veilwalk.design._scheme import Price, Scheme
from veilwalk.walks import Openings, estimate_openings

#: Hops that are followed, in all, for each entry of the table of arcs by sources: as told, and as first looked at.
THOROUGH, QUICK = 100, 20
_GROUPS = 8
# Tables of arcs by sources are held, one a group and sixteen more at work, up to so many entries.
_TABLE_ENTRIES = 4_000_000
# Deliveries that are played where tables do not fit.
_DELIVERIES = 16_384
_LEAST_ENTRIES, _MOST_HOPS, _LEAST_LEGS = 20_000, 120_000_000, 320
# A leg is followed until hardly any set leaves it unopened: about so many times its mean.
_FOLLOWED = 20
# More than this share of legs that no end was seen of would shorten the price, and raise the entropy, too much.
_CUT_OFF = 0.003
# The share of deliveries that is called the worst.
_WORST = 0.01


@dataclass(frozen=True, kw_only=True)
class Hidden:
    """What an opener that knows its last hop can tell of the source, and what one can that does not.

    Attributes:
        kind: How it was found.
        price: Mean hops between two updates, from the same walks.
        last_hop_nats: Node entropy left to an opener that knows who handed it the message.
        opener_nats: To one that knows only that it opened; None where only a bound by classes was found.
        top_posterior: How often its best guess is right: by a guess fitted on other walks, and on the same.
        worst_percent: That over the arcs on which it is right most often and that see 1% of deliveries.
        worst_arc: That on the one arc where it is right most often.
        update_range: How often the rarest and the most frequent source update, times the mean: of all nodes, or of
            classes by degree where only a bound by classes was found.
    """

    kind: str
    price: Price
    last_hop_nats: Estimate
    update_range: tuple[float, float]
    opener_nats: Estimate | None = None
    top_posterior: tuple[float, float] | None = None
    worst_percent: tuple[float, float] | None = None
    worst_arc: tuple[float, float] | None = None


def what_is_hidden(scheme: Scheme, *, effort: int = THOROUGH) -> Hidden:
    """Return what a scheme leaves hidden, from tables where they fit, else bounded by classes of pairs.

    ``effort`` says how many hops are followed for each entry of a table, and up to which size there are tables.
    """
    entries = len(scheme.graph.indices) * scheme.graph.n_nodes
    if entries <= _TABLE_ENTRIES * effort / THOROUGH:
        groups = _followed(scheme, min(effort * max(entries, _LEAST_ENTRIES), _MOST_HOPS))
        if groups is not None:
            return _told(scheme, groups)
    bound, price, often = class_bound(scheme, _DELIVERIES * effort // THOROUGH)
    kind = f"upper bound by classes of pairs, {bound.count} deliveries played"
    return Hidden(kind=kind, price=price, last_hop_nats=bound, update_range=often)


def _followed(scheme: Scheme, hops: int) -> list[Openings] | None:
    """Return openings in groups; None where legs are so long, as on trees, that too many are cut off."""
    eligible = float(scheme.law.choices.mean())
    leg = 1.5 * (eligible + 1) / (scheme.recipients + 1) + 10.0
    legs = max(int(hops / (_FOLLOWED * leg * _GROUPS)), _LEAST_LEGS)
    groups = []
    for group in range(_GROUPS):
        try:
            found = estimate_openings(
                scheme.graph, scheme.law.draws, scheme.recipients, walk=scheme.walk, legs=legs, seed=1 + group
            )
        except InvalidParameterError:
            return None
        if found.unopened > _CUT_OFF:
            return None
        groups.append(found)
    return groups


def _told(scheme: Scheme, groups: Sequence[Openings]) -> Hidden:
    graph = scheme.graph
    legs = sum(group.legs for group in groups)
    heads = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    tables = [group.joint for group in groups]
    together = np.mean(tables, axis=0)
    hops = estimate_mean(np.array([group.hops for group in groups]), student=True)
    price = Price(hops.mean, f"estimated from {legs} walks, sets summed out", hops.interval)

    def by_opener(table: FloatArray) -> FloatArray:
        return np.add.reduceat(table, graph.indptr[:-1].astype(np.int64), axis=0)

    often = np.bincount(heads, weights=together.sum(axis=1), minlength=graph.n_nodes) * graph.n_nodes
    most = math.log(_candidates(scheme))
    top, worst, arc = _guesses(tables, together)
    return Hidden(
        kind=f"estimated from {legs} walks, sets summed out; jackknife over {len(groups)} groups",
        price=price,
        last_hop_nats=_jackknifed(tables, together, legs, most),
        opener_nats=_jackknifed([by_opener(one) for one in tables], by_opener(together), legs, most),
        top_posterior=top,
        worst_percent=worst,
        worst_arc=arc,
        update_range=(float(often.min()), float(often.max())),
    )


def _candidates(scheme: Scheme) -> int:
    """Return how many can be the source to one that opens, at most; the law of far recipients works both ways."""
    if isinstance(scheme.law, FarLaw):
        return int(scheme.law.choices.max())
    return max(scheme.graph.n_nodes - 1, 2)


def conditional_entropy(table: FloatArray) -> float:
    """Return the mean entropy of the column given the row, in nats."""
    shares = table / table.sum()
    return float(special.entr(shares).sum() - special.entr(shares.sum(axis=1)).sum())


def _jackknifed(tables: Sequence[FloatArray], together: FloatArray, legs: int, most: float) -> Estimate:
    """Return the entropy of the mean of ``tables`` less its bias of first order, with its interval.

    ``most`` is what no entropy here can exceed: with few walks too much may be taken off.
    """
    size = len(tables)
    whole = conditional_entropy(together)
    left_out = np.array([conditional_entropy((size * together - one) / (size - 1)) for one in tables])
    return jackknife(whole, left_out, most=most, count=legs)


def _guesses(
    tables: Sequence[FloatArray], together: FloatArray
) -> tuple[tuple[float, float], tuple[float, float], tuple[float, float]]:
    """Return how often the best guess is right: in all, over the worst percent, on the worst arc.

    Each by guesses, and a choice of the worst arcs, made from one half of the walks and scored by the other; and made
    and scored by all.
    """
    half = len(tables) // 2
    one, other = np.mean(tables[:half], axis=0), np.mean(tables[half:], axis=0)
    same = _scored(together, together)
    apart = [_scored(one, other), _scored(other, one)]
    first, second, third = (
        (float(np.mean([found[place] for found in apart])), same[place]) for place in range(len(same))
    )
    return first, second, third


def _scored(fitted: FloatArray, scored: FloatArray) -> tuple[float, float, float]:
    arrived = fitted.sum(axis=1)
    rows = np.flatnonzero(arrived > 0)
    guess = fitted[rows].argmax(axis=1)
    promised = fitted[rows, guess] / arrived[rows]
    hit, seen = scored[rows, guess], scored[rows].sum(axis=1)
    order = np.argsort(-promised, kind="stable")
    count = int(np.searchsorted(np.cumsum(seen[order]), _WORST * seen.sum())) + 1
    worst = order[:count]
    return (
        float(hit.sum() / scored.sum()),
        float(hit[worst].sum() / seen[worst].sum()),
        float(hit[order[0]] / max(seen[order[0]], 1e-300)),
    )
