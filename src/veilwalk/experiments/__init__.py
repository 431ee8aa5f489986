"""Experiments as records: the paper's figures and its claims, walks and laws side by side."""

from veilwalk.experiments._claims import Claim, load_claims
from veilwalk.experiments._comparators import RouteSettings
from veilwalk.experiments._figures import FIGURES, reproduce
from veilwalk.experiments._frontier import privacy_price
from veilwalk.experiments._routes import compare_routes
from veilwalk.experiments._sampled import SampledGraphs
from veilwalk.experiments._sweep import Sweep, SweepPlan, predicted, sweep
from veilwalk.experiments._walks import compare_walks, price_walks

__all__ = [
    "FIGURES",
    "Claim",
    "RouteSettings",
    "SampledGraphs",
    "Sweep",
    "SweepPlan",
    "compare_routes",
    "compare_walks",
    "load_claims",
    "predicted",
    "price_walks",
    "privacy_price",
    "reproduce",
    "sweep",
]
