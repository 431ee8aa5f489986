"""Experiments as records: the paper's figures and its claims."""

from veilwalk.experiments._attribution import Watch
from veilwalk.experiments._claims import Claim, load_claims
from veilwalk.experiments._figures import FIGURES, reproduce
from veilwalk.experiments._frontier import privacy_price
from veilwalk.experiments._sampled import SampledGraphs
from veilwalk.experiments._train import TRAIN_FORMAT, run_training
from veilwalk.experiments._train_folder import RunFolder
from veilwalk.experiments._train_settings import TrainSettings
from veilwalk.experiments._walks import compare_walks

__all__ = [
    "FIGURES",
    "TRAIN_FORMAT",
    "Claim",
    "RunFolder",
    "SampledGraphs",
    "TrainSettings",
    "Watch",
    "compare_walks",
    "load_claims",
    "privacy_price",
    "reproduce",
    "run_training",
]
