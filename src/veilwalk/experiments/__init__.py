"""Experiments as records: the paper's figures and its claims, laws side by side, and sweeps."""

from veilwalk.experiments._claims import Claim, load_claims
from veilwalk.experiments._figures import FIGURES, reproduce
from veilwalk.experiments._frontier import privacy_price
from veilwalk.experiments._sampled import SampledGraphs
from veilwalk.experiments._sweep import Sweep, SweepKind, SweepPlan, finished_cases, predicted, sweep

__all__ = [
    "FIGURES",
    "Claim",
    "SampledGraphs",
    "Sweep",
    "SweepKind",
    "SweepPlan",
    "finished_cases",
    "load_claims",
    "predicted",
    "privacy_price",
    "reproduce",
    "sweep",
]
