"""Computes the observation channel of a destination, and the exposure of the source that follows from it.

The channel holds P(observation | source i, destination j). An observation is the class of the return time, the hops
since the token last passed; for the last-hop observer also the neighbour it came from. Classes are one hop wide at
short return times, where sources differ, and geometric further on; the last holds everything beyond the horizon.
Merging return times can only hide: entropies are a little above, and hit ratios a little below, those of an observer
that distinguishes all times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from veilwalk.chains import Chain
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES, EXACT_NODES
from veilwalk.core.stats import Estimate, geometric_starts
from veilwalk.design._law import DestinationLaw, require_memory

OBSERVERS = ("return-time", "last-hop")
# Classes of return times at most; fewer where the channel is approximate and large.
_CLASSES, _FEWER_CLASSES = 32, 16
# Return times beyond half the mean leg tell sources apart by a few millionths of a nat: one class will do.
_HORIZON_LEGS = 0.5
_SHORTEST_HORIZON = 48
# Products an exact channel may take; some five seconds on two cores.
_EXACT_PRODUCTS = 2e10
_APPROXIMATE_PRODUCTS = 1e11
# Nodes that an exposure names: the destinations that know most, the sources that are known best.
_LISTED_NODES = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposure:
    """What observers learn of the source; every number says how it was obtained, exact numbers have no width.

    Attributes:
        observer: ``return-time``, ``last-hop``, ``opener`` (knows itself and its last hop) or ``blind``.
        node_entropy: Expected entropy of the observer's posterior over sources, in nats.
        hit_ratio: Chance that the likeliest node is the source; sampled, it ends at the two estimates that are too low
            and too high: by guesses fitted on other walks, and on the same.
        blind_node_entropy: Node entropy of a destination that knows only that it opened.
        blind_hit_ratio: Its hit ratio.
        return_hit_ratio: Hit ratio of an opener that uses its return time too, as every opener can.
        worst_percent_hit_ratio: Hit ratio on the 1% of deliveries that leak most, by return time where that is known.
        worst_arc_hit_ratio: Hit ratio on the arc, or observation, that leaks most.
        horizon: Longest return time that the channel distinguishes.
        node_entropy_by_destination: Of each destination.
        hit_ratio_by_destination: Of each destination.
        weight_by_source: Weight that the posterior gives to the true source, expected over observations of it.
        predecessor_guess: Chance that the source names the opener, from the set of recipients.
        predecessor_guess_with_hop: The same, from the set and its first hop.
        named_by_colluders: Share of messages whose honest source the first colluder names, by share of colluders.
        read_by_colluders: Share of honest messages that colluders read who share their keys, by share of colluders.
        named_in_the_long_run: On a secret overlay, the most that a coalition names of many linked updates, by share.
        is_bound: Whether the node entropy is an upper bound, which no estimate may be compared with.
    """

    observer: str
    node_entropy: Estimate
    hit_ratio: Estimate | None = None
    blind_node_entropy: Estimate | None = None
    blind_hit_ratio: Estimate | None = None
    return_hit_ratio: Estimate | None = None
    worst_percent_hit_ratio: Estimate | None = None
    worst_arc_hit_ratio: Estimate | None = None
    horizon: int | None = None
    node_entropy_by_destination: FloatArray | None = None
    hit_ratio_by_destination: FloatArray | None = None
    weight_by_source: FloatArray | None = None
    predecessor_guess: Estimate | None = None
    predecessor_guess_with_hop: Estimate | None = None
    named_by_colluders: Mapping[float, Estimate] = field(default_factory=dict)
    named_in_the_long_run: Mapping[float, Estimate] = field(default_factory=dict)
    read_by_colluders: Mapping[float, Estimate] = field(default_factory=dict)
    is_bound: bool = False

    @property
    def how(self) -> str:
        """How the node entropy was obtained."""
        return self.node_entropy.how

    def __repr__(self) -> str:
        hits = "" if self.hit_ratio is None else f", hit ratio {self.hit_ratio.mean:.3%}"
        entropy, how = self.node_entropy, re.split("[,;:]", self.how)[0]
        return f"Exposure({self.observer}: node entropy {entropy.mean:.4f} nats{hits}; {how})"

    def summary(self) -> dict[str, Any]:
        """Return observer, node entropy and hit ratio as plain data; nothing of a blind observer."""
        if self.observer == "blind":
            return {}
        content: dict[str, Any] = {"observer": self.observer, "node_entropy_kind": self.how}
        content |= self._describe_number("node_entropy_nats", self.node_entropy)
        content |= self._describe_number("hit_ratio", self.hit_ratio)
        if self.read_by_colluders:
            rows = [{"share": share} | _describe_mean(read) for share, read in self.read_by_colluders.items()]
            content["read_by_colluders"] = rows
        if self.named_in_the_long_run:
            rows = [{"share": share, "at_most": most.mean} for share, most in self.named_in_the_long_run.items()]
            content["named_in_the_long_run"] = rows
        return content

    def to_dict(self, degrees: IntArray) -> dict[str, Any]:
        """Return the exposure as plain data under its stable JSON keys; ``degrees`` are those of the nodes."""
        content = self.summary()
        content |= self._describe_number("blind_node_entropy_nats", self.blind_node_entropy)
        for name in ("blind_hit_ratio", "return_hit_ratio", "worst_percent_hit_ratio", "worst_arc_hit_ratio"):
            content |= self._describe_number(name, getattr(self, name))
        if self.horizon is not None:
            content["channel"] = {"kind": self.how, "horizon": self.horizon}
        entropy, hits = self.node_entropy_by_destination, self.hit_ratio_by_destination
        if entropy is not None and hits is not None:
            content["worst_destinations"] = [
                {"node": node, "degree": degrees[node], "node_entropy_nats": entropy[node], "hit_ratio": hits[node]}
                for node in np.argsort(entropy, kind="stable")[:_LISTED_NODES]
            ]
        if (weight := self.weight_by_source) is not None:
            content["best_known_sources"] = [
                {"node": node, "degree": degrees[node], "weight": weight[node]}
                for node in np.argsort(-weight, kind="stable")[:_LISTED_NODES]
            ]
        if self.predecessor_guess is not None and self.predecessor_guess_with_hop is not None:
            content["predecessor"] = {
                "knows_set": _describe_mean(self.predecessor_guess),
                "knows_first_hop": _describe_mean(self.predecessor_guess_with_hop),
                "kind": self.predecessor_guess.how,
            }
        if self.named_by_colluders:
            content["colluders_first_sight"] = [
                {"share": share, "named": _describe_mean(named), "times_floor": named.mean / share}
                for share, named in self.named_by_colluders.items()
            ]
        return content

    def _describe_number(self, name: str, estimate: Estimate | None) -> dict[str, Any]:
        """Return a number, with its interval where the observer's numbers are sampled."""
        if estimate is None:
            return {}
        interval = {f"{name.removesuffix('_nats')}_interval": estimate.interval} if self.observer == "opener" else {}
        return {name: estimate.mean} | interval


