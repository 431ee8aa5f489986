"""Destination laws: by closed form or for any graph; what they guarantee and what they cost."""

from veilwalk.design._bench import Best, LawBench, Round
from veilwalk.design._certified import LAWS, Certificate, LawDesign, WindowFloor, certify, design_law
from veilwalk.design._channel import Channel, Exposure, anonymity_by_destination, derive_channel, exposure
from veilwalk.design._closed_form import FORMULAS, Design, design_regular
from veilwalk.design._equalised import Equalised, equalised_law, weight_ratio
from veilwalk.design._law import DestinationLaw, DistanceLaw, law_by_distance, load_law, save_law
from veilwalk.design._on_graph import (
    WindowEntropies,
    covered_return_times,
    design_on_graph,
    exact_window_likelihood,
    mean_by_distance,
    window_entropies,
)
from veilwalk.design._optimal import OBJECTIVES, Optimum, Problem
from veilwalk.design._sampled import LARGE_NODES, SAMPLED_LAWS, SampledDesign, SampledMean, sample_design
from veilwalk.design._sampled_classes import ClassLikelihood
from veilwalk.design._scaling import balanced, with_matrix
from veilwalk.design._walk import WALKS, mean_hops_table, walk_chain

__all__ = [
    "FORMULAS",
    "LARGE_NODES",
    "LAWS",
    "OBJECTIVES",
    "SAMPLED_LAWS",
    "WALKS",
    "Best",
    "Certificate",
    "Channel",
    "ClassLikelihood",
    "Design",
    "DestinationLaw",
    "DistanceLaw",
    "Equalised",
    "Exposure",
    "LawBench",
    "LawDesign",
    "Optimum",
    "Problem",
    "Round",
    "SampledDesign",
    "SampledMean",
    "WindowEntropies",
    "WindowFloor",
    "anonymity_by_destination",
    "balanced",
    "certify",
    "covered_return_times",
    "derive_channel",
    "design_law",
    "design_on_graph",
    "design_regular",
    "equalised_law",
    "exact_window_likelihood",
    "exposure",
    "law_by_distance",
    "load_law",
    "mean_by_distance",
    "mean_hops_table",
    "sample_design",
    "save_law",
    "walk_chain",
    "weight_ratio",
    "window_entropies",
    "with_matrix",
]
