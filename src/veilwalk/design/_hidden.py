"""Estimates what opener, source and colluders can tell of each other when a message is sealed for several.

**The opener.** P(opener and last hop, source) is estimated by walks with the set summed out
(``walks.estimate_openings``), in groups that are independent. An entropy of estimated shares is too low, by about
(shares)/(2 observations): the jackknife over groups takes that off to first order, and its spread gives the interval. A
best guess fitted on the very walks it is scored by is too good; fitted on the others it is no better than true. Both
are told.

**On graphs too large for tables** the entropy has an upper bound by classes of pairs. Let m be any law of sources,
here: as often as its degree is among sources. Then with an arc for opener and last hop

    H(source | arc) = -E log m(source) - D(pairs || arcs x m),

and D, a relative entropy, only falls when pairs are told apart no further than by classes: how far the source is from
the opener, whether the last hop is nearer to it, and about how large the opener's degree is. So what classes give is an
upper bound on the node entropy, up to sampling. On random regular graphs they leave out little.

**The source** guesses who will open; **colluders** on the way name who handed over what they see first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from veilwalk.chains import Chain
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.sizes import TABLE_ENTRIES
from veilwalk.core.stats import Estimate, estimate_mean, jackknife
from veilwalk.design._kernels import count_openers
from veilwalk.design._scheme import Price, Scheme, n_parallel_lanes
from veilwalk.graphs import Graph, balls
from veilwalk.walks import Openings, draw_recipients, estimate_openings

#: Hops that are followed, in all, for each entry of the table of arcs by sources: as told, and as first looked at.
THOROUGH, QUICK = 100, 20
_GROUPS = 8
# Deliveries that are played where tables do not fit.
_DELIVERIES = 16_384
_LEAST_ENTRIES, _MOST_HOPS, _LEAST_LEGS = 20_000, 120_000_000, 320
# A leg is followed until hardly any set leaves it unopened: about so many times its mean.
_FOLLOWED = 20
# More than this share of legs that no end was seen of would shorten the price, and raise the entropy, too much.
_CUT_OFF = 0.003
# The share of deliveries that is called the worst.
_WORST = 0.01
# For the bound by classes.
_LEAST_DELIVERIES, _PLAYED_HOPS = 1_024, 2_000_000_000
# Nodes looked at around each opener and last hop, about; deliveries whose pairs are weighed.
_BALL_NODES, _CENTRES = 2_000, 2_048
_CLASS_GROUPS = 16
#: Shares of colluders that a design is asked about.
SHARES = (0.01, 0.05, 0.1, 0.2)
_SETS, _WALKS, _FEWEST_WALKS = 256, 2_000, 200
# Chains of so many states are inverted in a second.
_EXACT_NODES, _EXACT_ARCS = 1_000, 1_500
_PLACEMENTS, _UPDATES = 8, 40_000
_COUNTED_HOPS = 200_000_000
# Walks that a kernel knows which starts them from any node.
_WALKED = {"simple": False, "non-backtracking": True}
_COLLUDERS, _DRAWN = 0x66697273, 0x70726564


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


@dataclass(frozen=True, kw_only=True)
class Predecessor:
    """How often who sealed a message names who will open it, knowing for whom it is: a mean over drawn sets.

    Attributes:
        knows_set: Its best guess from the set alone.
        knows_first_hop: And from whom it handed the message to.
        kind: How the law of openers was found for each set.
    """

    knows_set: Estimate
    knows_first_hop: Estimate
    kind: str


@dataclass(frozen=True, kw_only=True)
class FirstSight:
    """How often colluders name an honest source, if the first of them to get a message names who handed it over.

    Attributes:
        share: p, the share of the nodes that collude: what no routing can do better than.
        named: Share of the messages of honest sources; a mean over random placements.
    """

    share: float
    named: Estimate

    @property
    def times_floor(self) -> float:
        """How many times the floor p that is."""
        return self.named.mean / self.share


def what_is_hidden(scheme: Scheme, *, effort: int = THOROUGH) -> Hidden:
    """Return what a scheme leaves hidden, from tables where they fit, else bounded by classes of pairs.

    ``effort`` says how many hops are followed for each entry of a table, and up to which size there are tables.
    """
    entries = len(scheme.graph.indices) * scheme.graph.n_nodes
    if entries <= TABLE_ENTRIES * effort / THOROUGH:
        groups = _followed(scheme, min(effort * max(entries, _LEAST_ENTRIES), _MOST_HOPS))
        if groups is not None:
            return _told(scheme, groups)
    bound, price, often = class_bound(scheme, _DELIVERIES * effort // THOROUGH)
    kind = f"upper bound by classes of pairs, {bound.count} deliveries played"
    return Hidden(kind=kind, price=price, last_hop_nats=bound, update_range=often)


def _followed(scheme: Scheme, hops: int) -> list[Openings] | None:
    """Return openings in groups; None where legs are so long, as on trees, that too many are cut off."""
    eligible = float(scheme.law.n_choices.mean())
    leg = 1.5 * (eligible + 1) / (scheme.recipients + 1) + 10.0
    legs = max(int(hops / (_FOLLOWED * leg * _GROUPS)), _LEAST_LEGS)
    groups = []
    for group in range(_GROUPS):
        try:
            found = estimate_openings(
                scheme.graph, scheme.law.rows, scheme.recipients, walk=scheme.walk, legs=legs, seed=1 + group
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
        last_hop_nats=_estimate_entropy(tables, together, legs, most),
        opener_nats=_estimate_entropy([by_opener(one) for one in tables], by_opener(together), legs, most),
        top_posterior=top,
        worst_percent=worst,
        worst_arc=arc,
        update_range=(float(often.min()), float(often.max())),
    )


def _candidates(scheme: Scheme) -> int:
    """Return how many can be the source to one that opens, at most; the law of far recipients works both ways."""
    if scheme.law.far is not None:
        return int(scheme.law.n_choices.max())
    return max(scheme.graph.n_nodes - 1, 2)


def conditional_entropy(table: FloatArray) -> float:
    """Return the mean entropy of the column given the row, in nats."""
    shares = table / table.sum()
    return float(special.entr(shares).sum() - special.entr(shares.sum(axis=1)).sum())


def _estimate_entropy(tables: Sequence[FloatArray], together: FloatArray, legs: int, most: float) -> Estimate:
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


def class_bound(scheme: Scheme, deliveries: int) -> tuple[Estimate, Price, tuple[float, float]]:
    """Return an upper bound on the node entropy left to an opener with its last hop, the price, and who updates.

    The last is how often nodes of the rarest and of the most frequent class of degrees update, times the mean.
    """
    graph = scheme.graph
    about = 1.5 * float(scheme.law.n_choices.mean()) / scheme.recipients + 10.0
    updates = int(min(max(_PLAYED_HOPS / about, _LEAST_DELIVERIES), deliveries))
    played = np.concatenate(
        list(scheme.iter_updates(updates=updates, seed=1, replicas=n_parallel_lanes(graph, updates), burn_in=8))
    )
    mean = estimate_mean(played["leg_hops"].astype(np.float64))
    price = Price(mean.mean, f"played, {mean.count} updates", mean.interval)
    source, opener, last = (played[name].astype(np.int64) for name in ("source", "destination", "last_hop"))
    return pairs_bound(graph, source, opener, last), price, _update_range(graph, source)


def pairs_bound(graph: Graph, source: IntArray, opener: IntArray, last: IntArray) -> Estimate:
    """Return an upper bound on the node entropy of the source given opener and last hop, from deliveries."""
    weights = _weights(graph, source)
    kinds = degree_classes(graph.degrees[opener])
    pair, expected = _classes(graph, source, opener, last, weights)
    looked_at = np.unique(kinds[: len(expected)])
    chance = np.stack([expected[kinds[: len(expected)] == kind].mean(axis=0) for kind in looked_at])
    told = np.flatnonzero(np.isin(kinds, looked_at))
    places = np.searchsorted(looked_at, kinds)
    information = -np.log(weights[source[told]])
    groups = np.arange(len(told)) % _CLASS_GROUPS
    return _estimate_bound(information, places[told], pair[told], chance, groups)


def degree_classes(degrees: IntArray) -> IntArray:
    """Return the class of each degree; classes double in width: 1, 2-3, 4-7, ..."""
    return np.floor(np.log2(degrees)).astype(np.int64)


def _update_range(graph: Graph, source: IntArray) -> tuple[float, float]:
    there = np.bincount(degree_classes(graph.degrees))
    often = np.bincount(degree_classes(graph.degrees[source]), minlength=len(there)) / len(source)
    some = there > 0
    times = often[some] / there[some] * graph.n_nodes
    return float(times.min()), float(times.max())


def _weights(graph: Graph, source: IntArray) -> FloatArray:
    """Return m: each degree as often as among ``source``, its nodes alike; never seen ones a little."""
    among = np.bincount(graph.degrees[source], minlength=int(graph.degrees.max()) + 1) + 0.5
    there = np.bincount(graph.degrees, minlength=len(among))
    among = np.where(there > 0, among, 0.0)
    each = among / among.sum() / np.maximum(there, 1)
    return np.asarray(each[graph.degrees])


def _classes(
    graph: Graph, source: IntArray, opener: IntArray, last: IntArray, weights: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return the class of each delivery's pair, and for the first ones the weight of sources in every class."""
    radius = _radius(graph)
    n_classes = 3 * (radius + 1) + 1
    pair = np.empty(len(source), dtype=np.int64)
    expected = np.zeros((min(len(source), _CENTRES), n_classes))
    step = 512
    for first in range(0, len(source), step):
        part = slice(first, first + step)
        here, there = balls(graph, radius, opener[part]), balls(graph, radius, last[part])
        for row in range(len(here.starts) - 1):
            nodes, hops = here.of(row)
            order = np.argsort(there.of(row)[0], kind="stable")
            known, apart = there.of(row)[0][order], there.of(row)[1][order]
            at = np.minimum(np.searchsorted(known, nodes), len(known) - 1)
            from_last = np.where(known[at] == nodes, apart[at], hops + 1)
            kinds = 3 * hops.astype(np.int64) + np.clip(from_last.astype(np.int64) - hops, -1, 1) + 1
            number = first + row
            mine = np.flatnonzero(nodes == source[number])
            pair[number] = kinds[mine[0]] if len(mine) else n_classes - 1
            if number < len(expected):
                expected[number] = np.bincount(kinds, weights=weights[nodes], minlength=n_classes)
                expected[number, -1] = max(1.0 - float(expected[number].sum()), 0.0)
    return pair, expected


