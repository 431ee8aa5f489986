"""How near a law is to the best there can be, and what the window notion says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.design._bench import Best, LawBench, objective_value
from veilwalk.design._channel import Channel, exposure
from veilwalk.design._law import DestinationLaw
from veilwalk.design._optimal import Optimum

# A prior that is uniform to this is.
_EVEN = 1e-8


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
