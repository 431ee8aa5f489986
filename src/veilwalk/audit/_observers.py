"""Defines observers, and those that judge each update by one sighting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from veilwalk.audit._knowledge import Knowledge, Posterior, require_rows
from veilwalk.audit._play import Sightings
from veilwalk.audit._sampled import SightCounts, path_posterior, select_first_updates
from veilwalk.audit._settings import EXACT, REHEARSED, SCORED_BY_FEW, Plan
from veilwalk.chains import NodeChain, stationary_law
from veilwalk.core import sizes
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.design import exact_window_likelihood

# How many updates of one source are joined.
_LINKED = (1, 2, 4, 8)
# Bins of return times for the window notion.
_WINDOW_BINS = 40
# Largest graph for the observer that knows every hop.
_PATH_NODES = 2_000


class Observer(ABC):
    """An observer: what it sees, where it is possible, and its posterior over sources.

    A subclass needs a ``name``, a line ``sees``, and :meth:`posterior`. An audit uses a copy, so that ``fit`` may store
    what it learns on ``self``. Knowledge never holds a source, so no observer can read one.

    Attributes:
        name: The name in settings and records.
        sees: What it sees, in a line for help and documentation.
        timed: Whether it reads return times, through ``knowledge.timing``.
        use_last_hop: Whether it also uses the neighbour that the token came from.
        colluding: Whether it is a coalition.
        by_destination: Whether it is the destination alone; else it selects its own rows.
        for_plain_walk: Whether it can attack a plain walk.
        for_candidates: Whether it can attack looked-up candidates, on graphs of any size.
        reported: Whether a report names the reason where ``all`` leaves it out.
        links: Sizes of the groups of updates of one source that it joins; empty where it joins none.
        part_names: What its parts of rows are, where updates of each part are joined apart.
    """

    name: ClassVar[str]
    sees: ClassVar[str]
    timed: ClassVar[bool] = False
    use_last_hop: ClassVar[bool] = False
    colluding: ClassVar[bool] = False
    by_destination: ClassVar[bool] = True
    for_plain_walk: ClassVar[bool] = False
    for_candidates: ClassVar[bool] = False
    reported: ClassVar[bool] = False
    links: ClassVar[tuple[int, ...]] = ()
    part_names: ClassVar[tuple[str, ...]] = ()

    def unsupported_reason(self, plan: Plan) -> str | None:
        """Return why it is not possible there; None where it is."""
        if plan.scheme.is_direct and not self.for_plain_walk:
            return "the receiver of a plain walk knows the source by its last hop"
        if plan.looked_up and not self.for_candidates:
            return (
                f"it needs tables of all pairs: not by-class, fewer than {sizes.LARGE_NODES} nodes, and memory for them"
            )
        return None

    def skip_reason(self, plan: Plan) -> str | None:
        """Return why ``all`` leaves it out where it is possible by name; None where ``all`` takes it."""
        del plan
        return None

    def rehearses(self, plan: Plan) -> bool:
        """Return whether it needs first sights on simulated walks."""
        del plan
        return False

    def memory_bytes(self, plan: Plan) -> int:
        """Return the memory it takes besides a row of scores for each update."""
        del plan
        return 0

    def fit(self, knowledge: Knowledge) -> None:
        """Learn from the scheme and the sightings, once, before any question."""
        del knowledge

    def watchers(self, knowledge: Knowledge, rows: IntArray) -> BoolArray | None:
        """Return who watches each update, a row each: where names are hidden it knows these and their neighbours.

        By default the destination or the colluders; None is an observer that knows the names of all.
        """
        if self.colluding:
            return np.tile(knowledge.is_colluder, (len(rows), 1))
        nodes = np.arange(knowledge.graph.n_nodes)
        return knowledge.sightings.destination[rows, np.newaxis] == nodes if self.by_destination else None

    def prior(self, knowledge: Knowledge) -> FloatArray:
        """Return its blind guess, a row a destination."""
        return knowledge.prior

    def select_rows(self, knowledge: Knowledge) -> IntArray:
        """Return the updates that it answers for: by default all at attacked destinations."""
        return np.flatnonzero(knowledge.attacked[knowledge.sightings.destination])

    @abstractmethod
    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Return its posterior for the updates ``rows``, all at one destination."""

    def facts(self, knowledge: Knowledge) -> dict[str, float]:
        """Return further numbers for its report."""
        del knowledge
        return {}

    def subsets(self, knowledge: Knowledge) -> dict[str, IntArray]:
        """Return those of its rows that are also scored by themselves, by name."""
        del knowledge
        return {}

    def split_rows(self, knowledge: Knowledge, rows: IntArray) -> list[IntArray]:
        """Return the rows in parts that it is asked about one by one; updates are joined within a part."""
        return [subset for _, subset in knowledge.iter_destinations(rows)]

    def join(self, knowledge: Knowledge, rows: IntArray, groups: Sequence[IntArray]) -> list[Posterior]:
        """Return posteriors of groups (places in ``rows``) that have one source each, for each size of groups."""
        del knowledge
        raise TypeError(f"{self.name} joins no updates ({len(groups)} sizes of groups of {len(rows)} rows)")


