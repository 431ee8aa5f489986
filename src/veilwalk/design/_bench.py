"""One graph, support and walk: the tables that laws on them share, the best law, and how near others are to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilwalk.chains import chain_of
from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray
from veilwalk.core.errors import InfeasibleDesignError, InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._channel import Channel, Exposure, derive_channel, exposure
from veilwalk.design._law import DestinationLaw, law_by_distance
from veilwalk.design._optimal import Optimum, Problem
from veilwalk.design._paper import covered_return_times, exact_window_likelihood
from veilwalk.design._scaling import scaled, total_support, with_matrix
from veilwalk.graphs import Graph

# Products that the window notion may take: half a minute on two cores.
_WINDOW_PRODUCTS = 1e11
# Passes of the search for the return time, and the accuracy to which each waits for the walk to mix.
_SEARCH_PASSES, _SETTLING_NATS = 5, 37.0
# The channel is derived anew from the law it led to, at most so often.
_ROUNDS = 3
# A prior that is uniform to this is.
_EVEN = 1e-8


@dataclass(frozen=True, eq=False)
class Round:
    """One turn of optimisation: the best value with the channel held fixed, and with the channel of that best law.

    ``channel_moved`` is the mean total variation distance between the two channels, over all pairs.
    """

    value_held_fixed: float
    value_derived_anew: float
    channel_moved: float


@dataclass(frozen=True, eq=False)
class Best:
    """The best law met, with its own channel; the optimum behind it, with the channel that was held fixed for it."""

    law: DestinationLaw
    channel: Channel
    optimum: Optimum
    held_fixed: Channel
    rounds: tuple[Round, ...]


class LawBench:
    """One graph, support and walk, and what designs on them share."""

    def __init__(
        self, graph: Graph, *, support: DistanceSupport, walk: Walk = SIMPLE, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ):
        """Prepare; ``memory_bytes`` is the most that an observation channel may take."""
        self.graph, self.support, self.walk = graph, support, walk
        self.chain = chain_of(graph, walk)
        self.hops = self.chain.mean_hitting_times(memory_bytes=memory_bytes)
        self.uniform = law_by_distance(graph, support, np.ones(support.hi + 1))
        self._memory_bytes = memory_bytes

    def return_time(self, tail_probability: float) -> tuple[float, str]:
        """Return kappa and how it was chosen.

        The paper's rule takes the return time whose survival is half that of the shortest one covered. Where walks mix
        so slowly that finding it would take hours, it is the longest that the window notion can afford.
        """
        validate.probability(tail=tail_probability)
        a_hop = self.chain.products_per_hop / self.graph.n_nodes
        settling = _SETTLING_NATS / -math.log(max(self.chain.mixing_rate, 1e-3))
        if _SEARCH_PASSES * settling * a_hop > _WINDOW_PRODUCTS:
            longest = max(math.floor(_WINDOW_PRODUCTS / (2 * a_hop)), self.support.hi + 1)
            return float(longest), "the longest affordable: walks mix too slowly here for the paper's rule"
        half = covered_return_times(self.chain, self.support, ((1 - tail_probability) / 2,))[0]
        return float(max(half, self.support.hi + 1)), "the paper's rule"

    def window_likelihood(self, return_time: float, window_radius: int) -> FloatArray:
        """Return the window likelihood of all pairs at that return time."""
        validate.integer(window=window_radius)
        validate.at_least(0, window=window_radius)
        if not return_time > self.support.hi:
            raise InvalidParameterError(
                "return time", return_time, f"more than the largest distance, {self.support.hi}"
            )
        return exact_window_likelihood(self.chain, return_time, window_radius)

    def channel(self, law: DestinationLaw, observer: str = "return-time") -> Channel:
        """Derive the observation channel of ``law``."""
        return derive_channel(self.chain, law, observer=observer, hops=self.hops, memory_bytes=self._memory_bytes)

    def within_budget(self, law: DestinationLaw, budget: float) -> DestinationLaw:
        """Return the nearest law with the same source prior and at most so many mean hops."""
        if law.mean_hops(self.hops) <= budget:
            return law
        with np.errstate(divide="ignore"):
            table = np.log(law.matrix.toarray() * law.source_prior[:, np.newaxis])
        return with_matrix(law, scaled(table, law.source_prior, hops=self.hops, budget=budget).joint)

    def problem(self, law: DestinationLaw, channel: Channel, budget: float, *, balanced: bool) -> Problem:
        """Return the problem of the best law on the support of ``law``: balanced, or with its prior."""
        table, prior = law.matrix, law.source_prior
        if balanced:
            table, prior = total_support(table), np.full(len(prior), 1.0 / len(prior))
        usable: BoolArray = table.toarray() > 0
        return Problem(channel, np.ascontiguousarray(usable.T), prior, np.ascontiguousarray(self.hops.T), budget)

    def optimal(self, start: DestinationLaw, budget: float, *, objective: str, observer: str = "return-time") -> Best:
        """Return the best law with the prior of ``start``.

        The channel depends on the law: it is derived anew from each optimum until that moves its value by less than it
        may be from the best. Of all laws met, ``start`` included, the one that is best with its own channel is kept.
        """
        held, rounds = self.channel(start, observer), []
        found = [(objective_value(exposure(start, held), objective), start, held)]
        for _ in range(_ROUNDS):
            optimum = self.problem(start, held, budget, balanced=False).solve(objective)
            law = with_matrix(start, optimum.joint.T)
            anew = self.channel(law, observer)
            value = objective_value(exposure(law, anew), objective)
            found.append((value, law, anew))
            rounds.append(Round(optimum.value, value, held.distance_to(anew)))
            if abs(value - optimum.value) <= optimum.gap * optimum.value:
                break
            held = anew
        pick = max if objective == "entropy" else min
        _, law, channel = pick(found, key=lambda one: one[0])
        return Best(law, channel, optimum, held, tuple(rounds))


def objective_value(found: Exposure, objective: str) -> float:
    """Return what ``objective`` asks for: node entropy in nats, or the hit ratio."""
    return found.node_entropy_nats if objective == "entropy" else found.hit_ratio


@dataclass(frozen=True, kw_only=True, eq=False)
class Certificate:
    """A law's value beside a bound that no comparable law can pass, the observation channel held fixed.

    With the channel that a law has of its own it may pass by as much as the channel moves: some millionths of a nat.

    Comparable is a law on the same support with at most ``budget_hops`` mean hops; with ``prior`` ``uniform`` any
    balanced one, with ``its own`` any that makes each node the source as often as this law does.
    """

    law: str
    objective: str
    prior: str
    budget_hops: float
    value: float
    best_found: float
    bound: float

    @property
    def shortfall(self) -> float:
        """How far the law may be from the best, as a share of the bound; negative where it does better."""
        behind = self.bound - self.value if self.objective == "entropy" else self.value - self.bound
        # Where nobody can hide at all, no law is behind another.
        return behind / self.bound if self.bound else behind

    def in_words(self) -> str:
        """Return the certificate as a sentence."""
        what = "node entropy" if self.objective == "entropy" else "hit ratio"
        rivals = "any balanced law" if self.prior == "uniform" else "any law with its own source prior"
        where = (
            f"on this graph, in {what}, with up to {self.budget_hops:.1f} hops, for this walk and observation channel"
        )
        if self.shortfall < -1e-9:
            return f"{self.law} does {-self.shortfall:.3%} better than {rivals} could {where}: it is not balanced"
        # Rounded up: "within" must stay true.
        share = math.ceil(max(self.shortfall, 0.0) * 1e5) / 1e5
        return f"{self.law} is within {share:.3%} of the best {rivals} could do {where}"


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowFloor:
    """Definition PrivacyNotion at one return time: node entropy of every destination, in nats."""

    return_time: float
    chosen_by: str
    node_entropy_by_destination: FloatArray

    @property
    def node_entropy_nats(self) -> float:
        """The minimum over destinations, which the definition asks for."""
        return float(self.node_entropy_by_destination.min())

    def worst_destinations(self, count: int = 5) -> IntArray:
        """Return the destinations with the least entropy, worst first."""
        return np.argsort(self.node_entropy_by_destination, kind="stable")[:count]


def certify(
    bench: LawBench, name: str, law: DestinationLaw, channel: Channel, *, objective: str = "entropy"
) -> tuple[Certificate, ...]:
    """Compare ``law`` with the best balanced law that costs no more, and with the best that has its prior.

    The first is left out where no balanced law is that cheap, the second where it is the same.
    """
    budget = law.mean_hops(bench.hops)
    is_balanced = float(np.ptp(law.source_prior)) * len(law.source_prior) < _EVEN
    found = []
    for prior in ("uniform",) if is_balanced else ("uniform", "its own"):
        try:
            best = bench.problem(law, channel, budget, balanced=prior == "uniform").solve(objective)
        except InfeasibleDesignError:
            continue
        found.append(_certificate(name, law, channel, best, prior=prior, budget=budget))
    return tuple(found)


def certify_best(best: Best, simple: DestinationLaw, *, budget: float, even: bool) -> tuple[Certificate, ...]:
    """Certify the best law, and the simple one it started from, on the channel that was held fixed."""
    prior, simply = ("uniform", "uniform-node, balanced,") if even else ("its own", "uniform-node")
    return tuple(
        _certificate(name, law, best.held_fixed, best.optimum, prior=prior, budget=budget)
        for name, law in (("optimal", best.law), (simply, simple))
    )


def _certificate(
    name: str, law: DestinationLaw, channel: Channel, best: Optimum, *, prior: str, budget: float
) -> Certificate:
    return Certificate(
        law=name,
        objective=best.objective,
        prior=prior,
        budget_hops=budget,
        value=objective_value(exposure(law, channel), best.objective),
        best_found=best.value,
        bound=best.bound,
    )