def _radius(graph: Graph) -> int:
    """Return how far to look: as many nodes as are quickly looked at, not nearly all."""
    centres = np.linspace(0, graph.n_nodes - 1, 32).astype(np.int64)
    radius, most = 1, min(_BALL_NODES, graph.n_nodes / 2)
    while True:
        sizes = np.diff(balls(graph, radius + 1, centres).starts)
        if sizes.mean() > most or radius > graph.n_nodes:
            return radius
        radius += 1


def _estimate_bound(
    information: FloatArray, kinds: IntArray, pair: IntArray, chance: FloatArray, groups: IntArray
) -> Estimate:
    """Return the mean information of sources less the relative entropy of classes, less its bias of first order."""

    def measure(kept: IntArray) -> float:
        counts = np.zeros(chance.shape)
        np.add.at(counts, (kinds[kept], pair[kept]), 1.0)
        shares = counts / counts.sum()
        expected = shares.sum(axis=1, keepdims=True) * chance
        # What was not expected at all by those looked at is rare: it is left out, which only raises the bound.
        usable = expected > 0
        told = special.rel_entr(shares[usable], expected[usable]).sum()
        return float(information[kept].mean() - told)

    everything = np.arange(len(pair))
    whole = measure(everything)
    left_out = np.array([measure(everything[groups != one]) for one in range(_CLASS_GROUPS)])
    return jackknife(whole, left_out, count=len(pair))


