"""Estimates the exposure of a source by sampled walks, for any number of recipients.

**The opener.** P(opener and last hop, source) is exact on small networks where all sets can be listed. Else it is
estimated by walks with the set summed out (``walks.estimate_openings``), in independent groups; where legs
of a small network are too long to follow, by drawn sets with exact chains. An entropy of estimated shares is too low by
about (shares)/(2 observations): the jackknife over groups removes that to first order, and its spread gives the
interval. A best guess that is fitted on the walks that score it is too good; fitted on other walks it is too bad. Both
are given.

**On graphs too large for tables** the entropy has an upper bound by classes of pairs. Let m be any law of sources; here
it depends on the degree, with the shares of degrees among sources. With an arc for opener and last hop

    H(source | arc) = -E log m(source) - D(pairs || arcs x m),

and D, a relative entropy, only falls when pairs are merged into classes: the distance from source to opener, whether
the last hop is nearer to the source, and the magnitude of the opener's degree. So classes give an upper bound on the
node entropy, up to sampling. On random regular graphs the bound is close.

**The predecessor**, the source itself, guesses the opener; **colluders** name the neighbour that handed them a message,
and read what any of them holds if it is for one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from veilwalk.chains import MeanOpenings
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.sizes import SMALL_NODES, TABLE_ENTRIES
from veilwalk.core.stats import Estimate, estimate_mean, geometric_starts, jackknife
from veilwalk.design._channel import Channel, Exposure
from veilwalk.design._kernels import classify_balls, count_openers
from veilwalk.design._overlay import expose_overlay
from veilwalk.design._scheme import Price, Scheme, n_parallel_lanes
from veilwalk.graphs import Graph, balls
from veilwalk.walks import Openings, draw_recipients, estimate_openings

#: Hops per entry of the table of arcs by sources: for a design, and for a row of a search.
THOROUGH, QUICK = 100, 20
_GROUPS = 8
# Deliveries to play where tables do not fit.
_DELIVERIES = 16_384
_LEAST_ENTRIES, _MOST_HOPS, _LEAST_LEGS = 20_000, 120_000_000, 320
# Sets to draw in all, where legs are too long to be followed.
_DRAWN_SETS = 40_000
# A leg is followed for about so many times its mean, until hardly any set leaves it unopened.
_FOLLOWED = 20
# A larger share of legs without an end would shorten the price, and raise the entropy, too much.
_CUT_OFF = 0.003
# The share of deliveries on the worst arcs.
_WORST = 0.01
# For the bound by classes.
_LEAST_DELIVERIES, _PLAYED_HOPS = 1_024, 2_000_000_000
# Nodes in a ball around opener and last hop, about; deliveries whose pairs are weighed.
_BALL_NODES, _CENTRES = 2_000, 2_048
_CLASS_GROUPS = 16
#: Shares of colluders in a design, and the one in a row of a search.
SHARES, TENTH = (0.01, 0.05, 0.1, 0.2), 0.1
_SETS, _WALKS, _FEWEST_WALKS = 256, 2_000, 200
_EXACT_NODES = 1_000
_PLACEMENTS, _UPDATES = 8, 40_000
# Updates to play for return times, the classes of these, and the rarest observation that counts by itself.
_RETURNS, _RETURN_SEED, _RETURN_CLASSES, _FEWEST_CLASSES, _RARE = 2_000_000, 11, 24, 6, 60
# Arcs up to which the channel of one recipient is exact in seconds.
_CHANNEL_ARCS = 800
_COUNTED_HOPS = 200_000_000
# Walks that a kernel can start at a given node.
_STARTABLE = {"simple": False, "non-backtracking": True}
_COLLUDERS, _DRAWN = 0x66697273, 0x70726564


class SampledExposure(NamedTuple):
    """The exposure to an opener, with the price and the range of updates per node that the same walks give."""

    price: Price
    exposure: Exposure
    update_range: tuple[float, float]


def estimate_opener_exposure(scheme: Scheme, *, effort: int = THOROUGH) -> SampledExposure:
    """Estimate the exposure of ``scheme`` to an opener: from tables where they fit, else bounded by classes of pairs.

    It is exact where all sets are listed. ``effort`` is the number of hops per entry of a table; it also limits the
    size of tables. Small networks always have tables.
    """
    if scheme.hides_names:
        # All have one degree: of classes by degree there is one.
        often = (1.0, 1.0) if scheme.is_large else scheme.prior_range
        return SampledExposure(scheme.price, expose_overlay(scheme, SHARES), often)
    if (exact := scheme.exact_openings) is not None:
        return _summarise_groups(scheme, [exact])
    entries, is_small = len(scheme.graph.indices) * scheme.graph.n_nodes, scheme.graph.n_nodes <= SMALL_NODES
    groups: Sequence[Openings | MeanOpenings] | None = None
    if entries <= TABLE_ENTRIES * effort / THOROUGH:
        groups = _sample_openings_in_groups(scheme, min(effort * max(entries, _LEAST_ENTRIES), _MOST_HOPS))
    if groups is None and is_small and scheme.has_potentials:
        law, sets = scheme.law.matrix, max(_DRAWN_SETS // (_GROUPS * scheme.graph.n_nodes), 2)
        groups = [scheme.chain.mean_openings(law, scheme.recipients, n_sets=sets, seed=seed) for seed in range(_GROUPS)]
    if groups is not None:
        return _summarise_groups(scheme, groups)
    return bound_exposure_by_classes(scheme, _DELIVERIES * effort // THOROUGH)


def _sample_openings_in_groups(scheme: Scheme, hops: int) -> list[Openings] | None:
    """Return openings in groups; None where legs are so long, as on trees, that too many are cut off."""
    eligible = float(scheme.law.n_choices.mean())
    leg = 1.5 * (eligible + 1) / (scheme.recipients + 1) + 10.0
    legs = max(int(hops / (_FOLLOWED * leg * _GROUPS)), _LEAST_LEGS)
    groups = []
    for group in range(_GROUPS):
        try:
            openings = estimate_openings(
                scheme.graph, scheme.law.rows, scheme.recipients, walk=scheme.walk, legs=legs, seed=1 + group
            )
        except InvalidParameterError:
            return None
        if openings.unopened > _CUT_OFF:
            return None
        groups.append(openings)
    return groups


def _summarise_groups(scheme: Scheme, groups: Sequence[Openings | MeanOpenings]) -> SampledExposure:
    """Summarise tables of arcs by sources: one that is exact, or several groups that are sampled."""
    graph = scheme.graph
    legs = sum(group.legs if isinstance(group, Openings) else group.n_sets for group in groups)
    heads = np.repeat(np.arange(graph.n_nodes), graph.degrees)
    by_arc = np.array([group.joint for group in groups])
    by_opener = np.add.reduceat(by_arc, graph.indptr[:-1].astype(np.int64), axis=1)
    hops = np.array([group.hops if isinstance(group, Openings) else group.mean_hops for group in groups])
    updates = np.bincount(heads, weights=by_arc.mean(axis=0).sum(axis=1), minlength=graph.n_nodes) * graph.n_nodes
    # The largest number of possible sources of one opener; a law far:R is symmetric.
    candidates = int(scheme.law.n_choices.max()) if scheme.law.far is not None else max(graph.n_nodes - 1, 2)
    if len(groups) == 1:
        how, entropies = "exact", [Estimate.exact(_conditional_entropy(table[0])) for table in (by_arc, by_opener)]
        guesses = [Estimate.exact(guess) for guess in _score_guesses(by_arc[0], by_arc[0])]
        price = scheme.price_legs(float(hops[0]), how)
    else:
        how = f"estimated from {legs} {'simulated walks' if isinstance(groups[0], Openings) else 'drawn sets'}"
        entropies = [_estimate_entropy(tables, legs, math.log(candidates)) for tables in (by_arc, by_opener)]
        guesses = _estimate_hit_ratios(by_arc)
        mean = estimate_mean(hops, student=True)
        price = scheme.price_legs(mean.mean, how, mean.interval)
    hit_ratio, worst_percent, worst_arc = guesses
    exposure = Exposure(
        observer="opener",
        node_entropy=replace(entropies[0], how=how),
        blind_node_entropy=entropies[1],
        hit_ratio=hit_ratio,
        worst_percent_hit_ratio=worst_percent,
        worst_arc_hit_ratio=worst_arc,
    )
    return SampledExposure(price, exposure, (float(updates.min()), float(updates.max())))


def _conditional_entropy(table: FloatArray) -> float:
    """Return the mean entropy of the column given the row, in nats."""
    shares = table / table.sum()
    return float(special.entr(shares).sum() - special.entr(shares.sum(axis=1)).sum())


def _estimate_entropy(tables: FloatArray, legs: int, most: float) -> Estimate:
    """Return the entropy of the mean of ``tables`` less its bias of first order, with its interval.

    ``most`` is an upper bound on the entropy: with few walks the correction may exceed it.
    """
    size, together = len(tables), tables.mean(axis=0)
    whole = _conditional_entropy(together)
    left_out = np.array([_conditional_entropy((size * together - table) / (size - 1)) for table in tables])
    return jackknife(whole, left_out, most=most, count=legs)


def _estimate_hit_ratios(tables: FloatArray) -> list[Estimate]:
    """Return the hit ratio of the best guess: in all, on the worst percent of arcs, on the worst arc.

    Each interval begins at the estimate by guesses, and a choice of the worst arcs, fitted on one half of the walks and
    scored by the other; it ends at the estimate fitted and scored by all walks, which is also its ``mean``.
    """
    half, together = len(tables) // 2, tables.mean(axis=0)
    first, second = tables[:half].mean(axis=0), tables[half:].mean(axis=0)
    same = _score_guesses(together, together)
    crossed = np.mean([_score_guesses(first, second), _score_guesses(second, first)], axis=0)
    how = "between a cautious and an optimistic fit"
    return [Estimate(high, float(low), high, how=how) for low, high in zip(crossed, same, strict=True)]


def _score_guesses(fitted: FloatArray, scored: FloatArray) -> tuple[float, float, float]:
    arrived = fitted.sum(axis=1)
    rows = np.flatnonzero(arrived > 0)
    guess = fitted[rows].argmax(axis=1)
    promised = fitted[rows, guess] / arrived[rows]
    hit, deliveries = scored[rows, guess], scored[rows].sum(axis=1)
    order = np.argsort(-promised, kind="stable")
    count = int(np.searchsorted(np.cumsum(deliveries[order]), _WORST * deliveries.sum())) + 1
    worst = order[:count]
    return (
        float(hit.sum() / scored.sum()),
        float(hit[worst].sum() / deliveries[worst].sum()),
        float(hit[order[0]] / max(deliveries[order[0]], 1e-300)),
    )


def bound_exposure_by_classes(scheme: Scheme, deliveries: int) -> SampledExposure:
    """Return an upper bound on the node entropy of an opener with its last hop, and the price, from deliveries.

    The range of updates is that of classes of nodes by degree.
    """
    graph = scheme.graph
    leg_hops = 1.5 * float(scheme.law.n_choices.mean()) / scheme.recipients + 10.0
    updates = int(min(max(_PLAYED_HOPS / leg_hops, _LEAST_DELIVERIES), deliveries))
    records = np.concatenate(
        list(scheme.iter_updates(updates=updates, seed=1, replicas=n_parallel_lanes(graph, updates), burn_in=8))
    )
    mean = estimate_mean(records["leg_hops"].astype(np.float64))
    source, opener, last = (records[name].astype(np.int64) for name in ("source", "destination", "last_hop"))
    bound = bound_node_entropy(graph, source, opener, last)
    how = f"upper bound from {bound.count} simulated updates"
    exposure = Exposure(observer="opener", node_entropy=replace(bound, how=how), is_bound=True)
    price = scheme.price_legs(mean.mean, f"played, {mean.count} updates", mean.interval)
    return SampledExposure(price, exposure, _update_range(graph, source))


def bound_node_entropy(graph: Graph, source: IntArray, opener: IntArray, last: IntArray) -> Estimate:
    """Return an upper bound on the node entropy of the source given opener and last hop, from deliveries."""
    weights = _source_weights(graph, source)
    kinds = degree_classes(graph.degrees[opener])
    pair, expected = _classify_pairs(graph, source, opener, last, weights)
    weighed = np.unique(kinds[: len(expected)])
    chance = np.stack([expected[kinds[: len(expected)] == kind].mean(axis=0) for kind in weighed])
    usable = np.flatnonzero(np.isin(kinds, weighed))
    places = np.searchsorted(weighed, kinds)
    information = -np.log(weights[source])

    def measure(chosen: IntArray) -> float:
        """Return the mean information of sources less the relative entropy of classes."""
        counts = np.zeros(chance.shape)
        np.add.at(counts, (places[chosen], pair[chosen]), 1.0)
        shares = counts / counts.sum()
        by_chance = shares.sum(axis=1, keepdims=True) * chance
        # Classes that no weighed ball holds are rare: they are left out, which only raises the bound.
        held = by_chance > 0
        divergence = special.rel_entr(shares[held], by_chance[held]).sum()
        return float(information[chosen].mean() - divergence)

    groups = np.arange(len(usable)) % _CLASS_GROUPS
    left_out = np.array([measure(usable[groups != group]) for group in range(_CLASS_GROUPS)])
    return jackknife(measure(usable), left_out, count=len(usable))


def degree_classes(degrees: IntArray) -> IntArray:
    """Return the class of each degree; classes double in width: 1, 2-3, 4-7, ..."""
    return np.floor(np.log2(degrees)).astype(np.int64)


def _update_range(graph: Graph, source: IntArray) -> tuple[float, float]:
    sizes = np.bincount(degree_classes(graph.degrees))
    shares = np.bincount(degree_classes(graph.degrees[source]), minlength=len(sizes)) / len(source)
    occupied = sizes > 0
    times = shares[occupied] / sizes[occupied] * graph.n_nodes
    return float(times.min()), float(times.max())


def _source_weights(graph: Graph, source: IntArray) -> FloatArray:
    """Return m: the share of each degree among ``source``, spread evenly over its nodes; never zero."""
    among = np.bincount(graph.degrees[source], minlength=int(graph.degrees.max()) + 1) + 0.5
    there = np.bincount(graph.degrees, minlength=len(among))
    among = np.where(there > 0, among, 0.0)
    each = among / among.sum() / np.maximum(there, 1)
    return np.asarray(each[graph.degrees])


def _classify_pairs(
    graph: Graph, source: IntArray, opener: IntArray, last: IntArray, weights: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the class of each delivery's pair, and for the first deliveries the weight of sources in every class."""
    radius = _radius(graph)
    n_classes = 3 * (radius + 1) + 1
    pair = np.empty(len(source), dtype=np.int64)
    expected = np.zeros((min(len(source), _CENTRES), n_classes))
    hops_to_last = np.full(graph.n_nodes, -1, dtype=np.int64)
    step = 512
    for first in range(0, len(source), step):
        block = slice(first, first + step)
        around_opener, around_last = balls(graph, radius, opener[block]), balls(graph, radius, last[block])
        classify_balls(
            *(around_opener.starts, around_opener.nodes, around_opener.hops),
            *(around_last.starts, around_last.nodes, around_last.hops),
            source[block],
            weights,
            hops_to_last,
            pair[block],
            expected[block],
        )
    for row in expected:
        row[-1] = max(1.0 - float(row.sum()), 0.0)
    return pair, expected