class Prior(Observer):
    """Knows the prior over sources: the long run of the protocol, given who opens."""

    name, sees = "prior", "that it was chosen"
    for_plain_walk = for_candidates = True

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Return the prior."""
        scheme, how = knowledge.scheme, "estimated from sampled paths"
        if scheme.has_exact_law:
            how = EXACT
        elif knowledge.plan.looked_up or not len(scheme.openings.joint):
            how = "estimated: by how often each node draws the destination"
        return Posterior(knowledge.select_prior(rows), how)


class Window(Observer):
    """The paper's window notion as an adversary: P_ij times the window likelihood at the return time.

    The likelihood is exact at the median of each of up to 40 geometric bins of return times. It is not the best
    observer.
    """

    name, sees = "window", "the paper's notion: a window on the return time"

    def unsupported_reason(self, plan: Plan) -> str | None:
        """The notion is about hitting times of a chain on the nodes, to one destination."""
        if reason := super().unsupported_reason(plan):
            return reason
        if not plan.scheme.has_exact_law:
            return f"the notion is for one destination, the scheme seals for {plan.scheme.recipients}"
        return f"the notion is not for the {plan.scheme.walk.kind} walk" if plan.without_node_chain else None

    def fit(self, knowledge: Knowledge) -> None:
        """Compute the likelihoods of the notion."""
        times, radius = knowledge.sightings.return_time, knowledge.settings.window_radius
        ends = np.geomspace(times.min(), times.max(), _WINDOW_BINS + 1)
        index = np.searchsorted(ends[1:-1], times, side="right")
        middles = np.array([np.median(times[index == b]) for b in np.unique(index)])
        # Halfway between medians, on the scale of the bins.
        self._edges = np.sqrt(middles[1:] * middles[:-1])
        chain, law = knowledge.scheme.chain, knowledge.matrix
        tables = [np.ascontiguousarray((law * exact_window_likelihood(chain, m, radius)).T) for m in middles]
        self._weights = np.stack(tables)

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Return the notion's posterior."""
        sightings = knowledge.sightings.take(rows)
        index = np.searchsorted(self._edges, sightings.return_time, side="right")
        weight = self._weights[index, sightings.destination]
        # The middle of a bin may be too short for every candidate; the notion then has no answer.
        silent = weight.sum(axis=1) == 0
        weights = normalised(np.where(silent[:, np.newaxis], knowledge.matrix.T[sightings.destination], weight))
        how = f"the paper's notion; exact likelihoods at the medians of up to {_WINDOW_BINS} return-time bins"
        return Posterior(weights, how)


