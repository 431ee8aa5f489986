"""Destination laws and schemes: by closed form or for any graph; what they guarantee and what they cost."""

from veilwalk.core.rooms import make_callable
from veilwalk.design._bench import Best, Certificate, LawBench, Round, WindowFloor, certify
from veilwalk.design._channel import Channel, Exposure, anonymity_by_destination, derive_channel, exposure
from veilwalk.design._closed_form import FORMULAS, WindowDesign, design_regular
from veilwalk.design._design import Design, design
from veilwalk.design._files import choose_scheme, load_law, save_law, save_scheme
from veilwalk.design._hidden import (
    SHARES,
    FirstSight,
    Hidden,
    Predecessor,
    conditional_entropy,
    first_sights,
    pairs_bound,
    predecessor_guess,
    what_is_hidden,
)
from veilwalk.design._law import DestinationLaw, DistanceLaw, FarLaw, law_by_distance
from veilwalk.design._on_graph import (
    WindowEntropies,
    covered_return_times,
    design_on_graph,
    exact_window_likelihood,
    mean_by_distance,
    weight_ratio,
    window_entropies,
)
from veilwalk.design._optimal import OBJECTIVES, Optimum, Problem
from veilwalk.design._recommended import KEEP, Frontier, Point, recipients_frontier, recommended_scheme
from veilwalk.design._registry import (
    LAWS,
    LawKind,
    Made,
    Request,
    closed_form,
    default_law,
    default_support,
    make,
    make_law,
)
from veilwalk.design._sampled import LARGE_NODES, SampledLegs, sample_legs
from veilwalk.design._scaling import balanced, with_matrix
from veilwalk.design._scheme import Price, Scheme, relay_warning, require_destinations
from veilwalk.design._several import MODEL_BYTES, Sealing, Several, design_several, look_at

__all__ = [
    "FORMULAS",
    "KEEP",
    "LARGE_NODES",
    "LAWS",
    "MODEL_BYTES",
    "OBJECTIVES",
    "SHARES",
    "Best",
    "Certificate",
    "Channel",
    "Design",
    "DestinationLaw",
    "DistanceLaw",
    "Exposure",
    "FarLaw",
    "FirstSight",
    "Frontier",
    "Hidden",
    "LawBench",
    "LawKind",
    "Made",
    "Optimum",
    "Point",
    "Predecessor",
    "Price",
    "Problem",
    "Request",
    "Round",
    "SampledLegs",
    "Scheme",
    "Sealing",
    "Several",
    "WindowDesign",
    "WindowEntropies",
    "WindowFloor",
    "anonymity_by_destination",
    "balanced",
    "certify",
    "choose_scheme",
    "closed_form",
    "conditional_entropy",
    "covered_return_times",
    "default_law",
    "default_support",
    "derive_channel",
    "design",
    "design_on_graph",
    "design_regular",
    "design_several",
    "exact_window_likelihood",
    "exposure",
    "first_sights",
    "law_by_distance",
    "load_law",
    "look_at",
    "make",
    "make_law",
    "mean_by_distance",
    "pairs_bound",
    "predecessor_guess",
    "recipients_frontier",
    "recommended_scheme",
    "relay_warning",
    "require_destinations",
    "sample_legs",
    "save_law",
    "save_scheme",
    "weight_ratio",
    "what_is_hidden",
    "window_entropies",
    "with_matrix",
]

make_callable(__name__)
