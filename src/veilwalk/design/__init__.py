"""Designs destination laws and schemes, with their price and their exposure; recommends a scheme for a graph."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import make_callable, open_room

if TYPE_CHECKING:
    from veilwalk.design._channel import Channel
    from veilwalk.design._design import Design, Sealing, design, evaluate_scheme
    from veilwalk.design._files import choose_scheme, is_law_file, load_law, require_law_file, save_law, save_scheme
    from veilwalk.design._lateness import late_after_hops, starved_after_hops, visits_per_link
    from veilwalk.design._law import DestinationLaw, DistanceLaw
    from veilwalk.design._optimal import LawDesigner
    from veilwalk.design._overlay import CoalitionLimits, approximate_read_share, exposed_share
    from veilwalk.design._paper import (
        WindowDesign,
        covered_return_times,
        design_regular,
        exact_window_likelihood,
        mean_by_distance,
    )
    from veilwalk.design._registry import LAWS, LawKind, LawRequest, LawResult, closed_form, default_support
    from veilwalk.design._scheme import Scheme
    from veilwalk.design._search import recommend
else:
    __getattr__, __all__ = open_room(__name__)

make_callable(__name__)
