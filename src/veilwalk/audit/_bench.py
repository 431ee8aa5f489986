"""One run and all that is public about it: what every attack starts from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from veilwalk.audit import _posteriors as posteriors
from veilwalk.audit._profile import DistanceProfile
from veilwalk.audit._rehearsal import Counter, rehearse
from veilwalk.audit._rehearsed_deliveries import RehearsedDeliveries
from veilwalk.audit._rehearsed_sights import RehearsedSights
from veilwalk.audit._report import Scored
from veilwalk.audit._run import Run, Say
from veilwalk.audit._scores import score
from veilwalk.audit._settings import EXACT_NODES, SAMPLED_DESTINATIONS, AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.chains import (
    ArcChain,
    DeliveryLaw,
    WalkChain,
    arc_updates,
    iter_approximate_deliveries,
    iter_arc_deliveries,
    iter_deliveries,
    mean_hitting_times,
    token_law,
)
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph

# A stream of its own for the choice of destinations.
_SAMPLE_TASK = 0x64657374


class Bench:
    """A run, graph and law, prior and chains, and what was rehearsed."""

    def __init__(
        self,
        graph: Graph,
        law: DestinationLaw,
        settings: AuditSettings,
        run: Run,
        *,
        apart: IntArray,
        chain: WalkChain | ArcChain | None,
        horizon: int,
    ) -> None:
        """Take up a run; ``chain`` is that of the walk, None where it has none or none is needed."""
        self.graph, self.law, self.settings, self.run, self.apart = graph, law, settings, run, apart
        self.chain, self.horizon, self.support = chain, horizon, law.support
        self.matrix = law.matrix.toarray()
        self.prior = posteriors.source_priors(self.matrix)
        self.exact = bool(settings.timed) and settings.posterior == "exact"
        self.learning = bool(settings.timed) and settings.posterior == "by-class"
        # Every other lane is for calibration; with laws of their own posteriors need none, and all are scored.
        even = run.truth.lane % 2 == 0
        self.training = even if self.learning else np.zeros_like(even)
        self.attacked = np.ones(graph.n_nodes, dtype=np.bool_)
        large = settings.posterior == "rehearsed" and graph.n_nodes > EXACT_NODES
        if settings.timed and (settings.posterior == "estimated" or large):
            # One law costs seconds on a large graph: a sample of destinations stands for all.
            picked = task_generator(settings.seed, _SAMPLE_TASK).permutation(graph.n_nodes)[:SAMPLED_DESTINATIONS]
            self.attacked = np.isin(np.arange(graph.n_nodes), picked)
        self.profile = DistanceProfile(law.support, horizon)
        self.deliveries: RehearsedDeliveries | None = None
        self.sights: RehearsedSights | None = None

    def rehearse(self, say: Say) -> None:
        """Play the walk for the observers that learn from it, where there are any."""
        settings, counters = self.settings, list[Counter]()
        if not settings.rehearsing:
            return
        if (settings.timed and settings.posterior == "rehearsed") or "round" in settings.observers:
            self.deliveries = RehearsedDeliveries(
                self.graph,
                self.matrix,
                self.prior,
                apart=self.apart,
                attacked=self.attacked,
                return_times=self.run.seen.return_time,
            )
            counters.append(self.deliveries)
        if settings.colluding:
            bridging = "bridge" in settings.colluding
            colluders = self.run.colluders
            self.sights = RehearsedSights(self.graph, self.matrix, colluders, apart=self.apart, bridging=bridging)
            counters.append(self.sights)
        rehearse(self.graph, self.law, settings, colluders=self.run.colluders, counters=counters, say=say)

    @property
    def node_chain(self) -> WalkChain:
        """The walk as a chain on the nodes."""
        if not isinstance(self.chain, WalkChain):
            raise InvalidParameterError("walk", self.settings.walk, "a chain on the nodes, or rehearsed")
        return self.chain

    @cached_property
    def hitting(self) -> FloatArray:
        """Mean hitting times of a walk that is a chain on the nodes."""
        return mean_hitting_times(self.node_chain)

    @property
    def predicted_hops(self) -> float | None:
        """Exact mean hops per update, None where no chain tells."""
        if isinstance(self.chain, WalkChain):
            return self.law.mean_hops(self.hitting)
        return None if self.chain is None else arc_updates(self.chain, self.matrix).mean_hops

    @cached_property
    def coalition(self) -> tuple[posteriors.ColluderPosteriors | RehearsedSights, str]:
        """The colluders, and how they know: exact where the walk is a chain on the nodes and was not rehearsed."""
        if self.sights is not None:
            return self.sights, "rehearsed: counted on walks of its own"
        chain = self.node_chain
        visits = token_law(chain, self.matrix, self.hitting)
        return posteriors.ColluderPosteriors(chain, self.matrix, self.run.colluders, visits), "exact"

    def score(self, guess: FloatArray, rows: IntArray, destination: int) -> FloatArray:
        """Score posteriors of the given updates, all at one destination."""
        return score(guess, self.run.truth.source[rows], self.apart[destination], self.support)

    def by_destination(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each destination with its updates among ``rows``, ascending."""
        order = rows[np.argsort(self.run.seen.destination[rows], kind="stable")]
        nodes, starts = np.unique(self.run.seen.destination[order], return_index=True)
        for node, mine in zip(nodes, np.split(order, starts[1:]), strict=True):
            yield int(node), mine

    def laws(self, nodes: IntArray) -> Iterator[DeliveryLaw | None]:
        """Yield the delivery law of each node, as exact as the settings ask; None where none is needed."""
        by_law = bool(self.settings.timed) and self.settings.posterior in {"exact", "estimated"}
        if not by_law or self.chain is None:
            return iter([None] * len(nodes))
        if isinstance(self.chain, ArcChain):
            return iter_arc_deliveries(self.chain, self.matrix, self.horizon, nodes)
        make = iter_deliveries if self.exact else iter_approximate_deliveries
        return make(self.chain, self.matrix, self.horizon, nodes)

    def base(self, observer: str, node: int, here: Sightings, law: DeliveryLaw | None) -> FloatArray:
        """Return the posterior of a return-time observer from its law or its rehearsal; without one, the prior."""
        if law is not None:
            use = posteriors.from_return_time if observer == "return-time" else posteriors.from_last_hop
            return use(law, here, self.graph.n_nodes)
        if self.deliveries is not None and not self.learning:
            return self.deliveries.posterior(node, here, use_last_hop=observer == "last-hop")
        return np.tile(self.prior[node], (len(here), 1))

    def packed(
        self, rows: IntArray, scores: FloatArray, kind: str, prior: FloatArray, *, sampled: bool = False
    ) -> Scored:
        """Return scored updates with what a blind guess from ``prior`` would hit."""
        seen = self.run.seen
        return Scored(
            kind=kind,
            sampled=sampled,
            scores=scores,
            blind=prior.max(axis=1)[seen.destination[rows]],
            lanes=self.run.truth.lane[rows],
            return_time=seen.return_time[rows],
            destination=seen.destination[rows],
        )

    def require(self, rows: IntArray, what: str) -> IntArray:
        """Return ``rows``, or complain that none are left."""
        if not len(rows):
            raise InvalidParameterError("updates", len(rows), f"more than were asked for: none {what}")
        return rows
