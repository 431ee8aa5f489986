"""Experiments as records: the paper's figures and its claims, laws side by side, and sweeps."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.experiments._figures import FIGURES, load_claims, reproduce
    from veilwalk.experiments._frontier import privacy_price
    from veilwalk.experiments._sweep import Sweep, SweepPlan, sweep
else:
    __getattr__, __all__ = open_room(__name__)
