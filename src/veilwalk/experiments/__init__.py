"""Experiments as records: the paper's figures and its claims."""

from veilwalk.experiments._claims import Claim, load_claims
from veilwalk.experiments._figures import FIGURES, reproduce
from veilwalk.experiments._sampled import SampledGraphs

__all__ = ["FIGURES", "Claim", "SampledGraphs", "load_claims", "reproduce"]
