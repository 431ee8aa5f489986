"""Destination laws: by closed form or for any graph; what they guarantee and what they cost."""

from veilwalk.design._closed_form import FORMULAS, Design, design_regular
from veilwalk.design._law import DestinationLaw, DistanceLaw, law_by_distance, load_law, save_law
from veilwalk.design._on_graph import (
    WindowEntropies,
    covered_return_times,
    design_on_graph,
    exact_window_likelihood,
    mean_by_distance,
    window_entropies,
)

__all__ = [
    "FORMULAS",
    "Design",
    "DestinationLaw",
    "DistanceLaw",
    "WindowEntropies",
    "covered_return_times",
    "design_on_graph",
    "design_regular",
    "exact_window_likelihood",
    "law_by_distance",
    "load_law",
    "mean_by_distance",
    "save_law",
    "window_entropies",
]
