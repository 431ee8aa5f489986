"""Defines members that use everything they see: the previous maker, a destination, a relay, a coalition."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from veilwalk.audit._filter import (
    EVERY,
    LEGS,
    LEVEL_BYTES,
    Ends,
    ExactFilter,
    MemberLog,
    SampledFilter,
    draw_own_recipients,
    measure_turns,
    record_segments,
)
from veilwalk.audit._knowledge import Knowledge, Posterior, group_equal, require_rows
from veilwalk.audit._observers import PreparedObserver, multiply_evidence
from veilwalk.audit._settings import Plan
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.sizes import EXACT_ARCS

# Unseen updates that a destination distinguishes by counts; each costs as much as not to count at all. None unseen is
# the case that makes it certain. Where paths are sampled it does not count.
_DISTINCT_COUNTS = 4
# Slower filters are refused, unless the settings say how many answers.
_LONGEST_MINUTES = 60.0
# Weights above this are certain.
_CERTAIN = 1.0 - 1e-9
_LINKED_SIGHTS = (1, 2, 4, 8, 16)
_RELAYS = 4
# Fewer answers make too few groups.
_LEAST_LINKED = 256
_MOST_SETS = 4_000
# Costs. Exact: products that take about a minute on two cores, and layers that are held. Sampled: nanoseconds for a hop
# of one path and for each sealing that it carries, those of a minute, and sealings carried (by legs, by gaps, at most).
_MINUTE_PRODUCTS, _LAYERS = 1e11, 64
_HOP_NS, _SEALING_NS, _MINUTE_NS = 250.0, 3.0, 1.0e11
_LEGS_CARRIED, _GAPS_CARRIED, _MOST_SEALINGS = 6.0, 2.0, 1_024
# Most answers, unless the settings ask for more.
_MOST_ANSWERS = 1_000
# Stretches of a coalition for one recipient, likewise.
_STRETCHES = 128


class PreviousMaker(PreparedObserver):
    """The maker of the update before: it knows its own recipients, one of which makes the next, and its first hop.

    The posterior over the recipients is exact, from the chain of the walk.
    """

    name = "previous-maker"
    sees = "the maker of the update before: for whom it sealed, and the neighbour it handed the token to"
    how = "exact: chances of its own recipients"

    def unsupported_reason(self, plan: Plan) -> str | None:
        """The chain of the walk must be small enough for a dense inverse."""
        most = plan.settings.exact_nodes
        is_small = plan.scheme.graph.n_nodes <= most and plan.n_states <= EXACT_ARCS
        own = None if is_small else f"exact openings take up to {most} nodes and {EXACT_ARCS} arcs"
        return super().unsupported_reason(plan) or own

    def memory_bytes(self, plan: Plan) -> int:
        """The dense inverse and its copies, and the posteriors."""
        return 4 * 8 * plan.n_states**2 + 8 * plan.scheme.graph.n_nodes * _MOST_SETS

    def prior(self, knowledge: Knowledge) -> FloatArray:
        """How often each node makes updates."""
        return np.tile(knowledge.scheme.source_prior, (knowledge.graph.n_nodes, 1))

    def watchers(self, knowledge: Knowledge, rows: IntArray) -> BoolArray:
        """Return the previous maker, who opened the update before the last."""
        return np.asarray(knowledge.sightings.destination[rows - 2, np.newaxis] == np.arange(knowledge.graph.n_nodes))

    def fit(self, knowledge: Knowledge) -> None:
        """Compute for each update the chances of the recipients that the previous maker drew."""
        lane, sightings = knowledge.grants.lane, knowledge.sightings
        # The opener of row r - 2 makes update r - 1, whose opener makes update r.
        rows = np.flatnonzero(lane[2:] == lane[:-2]) + 2
        self.rows = thin_rows(require_rows(rows, "follows two others on its lane"), _MOST_SETS)
        drawn = self.rows - 2
        recipients = draw_own_recipients(knowledge, drawn)
        weights = np.zeros((len(self.rows), knowledge.graph.n_nodes))
        for number in np.unique(lane[drawn]):
            places = np.flatnonzero(lane[drawn] == number)
            clocks, makers = sightings.clock[drawn[places]], sightings.destination[drawn[places]]
            (path,) = knowledge.replay_paths(int(number), hops=int(clocks.max()) + 1)
            states = knowledge.scheme.chain.states.after(makers, path[clocks + 1].astype(np.int64))
            for place, state in zip(places, states, strict=True):
                chosen = np.sort(recipients[place])
                weights[place, chosen] = knowledge.scheme.chain.potentials.opening_chances(int(state), chosen)
        self.weights = normalised(weights)


class Effort(NamedTuple):
    """What one answer takes: updates that the exact filter follows, or hops of paths; and how many nodes watch."""

    updates: float
    hops: float
    watchers: int = 1


@dataclass(eq=False)
class FilterObserver(PreparedObserver):
    """Members who pool every sighting with its time, their own draws, and which ciphertexts are the same.

    Attributes:
        particles: Paths that are sampled at a time, where paths are sampled.
        own_draws: Whether members remember their own recipients, where paths are sampled.
    """

    particles: int = 400
    own_draws: bool = True

    filter: ExactFilter | None = field(default=None, init=False)
    reported = True
    #: The fewest answers that are worth a row, and the minutes that ``all`` grants.
    fewest_answers = 64
    default_minutes = 1.0
    #: Numbers of unseen updates that it distinguishes by counts; 0 where it reads none. Some of them, but not all, only
    #: where the filter is exact.
    distinct_counts = 0

    @abstractmethod
    def effort(self, plan: Plan) -> Effort:
        """Return what one answer takes."""

    @abstractmethod
    def answer(self, knowledge: Knowledge) -> tuple[IntArray, FloatArray]:
        """Return the rows it answers for, ascending, and the weights of makers."""

    def answers_per_minute(self, plan: Plan) -> float:
        """Return how many answers take about a minute on two cores."""
        leg, graph, effort = plan.scheme.price.hops, plan.scheme.graph, self.effort(plan)
        if plan.samples_paths:
            # By the mean hops from one sighting to the next.
            sealings = min(_LEGS_CARRIED * leg, _GAPS_CARRIED * graph.n_nodes / effort.watchers)
            return _MINUTE_NS / (effort.hops * self.particles * (_HOP_NS + _SEALING_NS * sealings))
        return _MINUTE_PRODUCTS / (leg * effort.updates * plan.n_states * len(graph.indices))

    def count_answers(self, plan: Plan) -> int:
        """Return the number of answers: of the settings, or of about a minute, from the fewest to the most."""
        affordable = min(self.answers_per_minute(plan), _MOST_ANSWERS)
        return plan.settings.scored_by_filter or max(int(affordable), self.fewest_answers)

    def _reason_to_refuse(self, plan: Plan, most_minutes: float) -> str | None:
        """Return that the answers take longer than so many minutes; None where they do not, or were asked for."""
        answers = self.count_answers(plan)
        minutes = answers / max(self.answers_per_minute(plan), 1e-9)
        if plan.settings.scored_by_filter or minutes <= most_minutes:
            return None
        time = f"{minutes:.0f} minutes" if minutes < 120.0 else f"{minutes / 60:.0f} hours"
        return f"{answers} answers would take about {time}"

    def unsupported_reason(self, plan: Plan) -> str | None:
        """Filters that take hours are refused."""
        return super().unsupported_reason(plan) or self._reason_to_refuse(plan, _LONGEST_MINUTES)

    def skip_reason(self, plan: Plan) -> str | None:
        """``all`` takes it where its fewest answers take no longer than it grants."""
        return self._reason_to_refuse(plan, self.default_minutes)

    def memory_bytes(self, plan: Plan) -> int:
        """Layers of positions by destinations or paths, and the answers."""
        n_nodes, gap = plan.scheme.graph.n_nodes, plan.scheme.graph.n_nodes / self.effort(plan).watchers
        answers = 8 * n_nodes * (plan.settings.scored_by_filter or _MOST_ANSWERS)
        if not plan.samples_paths:
            return 8 * n_nodes * _LAYERS * plan.n_states + answers
        each = self.particles * (4 * n_nodes + 12 * 8 * min(int(2 * gap), _MOST_SEALINGS))
        return (os.cpu_count() or 1) * (each + LEVEL_BYTES) + answers

    def fit(self, knowledge: Knowledge) -> None:
        """Run the filter; answers are then looked up."""
        scheme, plan, counts = knowledge.scheme, knowledge.plan, self.distinct_counts
        self.n_answers, self.is_sampled = self.count_answers(plan), plan.samples_paths or self.colluding
        self.how = f"estimated from {self.particles} sampled paths" if self.is_sampled else "exact: everything seen"
        self.filter = None if plan.samples_paths else ExactFilter(scheme, distinct_counts=counts)
        self.paths = SampledFilter(
            scheme, counted=False, particles=self.particles, seed=knowledge.settings.seed, own_draws=self.own_draws
        )
        self.rows, self.weights = self.answer(knowledge)

    def join_answers(self, rows: IntArray, prior: FloatArray, groups: Sequence[IntArray]) -> list[Posterior]:
        """Return the prior times the product of likelihoods.

        Where paths are sampled the prior has the weight of one path: a source on no sampled path is not impossible.
        """
        weights = self.weights[np.searchsorted(self.rows, rows)]
        if self.is_sampled:
            weights = (self.particles * weights + prior) / (self.particles + 1)
        return [Posterior(multiply_evidence(weights, prior, group), self.how) for group in groups]

    def facts(self, knowledge: Knowledge) -> dict[str, float]:
        """Return how many paths were sampled, and the share of answers that none explains."""
        del knowledge
        return {"particles": self.paths.particles, "untold": self.paths.lost} if self.is_sampled else {}


@dataclass(eq=False)
class LoneObserver(FilterObserver):
    """One node that watches by itself. Its knowledge is vague, and takes more paths to estimate."""

    particles: int = 1_000

    def select_visits(self, knowledge: Knowledge) -> Ends:
        """Return openings by one node that follow each other in one lane."""
        lane, sightings = knowledge.grants.lane, knowledge.sightings
        groups = lane * knowledge.graph.n_nodes + sightings.destination
        return require_rows(pair_successive(np.arange(len(lane)), groups), "came to a destination for the second time")

    def watch(self, knowledge: Knowledge, ends: Ends) -> tuple[list[MemberLog], BoolArray]:
        """Return what the one node that opened at both ends of each pair saw, and its mask, a row a pair."""
        nodes = np.arange(knowledge.graph.n_nodes)
        masks = np.asarray(knowledge.sightings.destination[ends[:, 1], np.newaxis] == nodes)
        return record_segments(knowledge, ends, masks), masks


class Memory(LoneObserver):
    """A destination by itself that uses its whole past, and the update counts that it reads: a coalition of one.

    If it made the update before the one it opens, the count says so, and it knows its own recipients.
    """

    name = "memory"
    sees = "last hop, and all earlier visits of the token: times, ciphertexts, own updates and draws, update counts"
    distinct_counts = _DISTINCT_COUNTS

    def effort(self, plan: Plan) -> Effort:
        """Each node opens every so many updates; older sealings than some legs are forgotten."""
        n_nodes = plan.scheme.graph.n_nodes
        hops = LEGS * plan.scheme.price.hops + n_nodes
        return Effort(updates=float(n_nodes) * (_DISTINCT_COUNTS + 1), hops=hops)

    def watchers(self, knowledge: Knowledge, rows: IntArray) -> BoolArray:
        """Return the destination."""
        return np.asarray(knowledge.sightings.destination[rows, np.newaxis] == np.arange(knowledge.graph.n_nodes))

    def answer(self, knowledge: Knowledge) -> tuple[IntArray, FloatArray]:
        """Answer for updates to a destination that was one before."""
        ends = thin_rows(self.select_visits(knowledge), self.n_answers)
        logs, masks = self.watch(knowledge, ends)
        return ends[:, 1], (self.filter or self.paths).infer_opened(logs, masks, knowledge.progress)

    def facts(self, knowledge: Knowledge) -> dict[str, float]:
        """Return how often it is certain, and how often the count alone makes it so, which is exact."""
        facts = super().facts(knowledge) | {"certain": float((self.weights > _CERTAIN).any(axis=1).mean())}
        if not self.is_sampled:
            law = knowledge.law
            back = law.matrix.multiply(law.matrix.T).sum(axis=1)
            facts["certain_by_count_predicted"] = float(law.source_prior @ back)
        return facts


class Neighbour(LoneObserver):
    """A relay that hands on a ciphertext and gets another one back: straight back, and it knows the maker.

    It answers for every ciphertext when it first holds it.
    """

    name = "neighbour"
    sees = "one relay: every ciphertext it passes on, with times; the first sight of each is scored"

    def effort(self, plan: Plan) -> Effort:
        """Every other ciphertext passes a relay, and is followed there and back."""
        return Effort(updates=4.0, hops=max(plan.scheme.graph.n_nodes, plan.scheme.price.hops))

    def prior(self, knowledge: Knowledge) -> FloatArray:
        """How often each node makes updates: a relay does not know the destination."""
        return np.tile(knowledge.scheme.source_prior, (knowledge.graph.n_nodes, 1))

    def answer(self, knowledge: Knowledge) -> tuple[IntArray, FloatArray]:
        """Answer for updates that relays saw between two openings of their own, each for one relay."""
        # Ciphertexts that pass a relay between two openings of its own: the token passes once in as many hops as nodes.
        passed = min(knowledge.graph.n_nodes / 2, knowledge.scheme.price.hops)
        n_pairs = max(math.ceil(self.n_answers / passed), 4)
        return self.infer_passed(knowledge, thin_rows(self.select_visits(knowledge), n_pairs))

    def infer_passed(self, knowledge: Knowledge, ends: Ends) -> tuple[IntArray, FloatArray]:
        """Answer for ciphertexts that passed relays between these pairs of openings, each for one relay."""
        logs, masks = self.watch(knowledge, ends)
        weights, rows = (self.filter or self.paths).infer_first_sights(logs, masks, knowledge.progress)
        relay_of = {int(row): int(log.node[0]) for log in logs for row in log.row}
        rows, first = np.unique(rows, return_index=True)
        self.relays = np.array([relay_of[int(row)] for row in rows])
        return rows, weights[first]

    def watchers(self, knowledge: Knowledge, rows: IntArray) -> BoolArray:
        """Return the relay."""
        relays = self.relays[np.searchsorted(self.rows, rows), np.newaxis]
        return np.asarray(relays == np.arange(knowledge.graph.n_nodes))

    def facts(self, knowledge: Knowledge) -> dict[str, float]:
        """Return how often a maker is certain: to some relay, and to one relay at first sight."""
        predicted = knowledge.scheme.certain_to_a_relay()
        facts = super().facts(knowledge) | {
            "certain_to_a_relay": measure_turns(knowledge),
            "certain_at_first_sight": float((self.weights > _CERTAIN).any(axis=1).mean()),
        }
        return facts if predicted is None else facts | {"certain_to_a_relay_predicted": predicted}


class LinkedNeighbour(Neighbour):
    """One relay that also knows which of the ciphertexts that it passed on have one source."""

    name, sees = "linked-neighbour", "one relay, of several updates known to have one source"
    links = _LINKED_SIGHTS
    fewest_answers = _LEAST_LINKED

    def effort(self, plan: Plan) -> Effort:
        """Every relay is followed from one opening to the next so many times, for any number of answers."""
        updates = plan.scheme.graph.n_nodes * _RELAYS * 2 * max(self.links) / _LEAST_LINKED
        return Effort(updates=updates, hops=plan.scheme.price.hops * updates)

    def answer(self, knowledge: Knowledge) -> tuple[IntArray, FloatArray]:
        """Answer for all updates that a few relays saw, in as many lanes as there are."""
        ends = self.select_visits(knowledge)
        nodes = knowledge.sightings.destination[ends[:, 1]]
        relays = np.unique(nodes)[:: -(-knowledge.graph.n_nodes // _RELAYS)]
        # Two of three ciphertexts pass a relay before they are opened.
        each = 2 * max(self.links)
        ends = np.concatenate([thin_rows(ends[nodes == relay], each) for relay in relays])
        return self.infer_passed(knowledge, ends)

    def split_rows(self, knowledge: Knowledge, rows: IntArray) -> list[IntArray]:
        """Return the rows of each relay."""
        del knowledge
        return [rows[self.relays == node] for node in np.unique(self.relays)]

    def join(self, knowledge: Knowledge, rows: IntArray, groups: Sequence[IntArray]) -> list[Posterior]:
        """Join with the relay's mean posterior as the prior, for it is calibrated."""
        del knowledge
        prior = self.weights[np.searchsorted(self.rows, rows)].mean(axis=0)
        return self.join_answers(rows, prior, groups)