def _describe_mean(estimate: Estimate) -> dict[str, Any]:
    return {"mean": estimate.mean, "interval": estimate.interval}


@dataclass(frozen=True, eq=False)
class Channel:
    """P(observation | source, destination), one table per destination.

    ``tables[j][k, s]`` is the probability that destination j makes observation k of an update by ``sources[j][s]``;
    columns sum to one. ``kind`` says how it was derived, ``horizon`` is the longest return time that is distinguished.
    """

    observer: str
    kind: str
    horizon: int
    sources: tuple[IntArray, ...]
    tables: tuple[FloatArray, ...]

    @classmethod
    def derive(
        cls,
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
        observer only. ``hops`` are the mean hitting times of the chain, if at hand.
        """
        if observer not in OBSERVERS:
            raise InvalidParameterError("observer", observer, f"one of {', '.join(OBSERVERS)}")
        n_nodes, degrees = chain.n_nodes, int(chain.products_per_hop / chain.n_nodes**2)
        is_exact = n_nodes <= EXACT_NODES
        classes = _CLASSES if is_exact else _FEWER_CLASSES
        widest = degrees if observer == "last-hop" else n_nodes
        cure = ": choose a smaller graph, or audit the law by sampling"
        needed = (classes + 12) * widest * n_nodes * 8
        require_memory(f"the observation channel on {n_nodes} nodes", needed, memory_bytes, cure)
        if not is_exact and observer != "return-time":
            raise ResourceLimitError(
                f"the {observer} observer takes up to {EXACT_NODES} nodes, the graph has {n_nodes}"
            )
        affordable = (_EXACT_PRODUCTS if is_exact else _APPROXIMATE_PRODUCTS * n_nodes) / chain.products_per_hop
        whole = math.ceil(_HORIZON_LEGS * law.mean_hops(chain.mean_hitting_times() if hops is None else hops))
        horizon = min(whole, max(_SHORTEST_HORIZON, int(affordable)))
        # The first return time of each class; the last class starts beyond the horizon.
        starts = geometric_starts(1, horizon + 1, classes)
        if is_exact:
            kind, pairs = "exact", _iter_exact_tables(chain, law, starts, horizon, observer)
        else:
            kind = "approximate: the walk before the update is taken as independent"
            pairs = _iter_approximate_tables(chain, law, starts, horizon)
        sources, tables = zip(*pairs, strict=True)
        return cls(observer, kind, horizon, sources, tables)

    def expose(self, law: DestinationLaw) -> Exposure:
        """Return the exposure under ``law``, whose support the channel must cover."""
        # P(source, destination) in the long run, one row per destination.
        by_destination = np.ascontiguousarray((law.matrix.toarray() * law.source_prior[:, np.newaxis]).T)
        shares = by_destination.sum(axis=1)
        entropy, hits, known = np.empty(len(shares)), np.empty(len(shares)), np.zeros(len(shares))
        for node, (nodes, table) in enumerate(zip(self.sources, self.tables, strict=True)):
            joint = table * by_destination[node, nodes]
            total = joint.sum(axis=1)
            entropy[node] = special.entr(joint).sum() - special.entr(total).sum()
            hits[node] = joint.max(axis=1).sum()
            known[nodes] += np.divide(1.0, total, out=np.zeros_like(total), where=total > 0) @ joint**2
        blind = special.entr(by_destination).sum() - special.entr(shares).sum()
        return Exposure(
            observer=self.observer,
            node_entropy=Estimate.exact(float(entropy.sum()), self.kind),
            hit_ratio=Estimate.exact(float(hits.sum()), self.kind),
            blind_node_entropy=Estimate.exact(float(blind)),
            blind_hit_ratio=Estimate.exact(float(by_destination.max(axis=1).sum())),
            horizon=self.horizon,
            node_entropy_by_destination=entropy / shares,
            hit_ratio_by_destination=hits / shares,
            weight_by_source=known / law.source_prior,
        )

    def list_observations(self, law: DestinationLaw) -> FloatArray:
        """Return P(observation, source) under ``law``, a row for each observation of each destination."""
        shares = law.matrix.toarray() * law.source_prior[:, np.newaxis]
        rows = np.zeros((sum(len(table) for table in self.tables), len(shares)))
        end = 0
        for node, (nodes, table) in enumerate(zip(self.sources, self.tables, strict=True)):
            rows[end : end + len(table), nodes] = table * shares[nodes, node]
            end += len(table)
        return rows

    @cached_property
    def spreads(self) -> tuple[FloatArray, ...]:
        """Entropy of the observation for each source of each destination, in nats."""
        return tuple(special.entr(table).sum(axis=0) for table in self.tables)


def _iter_exact_tables(
    chain: Chain, law: DestinationLaw, starts: IntArray, horizon: int, observer: str
) -> Iterator[tuple[IntArray, FloatArray]]:
    for delivery in chain.deliveries(law.matrix.toarray(), horizon):
        times = np.concatenate((delivery.joint, delivery.beyond[np.newaxis]))
        if observer == "return-time":
            times = times.sum(axis=1, keepdims=True)
        table = np.add.reduceat(times, starts, axis=0).reshape(-1, len(delivery.sources))
        yield delivery.sources, table / table.sum(axis=0)


def _iter_approximate_tables(
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
