"""Laws for any graph, each with its price, what it leaves hidden, and how near it is to the best there can be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InfeasibleDesignError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design._bench import Best, LawBench, Round, objective_value
from veilwalk.design._channel import Channel, Exposure, exposure
from veilwalk.design._equalised import Equalised, equalised_law, weight_ratio
from veilwalk.design._law import DestinationLaw
from veilwalk.design._on_graph import window_entropies
from veilwalk.design._optimal import OBJECTIVES, Optimum
from veilwalk.design._scaling import balanced as balanced_law
from veilwalk.graphs import Graph, distances

LAWS = ("uniform-node", "equalised", "optimal")
# A prior that is uniform to this is.
_EVEN = 1e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class Certificate:
    """A law's value beside a bound that no comparable law can pass, the observation channel held fixed.

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
        return behind / self.bound

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


@dataclass(frozen=True, kw_only=True, eq=False)
class LawDesign:
    """A law on one graph under one walk: price, exposure, guarantee and certificates.

    ``exposure`` is exact or approximate as ``channel.kind`` says; the prior is the law's own. ``weight_ratio`` says how
    many times one source of a destination outweighs another, at most, in the window notion at its return time: 1 in an
    equalised law that is exact. ``equalised`` and ``rounds`` are there where the law is of that kind.
    """

    name: str
    walk: str
    law: DestinationLaw
    is_balanced: bool
    mean_iteration_hops: float
    channel: Channel
    exposure: Exposure
    window: WindowFloor
    weight_ratio: float
    certificates: tuple[Certificate, ...]
    equalised: Equalised | None = None
    rounds: tuple[Round, ...] = ()


def design_law(
    graph: Graph,
    name: str,
    *,
    support: DistanceSupport,
    walk: str = "simple",
    balanced: bool | None = None,
    budget_hops: float = math.inf,
    objective: str = "entropy",
    observer: str = "return-time",
    window_radius: int = 5,
    tail_probability: float = 0.3,
    return_time: float | None = None,
    memory_bytes: int = 8 << 30,
) -> LawDesign:
    """Design the law called ``name`` on ``graph``.

    Args:
        graph: any connected graph.
        name: ``uniform-node``, ``equalised`` or ``optimal``.
        support: distances a destination may have.
        walk: kind of walk, one that is a chain.
        balanced: whether every node must update equally often; None for only an optimal law. An optimal law that need
            not be balanced has the prior of uniform-node.
        budget_hops: most mean hops per update; an optimal law without a budget may use what uniform-node uses.
        objective: ``entropy`` or ``hit-ratio``: what certificates compare, and what ``optimal`` improves.
        observer: ``return-time`` or ``last-hop``.
        window_radius: delta, of the window notion.
        tail_probability: delta', which chooses the return time designed for.
        return_time: kappa, instead.
        memory_bytes: most that an observation channel may take.
    """
    if name not in LAWS:
        raise InvalidParameterError("law", name, f"one of {', '.join(LAWS)}")
    if objective not in OBJECTIVES:
        raise InvalidParameterError("objective", objective, f"one of {', '.join(OBJECTIVES)}")
    validate.more_than(0, budget_hops=budget_hops)
    bench = LawBench(graph, support=support, walk=walk, memory_bytes=memory_bytes)
    kappa, chosen_by = bench.return_time(tail_probability) if return_time is None else (return_time, "given")
    likelihood = bench.window_likelihood(kappa, window_radius)
    even = name == "optimal" if balanced is None else balanced
    equal = equalised_law(bench.uniform, likelihood) if name == "equalised" else None
    law = bench.uniform if equal is None else equal.law
    law = bench.within_budget(balanced_law(law) if even else law, budget_hops)
    rounds: tuple[Round, ...] = ()
    if name == "optimal":
        budget = law.mean_hops(bench.hops) if math.isinf(budget_hops) else budget_hops
        best = bench.optimal(law, budget, objective=objective, observer=observer)
        certificates = _beside(best, law, budget=budget, even=even)
        law, channel, rounds = best.law, best.channel, best.rounds
    else:
        channel = bench.channel(law, observer)
        certificates = certify(bench, name, law, channel, objective=objective)
    floors = window_entropies(law, likelihood, distances(graph)).by_node
    return LawDesign(
        name=name,
        walk=walk,
        law=law,
        is_balanced=even,
        mean_iteration_hops=law.mean_hops(bench.hops),
        channel=channel,
        exposure=exposure(law, channel),
        window=WindowFloor(return_time=kappa, chosen_by=chosen_by, node_entropy_by_destination=floors),
        weight_ratio=weight_ratio(law, likelihood),
        certificates=certificates,
        equalised=equal,
        rounds=rounds,
    )


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


def _beside(best: Best, simple: DestinationLaw, *, budget: float, even: bool) -> tuple[Certificate, ...]:
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