@dataclass(eq=False)
class Coalition(FilterObserver):
    """The strongest coalition: it uses everything that its members see, before and after, and shares keys.

    It answers for all honest updates, from one opening by a member to the next. An update that somebody of them held
    gets one guess, by its ciphertext. Of each number there is a guess too, in case that nobody held that update. With
    one recipient shared keys say nothing more: whom a ciphertext is for shows in the end, and only who opens it reads.

    Attributes:
        shares_keys: Whether a member opens what it holds with any member's key.
    """

    shares_keys: bool = True

    name = "coalition"
    sees = "colluders share all, keys too: every sighting with its time, own draws, what any key opens, update counts"
    colluding = True
    distinct_counts = EVERY
    # Without the strongest coalition an audit says little about colluders.
    default_minutes = 20.0

    def effort(self, plan: Plan) -> Effort:
        """Some colluder is chosen every so many updates, and between sightings the token does not get far."""
        n_nodes = plan.scheme.graph.n_nodes
        watchers = plan.colluders or plan.settings.colluders or max(round(n_nodes / 10), 1)
        hops = plan.scheme.price.hops * n_nodes / watchers
        return Effort(n_nodes / watchers**1.5, hops, watchers)

    def count_answers(self, plan: Plan) -> int:
        """Stretches for one recipient are long: a few have many updates."""
        count = super().count_answers(plan)
        return count if self.links or plan.samples_paths or plan.settings.scored_by_filter else min(count, _STRETCHES)

    def answers_per_minute(self, plan: Plan) -> float:
        """Where the opened updates are exact, the others are sampled as well."""
        if self.links and not plan.samples_paths:
            return super().answers_per_minute(plan)
        sampled = super().answers_per_minute(replace(plan, sampling=True))
        return sampled if plan.samples_paths else 1.0 / (1.0 / sampled + 1.0 / super().answers_per_minute(plan))

    def memory_bytes(self, plan: Plan) -> int:
        """As for sampled paths, with every way and every answer of a segment."""
        effort = self.effort(plan)
        ways = (os.cpu_count() or 1) * self.particles * 4 * int(3 * effort.hops)
        updates = plan.scheme.graph.n_nodes / effort.watchers
        answers = 8 * plan.scheme.graph.n_nodes * int(self.count_answers(plan) * updates)
        sampled = super().memory_bytes(replace(plan, sampling=True))
        return max(super().memory_bytes(plan), sampled) + ways + answers

    def prior(self, knowledge: Knowledge) -> FloatArray:
        """Colluders know their own updates."""
        outside = normalised(np.where(knowledge.is_colluder, 0.0, knowledge.scheme.source_prior))
        return np.tile(outside, (knowledge.graph.n_nodes, 1))

    def select_openings(self, knowledge: Knowledge) -> Ends:
        """Return pairs of openings by colluders that follow each other, where an honest node made the second."""
        rows = np.flatnonzero(knowledge.is_colluder[knowledge.sightings.destination])
        ends = pair_successive(rows, knowledge.grants.lane[rows])
        honest = ~knowledge.grants.by_colluder[ends[:, 1]]
        return require_rows(ends[honest], "went to a colluder from an honest source")

    def choose_ends(self, knowledge: Knowledge) -> Ends:
        """Return the openings between which it answers."""
        return thin_rows(self.select_openings(knowledge), self.n_answers)

    def answer(self, knowledge: Knowledge) -> tuple[IntArray, FloatArray]:
        """Answer for all updates between openings; exact filters answer for those that are opened."""
        self.ends, member = self.choose_ends(knowledge), knowledge.is_colluder
        shares_keys = self.shares_keys and knowledge.scheme.recipients > 1
        self.paths = SampledFilter(
            knowledge.scheme,
            counted=True,
            particles=self.particles,
            seed=knowledge.settings.seed,
            own_draws=self.own_draws,
            shares_keys=shares_keys,
        )
        logs = record_segments(knowledge, self.ends, member, shares_keys=shares_keys)
        self.opened_rows = self.held_rows = self.ends[:, 1]
        if self.filter is not None and self.links:
            # With one recipient they read what they open.
            self.how, self.is_sampled = "exact: everything seen", False
            return self.opened_rows, self.filter.infer_opened(logs, member, knowledge.progress)
        weights, rows = self.paths.infer_all(logs, member, knowledge.progress)
        self.held_rows = np.intersect1d(rows, np.concatenate([log.row for log in logs]))
        if self.filter is not None:
            self.how = f"estimated from {self.particles} sampled paths; exact for opened updates"
            exact = self.filter.infer_opened(logs, member, knowledge.progress)
            weights[np.searchsorted(rows, self.opened_rows)] = exact
        return rows, weights

    def subsets(self, knowledge: Knowledge) -> dict[str, IntArray]:
        """Return what it opens by the rule, reads, holds without reading, and never holds."""
        read = self.rows[select_read(knowledge)[self.rows]] if self.shares_keys else self.opened_rows
        held = np.setdiff1d(self.held_rows, read)
        unheld = np.setdiff1d(self.rows, self.held_rows)
        parts = {"opened": self.opened_rows, "read": read, "held, not read": held, "never held": unheld}
        return {name: rows for name, rows in parts.items() if len(rows)}


