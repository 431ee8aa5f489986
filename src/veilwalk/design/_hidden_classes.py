"""What sealing for several leaves hidden on graphs too large for tables: an upper bound by classes of pairs.

Let m be any law of sources, here: as often as its degree is among sources. Then with an arc for opener and last hop

    H(source | arc) = -E log m(source) - D(pairs || arcs x m),

and D, a relative entropy, only falls when pairs are told apart no further than by classes: how far the source is from
the opener, whether the last hop is nearer to it, and about how large the opener's degree is. So what classes give is an
upper bound on the node entropy, up to sampling. On random regular graphs they leave out little.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.stats import Estimate, estimate_mean, jackknife
from veilwalk.design._sampled import degree_classes, side_by_side
from veilwalk.design._scheme import Price, Scheme
from veilwalk.graphs import Graph, balls

_LEAST_DELIVERIES, _PLAYED_HOPS = 1_024, 2_000_000_000
# Nodes looked at around each opener and last hop, about; deliveries whose pairs are weighed.
_BALL_NODES, _CENTRES = 2_000, 2_048
_GROUPS = 16


def class_bound(scheme: Scheme, deliveries: int) -> tuple[Estimate, Price, tuple[float, float]]:
    """Return an upper bound on the node entropy left to an opener with its last hop, the price, and who updates.

    The last is how often nodes of the rarest and of the most frequent class of degrees update, times the mean.
    """
    graph = scheme.graph
    about = 1.5 * float(scheme.law.choices.mean()) / scheme.recipients + 10.0
    updates = int(min(max(_PLAYED_HOPS / about, _LEAST_DELIVERIES), deliveries))
    played = np.concatenate(
        list(scheme.play(updates=updates, seed=1, replicas=side_by_side(graph, updates), burn_in=8))
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
    groups = np.arange(len(told)) % _GROUPS
    return _jackknifed(information, places[told], pair[told], chance, groups)


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


def _jackknifed(
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
    left_out = np.array([measure(everything[groups != one]) for one in range(_GROUPS)])
    return jackknife(whole, left_out, count=len(pair))