def predecessor_guess(scheme: Scheme, *, hops: float, seed: int = 1) -> Predecessor | None:
    """Return how well a source can tell who will open; None for walks that no kernel starts at will.

    For each drawn set the law of who opens is exact where the walk's chain is small. Else walks are counted by who
    opened, and the best guess is chosen by one half of them and scored by the other, so that it is not better than it
    can be. ``hops`` is about what a message walks.
    """
    if scheme.graph.n_nodes <= _EXACT_NODES and len(scheme.graph.indices) <= _EXACT_ARCS:
        return _exact_predecessor(scheme, scheme.chain, seed)
    if scheme.walk.kind not in _WALKED:
        return None
    walks = int(min(max(_COUNTED_HOPS / (hops * _SETS), _FEWEST_WALKS), _WALKS)) // 2 * 2
    sets = int(min(max(_COUNTED_HOPS / (hops * walks), 16), _SETS))
    graph, rng = scheme.graph, task_generator(seed, _DRAWN)
    played = scheme.iter_updates(updates=sets, seed=seed, replicas=n_parallel_lanes(graph, sets), burn_in=8)
    sources = np.concatenate([chunk["source"] for chunk in played]).astype(np.int64)
    counts = np.zeros((sets, 2, int(graph.degrees.max()), scheme.recipients))
    chosen = _drawn_sets(scheme, sources, seed)
    count_openers(
        graph.indptr,
        graph.indices,
        _WALKED[scheme.walk.kind],
        sources,
        chosen,
        walks // 2,
        np.uint64(rng.integers(2**63)),
        counts,
    )
    fitted, scored = counts[:, 0], counts[:, 1]
    guess = fitted.sum(axis=1).argmax(axis=1)
    by_set = scored.sum(axis=1)[np.arange(sets), guess] / (walks // 2)
    guesses = fitted.argmax(axis=2)
    by_hop = np.take_along_axis(scored, guesses[:, :, np.newaxis], axis=2).sum(axis=(1, 2)) / (walks // 2)
    kind = f"{sets} sets, {walks} walks each; too low rather than too high"
    return Predecessor(knows_set=estimate_mean(by_set), knows_first_hop=estimate_mean(by_hop), kind=kind)


def _exact_predecessor(scheme: Scheme, chain: Chain, seed: int) -> Predecessor:
    each = max(_SETS // scheme.graph.n_nodes, 2)
    found = chain.mean_openings(scheme.law.matrix, scheme.recipients, n_sets=each, seed=seed)
    sets = each * scheme.graph.n_nodes

    def with_interval(mean: float, half: float) -> Estimate:
        return Estimate(mean, mean - half, mean + half, sets)

    return Predecessor(
        knows_set=with_interval(found.predecessor_guess, found.predecessor_error),
        knows_first_hop=with_interval(found.sender_guess, found.sender_error),
        kind=f"{sets} sets, exact for each",
    )


def _drawn_sets(scheme: Scheme, sources: IntArray, seed: int) -> IntArray:
    order = np.arange(len(sources))
    return draw_recipients(
        scheme.graph,
        scheme.law.rows,
        scheme.recipients,
        seed=seed,
        lane=np.zeros(len(sources), dtype=np.int64),
        source=sources,
        clock=order,
    )


def first_sights(
    scheme: Scheme,
    shares: Sequence[float] = SHARES,
    *,
    hops: float,
    placements: int = _PLACEMENTS,
    updates: int = _UPDATES,
    seed: int = 1,
) -> tuple[FirstSight, ...]:
    """Return how often colluders name the source at first sight, for each share of colluders, placed at random.

    The cheapest attack of several that share what they saw, and a lower bound on what they can do; the audit has the
    strongest one. ``hops`` is about what a message walks.
    """
    # To draw a set takes as long as to look through it once for each of its members.
    each = int(min(updates, _COUNTED_HOPS / (hops + scheme.recipients**2 / 4))) // placements
    return tuple(_first_sight(scheme, share, placements, max(each, 256), seed) for share in shares)


def _first_sight(scheme: Scheme, share: float, placements: int, updates: int, seed: int) -> FirstSight:
    n_nodes = scheme.graph.n_nodes
    count = min(max(round(share * n_nodes), 1), n_nodes - 1)
    named = np.empty(placements)
    for placement in range(placements):
        colluders = np.zeros(n_nodes, dtype=np.bool_)
        rng = task_generator(seed, _COLLUDERS, round(share * 1e6), placement)
        colluders[rng.choice(n_nodes, size=count, replace=False)] = True
        played = np.concatenate(
            list(
                scheme.iter_updates(
                    updates=updates,
                    seed=seed + placement,
                    replicas=n_parallel_lanes(scheme.graph, updates),
                    colluders=colluders,
                    burn_in=8,
                )
            )
        )
        honest = played[~colluders[played["source"]]]
        named[placement] = np.mean(honest["first_sight_from"] == honest["source"]) if len(honest) else 0.0
    return FirstSight(share=count / n_nodes, named=estimate_mean(named, student=True, count=placements * updates))
