"""Destination laws and schemes: by closed form or for any graph; what they guarantee and what they cost."""

from veilwalk.core.rooms import make_callable
from veilwalk.design._bench import Best, LawBench, Round
from veilwalk.design._certified import Certificate, WindowFloor, certify
from veilwalk.design._channel import Channel, Exposure, anonymity_by_destination, derive_channel, exposure
from veilwalk.design._closed_form import FORMULAS, WindowDesign, design_regular
from veilwalk.design._defaults import default_law, default_support
from veilwalk.design._design import Design, design
from veilwalk.design._equalised import Equalised, equalised_law, weight_ratio
from veilwalk.design._files import choose_scheme, load_law, save_law, save_scheme
from veilwalk.design._law import DestinationLaw, DistanceLaw, law_by_distance
from veilwalk.design._on_graph import (
    WindowEntropies,
    covered_return_times,
    design_on_graph,
    exact_window_likelihood,
    mean_by_distance,
    window_entropies,
)
from veilwalk.design._optimal import OBJECTIVES, Optimum, Problem
from veilwalk.design._registry import LAWS, LawKind, Made, Request, closed_form, make, make_law
from veilwalk.design._sampled import LARGE_NODES, SampledLegs, SampledMean, sample_legs, sampled_mean
from veilwalk.design._sampled_classes import ClassLikelihood
from veilwalk.design._scaling import balanced, with_matrix
from veilwalk.design._scheme import Price, Scheme, relay_warning, require_destinations

__all__ = [
    "FORMULAS",
    "LARGE_NODES",
    "LAWS",
    "OBJECTIVES",
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
    "LawKind",
    "Made",
    "Optimum",
    "Price",
    "Problem",
    "Request",
    "Round",
    "SampledLegs",
    "SampledMean",
    "Scheme",
    "WindowDesign",
    "WindowEntropies",
    "WindowFloor",
    "anonymity_by_destination",
    "balanced",
    "certify",
    "choose_scheme",
    "closed_form",
    "covered_return_times",
    "default_law",
    "default_support",
    "derive_channel",
    "design",
    "design_on_graph",
    "design_regular",
    "equalised_law",
    "exact_window_likelihood",
    "exposure",
    "law_by_distance",
    "load_law",
    "make",
    "make_law",
    "mean_by_distance",
    "relay_warning",
    "require_destinations",
    "sample_legs",
    "sampled_mean",
    "save_law",
    "save_scheme",
    "weight_ratio",
    "window_entropies",
    "with_matrix",
]

make_callable(__name__)