class ReturnTime(Observer):
    """Counts the hops since the token last passed."""

    name, sees = "return-time", "hops since the token last passed, whole law"
    timed = for_candidates = True

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Return the posterior given the return time."""
        return knowledge.timing.posterior(knowledge.sightings.take(rows), use_last_hop=self.use_last_hop)


class LastHop(ReturnTime):
    """Also sees the neighbour that the token came from."""

    name, sees = "last-hop", "return time, and the neighbour it came from"
    for_plain_walk = use_last_hop = True


class Repeated(LastHop):
    """Knows also which updates have one source: by a fingerprint in the content, say. The source is not granted."""

    name, sees = "repeated", "several last-hop sightings known to have one source"
    for_plain_walk = for_candidates = False
    links = _LINKED

    def join(self, knowledge: Knowledge, rows: IntArray, groups: Sequence[IntArray]) -> list[Posterior]:
        """Return the prior times the product of likelihoods."""
        evidence, prior = knowledge.timing.evidence(knowledge.sightings.take(rows)), knowledge.select_prior(rows)[0]
        own = prior[evidence.candidates] if evidence.prior is None else evidence.prior
        posteriors = []
        for places in groups:
            weights = np.zeros((len(places), len(prior)))
            weights[:, evidence.candidates] = multiply_evidence(evidence.weights, own, places)
            posteriors.append(Posterior(weights, evidence.how))
        return posteriors


def multiply_evidence(weights: FloatArray, prior: FloatArray, groups: IntArray) -> FloatArray:
    """Return the prior times the product of likelihoods, each weight over prior."""
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = np.where(prior > 0.0, np.log(weights / prior), -np.inf)
        total = np.log(prior) + evidence[groups].sum(axis=1)
    return normalised(np.exp(total - total.max(axis=1, keepdims=True)))


class ExactSights:
    """Posteriors of colluders who know which of them first held a ciphertext, exact on a chain on the nodes.

    Until the first of them holds a ciphertext the walk avoids all colluders, so everything comes from the chain killed
    on them. The destination is one of them. Colluders know their own updates, which are not scored.
    """

    def __init__(self, chain: NodeChain, law: FloatArray, colluders: IntArray) -> None:
        """Prepare for ``law``."""
        self._free = np.setdiff1d(np.arange(chain.n_nodes), colluders)
        self._place = np.full(chain.n_nodes, -1)
        self._place[self._free] = np.arange(len(self._free))
        step = chain.transition_matrix.toarray()[np.ix_(self._free, self._free)]
        self._visits = np.linalg.inv(np.eye(len(self._free)) - step)
        legs = stationary_law(law)[:, np.newaxis] * law
        self._prior = normalised(np.ascontiguousarray(legs.T))[:, self._free]

    def posterior(self, sightings: Sightings) -> Posterior:
        """Return the posterior given the node from which a colluder first received the ciphertext.

        The colluder itself adds nothing: from the same node each is reached with the same chance by any source.
        """
        weight = self._prior[sightings.destination] * self._visits[:, self._place[sightings.first_sight_from]].T
        full = np.zeros((len(weight), len(self._place)))
        full[:, self._free] = normalised(weight)
        return Posterior(full, EXACT)


class FirstSight(Observer):
    """Colluders who know which of them first held the ciphertext: exact on a chain on the nodes, else rehearsed."""

    name, sees = "first-sight", "colluders share which of them first held the ciphertext, and from whom"
    colluding, by_destination = True, False

    def rehearses(self, plan: Plan) -> bool:
        """Simulated walks serve where there is no chain on the nodes, or where the settings ask for them."""
        return plan.without_node_chain or plan.settings.posterior == REHEARSED or not plan.scheme.has_exact_law

    def fit(self, knowledge: Knowledge) -> None:
        """Take the counts of the rehearsal, or solve the chain killed on colluders."""
        self._sights: ExactSights | SightCounts
        if knowledge.rehearsal is not None and knowledge.rehearsal.sights is not None:
            self._sights = knowledge.rehearsal.sights
        elif knowledge.scheme.chain.on_nodes is not None:
            self._sights = ExactSights(knowledge.scheme.chain.on_nodes, knowledge.matrix, knowledge.colluders)
        else:
            raise TypeError("first sights need a rehearsal or a chain on the nodes")

    def prior(self, knowledge: Knowledge) -> FloatArray:
        """Colluders know their own updates."""
        return knowledge.honest_prior

    def select_rows(self, knowledge: Knowledge) -> IntArray:
        """Return updates that went to a colluder from an honest source."""
        to_colluder = knowledge.is_colluder[knowledge.sightings.destination]
        rows = np.flatnonzero(to_colluder & ~knowledge.grants.by_colluder)
        rows = rows[:: -(-len(rows) // SCORED_BY_FEW) or 1]
        return require_rows(rows, "went to a colluder from an honest source")

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Return their common posterior."""
        return self._sights.posterior(knowledge.sightings.take(rows))


class PreparedObserver(Observer):
    """An observer that answers when it is fitted: for ``rows``, ascending, with ``weights``; ``how`` says how."""

    by_destination = False
    how: str
    rows: IntArray
    weights: FloatArray

    def select_rows(self, knowledge: Knowledge) -> IntArray:
        """Return the updates that it answered for."""
        del knowledge
        return self.rows

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> Posterior:
        """Return its answers."""
        del knowledge
        return Posterior(self.weights[np.searchsorted(self.rows, rows)], self.how)


class Path(PreparedObserver):
    """Knows every hop, but cannot look into a ciphertext, nor see where one ends and the next begins."""

    name, sees = "path", "last hop, and every hop the token made, as an observer of all links knows"

    def unsupported_reason(self, plan: Plan) -> str | None:
        """Posteriors of all updates are in memory at once."""
        n_nodes = plan.scheme.graph.n_nodes
        own = f"it takes up to {_PATH_NODES} nodes, the graph has {n_nodes}" if n_nodes > _PATH_NODES else None
        return super().unsupported_reason(plan) or own

    def skip_reason(self, plan: Plan) -> str | None:
        """``all`` takes it where there is no chain on the nodes."""
        return None if plan.without_node_chain else "a chain on the nodes says how much a path can tell"

    def memory_bytes(self, plan: Plan) -> int:
        """Paths of a few tokens, and the posteriors."""
        return (256 << 20) + 4 * 8 * min(plan.settings.updates, SCORED_BY_FEW) * plan.scheme.graph.n_nodes

    def fit(self, knowledge: Knowledge) -> None:
        """Follow the paths of the first updates of every lane."""
        rows = require_rows(Observer.select_rows(self, knowledge), "was left to score")
        self.rows = select_first_updates(knowledge.grants.lane, rows, SCORED_BY_FEW)
        posterior = path_posterior(knowledge, self.rows)
        self.weights, self.how = posterior.weights, posterior.how
