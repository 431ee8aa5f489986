"""What a destination sees of an update, given who made it: the observation channel, and what it leaves hidden.

The channel holds P(observation | source i, destination j). An observation is the class of the return time, the hops
since the token last passed; for the last-hop observer also the neighbour it came from. Classes are one hop wide at
short return times, where sources differ, and geometric further on; the last holds everything beyond the horizon.
Merging return times can only hide: entropies are a little above, and hit ratios a little below, those of an observer
who tells all times apart. Laws that aim at the hit ratio are flat in the classes and not inside them: theirs is
1 to 2% below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from veilwalk.chains import Chain, DeliveryLaw
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.sizes import EXACT_NODES
from veilwalk.core.stats import geometric_starts
from veilwalk.design._law import DestinationLaw

OBSERVERS = ("return-time", "last-hop")
# Classes of return times at most; fewer where the channel is approximate and large.
_CLASSES, _FEWER_CLASSES = 32, 16
# Return times beyond half the mean leg tell sources apart by a few millionths of a nat: one class will do.
_HORIZON_LEGS = 0.5
_SHORTEST_HORIZON = 48
# Products an exact channel may take; some five seconds on two cores.
_EXACT_PRODUCTS = 2e10
_APPROXIMATE_PRODUCTS = 1e11


@dataclass(frozen=True, eq=False)
class Channel:
    """P(observation | source, destination), one table a destination.

    ``tables[j][k, s]`` is the probability that destination j makes observation k of an update by ``sources[j][s]``;
    columns sum to one. ``kind`` says how it was derived, ``horizon`` the longest return time told from longer ones.
    ``starts`` are the first return times of the classes that observations fall into, or empty where those are others.
    """

    observer: str
    kind: str
    horizon: int
    sources: tuple[IntArray, ...]
    tables: tuple[FloatArray, ...]
    starts: tuple[int, ...] = ()

    @cached_property
    def spreads(self) -> tuple[FloatArray, ...]:
        """Entropy of the observation for each source of each destination, in nats."""
        return tuple(special.entr(table).sum(axis=0) for table in self.tables)

    def distance_to(self, other: Channel) -> float:
        """Mean total variation distance between two channels on one support, over all pairs.

        How many return times are told apart depends on the law; classes that only one of the two has count as one.
        """
        pairs = zip(self._told_by(other), other._told_by(self), strict=True)
        total = sum(np.abs(mine - theirs).sum() for mine, theirs in pairs)
        return float(total / 2 / sum(len(nodes) for nodes in self.sources))

    def _told_by(self, other: Channel) -> Iterator[FloatArray]:
        """Yield the tables, those classes joined that the other channel does not tell apart."""
        if self.starts == other.starts:
            yield from self.tables
            return
        shared = [place for place, start in enumerate(self.starts) if start in other.starts]
        for table in self.tables:
            by_class = table.reshape(len(self.starts), -1, table.shape[1])
            yield np.add.reduceat(by_class, shared, axis=0)


@dataclass(frozen=True, eq=False)
class Exposure:
    """What an observer makes of its sightings: means over deliveries, and for each destination.

    ``node_entropy_nats`` is the expected entropy of the posterior over sources, ``hit_ratio`` the chance that its
    likeliest node is the source. ``blind`` values are those of a destination that sees nothing but the delivery.
    ``weight_by_source`` is the weight that the posterior gives to the true source, expected over what is seen of it.
    """

    node_entropy_nats: float
    hit_ratio: float
    blind_node_entropy_nats: float
    blind_hit_ratio: float
    node_entropy_by_destination: FloatArray
    hit_ratio_by_destination: FloatArray
    weight_by_source: FloatArray

    def __repr__(self) -> str:
        blind = f"blind {self.blind_node_entropy_nats:.4f} nats, {self.blind_hit_ratio:.3%}"
        return f"Exposure(node entropy {self.node_entropy_nats:.4f} nats, hit ratio {self.hit_ratio:.3%}; {blind})"

    def worst_destinations(self, count: int = 5) -> IntArray:
        """Return the destinations that know most, worst first: the least expected entropy of their posteriors."""
        return np.argsort(self.node_entropy_by_destination, kind="stable")[:count]

    def best_known_sources(self, count: int = 5) -> IntArray:
        """Return the sources that destinations know best, best known first."""
        return np.argsort(-self.weight_by_source, kind="stable")[:count]


def derive_channel(
    chain: Chain,
    law: DestinationLaw,
    *,
    observer: str = "return-time",
    hops: FloatArray | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Channel:
    """Derive the channel of ``law`` on ``chain``; every pair of the law's support gets its column.

    Up to 500 nodes it is exact. Beyond, the walk before the sealing is taken for a fresh one from the source, run
    backwards, so that the return time is the sum of two independent hitting times; that is for the return-time
    observer only.

    Args:
        chain: the walk.
        law: the law.
        observer: ``return-time`` or ``last-hop``.
        hops: mean hitting times of the chain, if at hand.
        memory_bytes: refuse rather than use more.
    """
    if observer not in OBSERVERS:
        raise InvalidParameterError("observer", observer, f"one of {', '.join(OBSERVERS)}")
    n_nodes, degrees = chain.n_nodes, int(chain.products_per_hop / chain.n_nodes**2)
    widest = degrees if observer == "last-hop" else n_nodes
    classes = _CLASSES if n_nodes <= EXACT_NODES else _FEWER_CLASSES
    _require_memory(n_nodes, (classes + 12) * widest * n_nodes * 8, memory_bytes)
    whole = math.ceil(_HORIZON_LEGS * law.mean_hops(chain.mean_hitting_times() if hops is None else hops))
    if n_nodes <= EXACT_NODES:
        horizon = min(whole, max(_SHORTEST_HORIZON, int(_EXACT_PRODUCTS / chain.products_per_hop)))
        starts = class_starts(horizon)
        return Channel(
            observer, "exact", horizon, *_packed(_exact(chain, law, starts, horizon, observer)), tuple(starts.tolist())
        )
    if observer != "return-time":
        raise ResourceLimitError(f"the {observer} observer takes up to {EXACT_NODES} nodes, the graph has {n_nodes}")
    horizon = min(whole, max(_SHORTEST_HORIZON, int(_APPROXIMATE_PRODUCTS * n_nodes / chain.products_per_hop)))
    kind = "approximate: the past of the walk before the sealing is taken for a fresh walk run backwards"
    starts = class_starts(horizon, _FEWER_CLASSES)
    return Channel(observer, kind, horizon, *_packed(_approximate(chain, law, starts, horizon)), tuple(starts.tolist()))


def exposure(law: DestinationLaw, channel: Channel) -> Exposure:
    """Return what the observer of ``channel`` makes of deliveries under ``law``, whose support it must cover."""
    by_destination = joint_by_destination(law)
    shares = by_destination.sum(axis=1)
    entropy, hits, known = np.empty(len(shares)), np.empty(len(shares)), np.zeros(len(shares))
    for node, (nodes, table) in enumerate(zip(channel.sources, channel.tables, strict=True)):
        seen = table * by_destination[node, nodes]
        total = seen.sum(axis=1)
        entropy[node] = special.entr(seen).sum() - special.entr(total).sum()
        hits[node] = seen.max(axis=1).sum()
        known[nodes] += np.divide(1.0, total, out=np.zeros_like(total), where=total > 0) @ seen**2
    blind = special.entr(by_destination).sum() - special.entr(shares).sum()
    return Exposure(
        node_entropy_nats=float(entropy.sum()),
        hit_ratio=float(hits.sum()),
        blind_node_entropy_nats=float(blind),
        blind_hit_ratio=float(by_destination.max(axis=1).sum()),
        node_entropy_by_destination=entropy / shares,
        hit_ratio_by_destination=hits / shares,
        weight_by_source=known / law.source_prior,
    )


def joint_by_destination(law: DestinationLaw) -> FloatArray:
    """Return P(source, destination) in the long run, one row a destination."""
    return np.ascontiguousarray((law.matrix.toarray() * law.source_prior[:, np.newaxis]).T)


def class_starts(horizon: int, classes: int = _CLASSES) -> IntArray:
    """Return the first return time of each class; the last class starts beyond the horizon."""
    return geometric_starts(1, horizon + 1, classes)


def _exact(
    chain: Chain, law: DestinationLaw, starts: IntArray, horizon: int, observer: str
) -> Iterator[tuple[IntArray, FloatArray]]:
    for delivery in chain.deliveries(law.matrix.toarray(), horizon):
        yield delivery.sources, _in_classes(delivery, starts, observer)


def _in_classes(delivery: DeliveryLaw, starts: IntArray, observer: str) -> FloatArray:
    times = np.concatenate((delivery.joint, delivery.beyond[np.newaxis]))
    if observer == "return-time":
        times = times.sum(axis=1, keepdims=True)
    table = np.add.reduceat(times, starts, axis=0).reshape(-1, len(delivery.sources))
    return np.asarray(table / table.sum(axis=0))


def _approximate(
    chain: Chain, law: DestinationLaw, starts: IntArray, horizon: int
) -> Iterator[tuple[IntArray, FloatArray]]:
    columns = law.matrix.tocsc()
    for targets, pmf in chain.hitting_laws(horizon):
        for place, target in enumerate(targets):
            own = columns.indices[columns.indptr[target] : columns.indptr[target + 1]]
            hits = pmf[:, own, place]
            within = np.cumsum(hits, axis=0)
            # P(T + T' < start) for two independent hitting times with one law.
            ends = [np.einsum("ti,ti->i", hits[:start], within[start - 1 :: -1]) for start in starts]
            yield own, np.diff(np.stack([*ends, np.ones(len(own))]), axis=0, prepend=0.0)[1:]


def _packed(found: Iterator[tuple[IntArray, FloatArray]]) -> tuple[tuple[IntArray, ...], tuple[FloatArray, ...]]:
    pairs = list(found)
    return tuple(own for own, _ in pairs), tuple(table for _, table in pairs)


def _require_memory(n_nodes: int, needed: int, memory_bytes: int) -> None:
    if needed > memory_bytes:
        raise ResourceLimitError(
            f"the observation channel on {n_nodes} nodes needs about {needed / 2**30:.3g} GiB and may use "
            f"{memory_bytes / 2**30:.3g} GiB: choose a smaller graph, or audit the law by sampling"
        )