def _radius(graph: Graph) -> int:
    """Return the radius of balls that hold some 2,000 nodes, and at most half of all."""
    centres = np.linspace(0, graph.n_nodes - 1, 32).astype(np.int64)
    radius, most = 1, min(_BALL_NODES, graph.n_nodes / 2)
    while True:
        sizes = np.diff(balls(graph, radius + 1, centres).starts)
        if sizes.mean() > most or radius > graph.n_nodes:
            return radius
        radius += 1


def estimate_predecessor_guess(scheme: Scheme, *, hops: float, seed: int = 1) -> tuple[Estimate, Estimate] | None:
    """Return the chance that a source names the opener: from the set of recipients, and also from its first hop.

    For each drawn set the law of the opener is exact where the walk's chain is small. Else walks are counted by opener,
    and the best guess is chosen by one half of them and scored by the other: it is too low rather than too high.
    None for walks that no kernel can start at a given node. ``hops`` is about the length of a walk.
    """
    if scheme.graph.n_nodes <= _EXACT_NODES and scheme.has_potentials:
        openings, how = scheme.exact_openings, "exact"
        if openings is None:
            each = max(_SETS // scheme.graph.n_nodes, 2)
            options: Any = {"n_sets": each, "seed": seed, "train_probability": scheme.train_probability}
            openings = scheme.chain.mean_openings(scheme.law.matrix, scheme.recipients, **options)
            how = f"{openings.n_sets} sets, exact for each"
        pairs = (
            (openings.predecessor_guess, openings.predecessor_error),
            (openings.sender_guess, openings.sender_error),
        )
        by_set, by_hop = (Estimate(mean, mean - half, mean + half, openings.n_sets, how) for mean, half in pairs)
        return by_set, by_hop
    if scheme.walk.kind not in _STARTABLE:
        return None
    walks = int(min(max(_COUNTED_HOPS / (hops * _SETS), _FEWEST_WALKS), _WALKS)) // 2 * 2
    sets = int(min(max(_COUNTED_HOPS / (hops * walks), 16), _SETS))
    graph, rng = scheme.graph, task_generator(seed, _DRAWN)
    updates = scheme.iter_updates(updates=sets, seed=seed, replicas=n_parallel_lanes(graph, sets), burn_in=8)
    sources = np.concatenate([chunk["source"] for chunk in updates]).astype(np.int64)
    counts = np.zeros((sets, 2, int(graph.degrees.max()), scheme.recipients))
    lane, clock = np.zeros(len(sources), dtype=np.int64), np.arange(len(sources))
    chosen = draw_recipients(
        graph, scheme.law.rows, scheme.recipients, seed=seed, lane=lane, source=sources, clock=clock
    )
    straight, first_word = _STARTABLE[scheme.walk.kind], np.uint64(rng.integers(2**63))
    count_openers(graph.indptr, graph.indices, straight, sources, chosen, walks // 2, first_word, counts)
    fitted, scored = counts[:, 0], counts[:, 1]
    guess = fitted.sum(axis=1).argmax(axis=1)
    by_set = scored.sum(axis=1)[np.arange(sets), guess] / (walks // 2)
    guesses = fitted.argmax(axis=2)
    by_hop = np.take_along_axis(scored, guesses[:, :, np.newaxis], axis=2).sum(axis=(1, 2)) / (walks // 2)
    how = f"lower estimate from {sets} sets, {walks} simulated walks each"
    return replace(estimate_mean(by_set), how=how), replace(estimate_mean(by_hop), how=how)


def estimate_return_guesses(scheme: Scheme) -> list[Estimate] | None:
    """Return how often an opener guesses the source by last hop and return time: in all, worst percent, worst case.

    Exact for one recipient, but for classes of return times. Else updates are played, and observations that are rarer
    than ``_RARE`` are taken together. None where the table would be too large.
    """
    graph = scheme.graph
    arcs, n_nodes = len(graph.indices), graph.n_nodes
    if scheme.has_exact_law and arcs <= _CHANNEL_ARCS:
        channel = Channel.derive(scheme.chain, scheme.law, observer="last-hop")
        table = channel.list_observations(scheme.law)
        return [Estimate.exact(guess) for guess in _score_guesses(table, table)]
    n_classes = min(_RETURN_CLASSES, TABLE_ENTRIES // (arcs * n_nodes))
    if n_classes < _FEWEST_CLASSES:
        return None
    starts = geometric_starts(1, 1 + 2 * n_nodes, n_classes)
    keys = np.repeat(np.arange(n_nodes), graph.degrees) * n_nodes + graph.indices
    tables = np.zeros((2, arcs, len(starts), n_nodes))
    for half in range(2):
        counts = np.zeros(tables[0].size)
        for records in scheme.iter_updates(updates=_RETURNS // 2, seed=_RETURN_SEED + half):
            source, opener, last = (records[name].astype(np.int64) for name in ("source", "destination", "last_hop"))
            arc = np.searchsorted(keys, opener * n_nodes + last)
            late = np.searchsorted(starts, records["return_time"], side="right") - 1
            counts += np.bincount((arc * len(starts) + late) * n_nodes + source, minlength=len(counts))
        tables[half] = counts.reshape(tables.shape[1:])
    rare = tables.sum(axis=(0, 3)) < _RARE
    tables[:, :, -1] += np.einsum("haci,ac->hai", tables[:, :, :-1], rare[:, :-1])
    tables[:, :, :-1] *= ~rare[:, :-1, np.newaxis]
    return _estimate_hit_ratios(tables.reshape(2, -1, n_nodes))


def estimate_coalition(
    scheme: Scheme, share: float, *, hops: float, effort: int = THOROUGH, seed: int = 1
) -> tuple[float, Estimate, Estimate]:
    """Return the share of colluders, of honest messages whose source they name at first sight, and of those they read.

    Colluders are placed at random. The first of them to get a message names the neighbour that handed it over: no
    routing keeps this below their share. It is their cheapest attack; the audit has the strongest. They share keys:
    they read what one of them holds if any of them is a recipient. ``hops`` is about the length of a walk.
    """
    # To draw a set takes time quadratic in its size.
    updates = min(_UPDATES, _COUNTED_HOPS / (hops + scheme.recipients**2 / 2)) * effort / THOROUGH
    each = max(int(updates) // _PLACEMENTS, 256 * effort // THOROUGH)
    n_nodes, lanes = scheme.graph.n_nodes, n_parallel_lanes(scheme.graph, each)
    count = min(max(round(share * n_nodes), 1), n_nodes - 1)
    named, read = np.zeros(_PLACEMENTS), np.zeros(_PLACEMENTS)
    for placement in range(_PLACEMENTS):
        colluders = np.zeros(n_nodes, dtype=np.bool_)
        rng = task_generator(seed, _COLLUDERS, round(share * 1e6), placement)
        colluders[rng.choice(n_nodes, size=count, replace=False)] = True
        options: dict[str, Any] = {"updates": each, "seed": seed + placement, "replicas": lanes, "burn_in": 8}
        records = np.concatenate(list(scheme.iter_updates(colluders=colluders, **options)))
        honest = records[~colluders[records["source"]]]
        if len(honest):
            named[placement] = np.mean(honest["first_sight_from"] == honest["source"])
            is_for_them = colluders[_recipients_of(scheme, honest, seed + placement)].any(axis=1)
            read[placement] = np.mean((honest["first_sight_node"] >= 0) & is_for_them)
    counted: dict[str, Any] = {"student": True, "count": _PLACEMENTS * each}
    return count / n_nodes, estimate_mean(named, **counted), estimate_mean(read, **counted)


def _recipients_of(scheme: Scheme, records: Any, seed: int) -> IntArray:
    """Return the recipients of played updates, a row each."""
    if scheme.recipients == 1:
        return np.asarray(records["destination"])[:, np.newaxis]
    sealed = {"lane": records["replica"], "source": records["source"], "clock": records["clock"] - records["leg_hops"]}
    return draw_recipients(scheme.graph, scheme.law.rows, scheme.recipients, seed=seed, **sealed)