class LinkedCoalition(Coalition):
    """The strongest coalition, which also knows which of the updates that it opened, or read, have one source."""

    name, sees = ("linked-coalition", "the coalition, of several updates (opened, or read) known to have one source")
    links = _LINKED_SIGHTS
    fewest_answers, default_minutes = _LEAST_LINKED, FilterObserver.default_minutes
    part_names = ("opened", "read")

    def choose_ends(self, knowledge: Knowledge) -> Ends:
        """Return openings in sets of the largest size that exists, one source each."""
        ends, size = self.select_openings(knowledge), max(self.links)
        pseudonyms = knowledge.grants.pseudonyms[ends[:, 1]]
        while size > np.bincount(pseudonyms).max():
            size //= 2
        return ends[np.sort(thin_rows(group_equal(pseudonyms, size), max(self.n_answers // size, 1)).ravel())]

    def split_rows(self, knowledge: Knowledge, rows: IntArray) -> list[IntArray]:
        """Return all that it opens, and all that it reads, if that is more: it joins updates to any member."""
        names = self.part_names[: 1 if self.filter is not None else 2]
        subsets = self.subsets(knowledge)
        return [np.intersect1d(rows, subsets[name]) for name in names]

    def join(self, knowledge: Knowledge, rows: IntArray, groups: Sequence[IntArray]) -> list[Posterior]:
        """Join with the prior of updates that go to colluders, or of all that are read."""
        is_colluder = knowledge.is_colluder
        prior = knowledge.scheme.source_prior
        if len(rows) == len(self.opened_rows):
            prior = (prior * is_colluder) @ knowledge.prior
        return self.join_answers(rows, normalised(np.where(is_colluder, 0.0, prior)), groups)


def pair_successive(rows: IntArray, groups: IntArray) -> Ends:
    """Return pairs of ``rows`` that follow each other in one group, in the order of the second."""
    order = np.argsort(groups, kind="stable")
    same = groups[order[1:]] == groups[order[:-1]]
    pairs = np.stack((rows[order[:-1][same]], rows[order[1:][same]]), axis=1)
    return np.asarray(pairs[np.argsort(pairs[:, 1])])


def select_read(knowledge: Knowledge) -> BoolArray:
    """Return which updates some member holds that is for one of them: with shared keys they read these."""
    sightings, is_colluder = knowledge.sightings, knowledge.is_colluder
    lane, held = knowledge.grants.lane, sightings.first_sight_node >= 0
    if knowledge.scheme.recipients == 1:
        return np.asarray(held & is_colluder[sightings.destination])
    # The opener of the row before sealed it; the first update of a lane is left out.
    follows = np.r_[False, lane[1:] == lane[:-1]]
    rows = np.flatnonzero(held & follows)
    read = np.zeros(len(lane), dtype=np.bool_)
    read[rows] = is_colluder[draw_own_recipients(knowledge, rows - 1)].any(axis=1)
    return read


def thin_rows(rows: IntArray, most: int) -> IntArray:
    """Return at most so many of the rows, evenly spread."""
    return np.asarray(rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(np.int64)])
