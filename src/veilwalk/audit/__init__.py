"""Attack a design and report what really leaks: observers, adversaries, scores.

What is seen (``_sightings``), what is inferred (``_posteriors``, ``_estimated``, ``_rehearsed_*``, ``_path``) and the
truth (``_run.Truth``) are kept apart; only the scorer (``_scores``) sees both sides.
"""

from veilwalk.audit._attacks import LINKED
from veilwalk.audit._audit import attacked, audit
from veilwalk.audit._collusion import collusion
from veilwalk.audit._plain import audit_plain
from veilwalk.audit._posteriors import last_hop_joint
from veilwalk.audit._report import Scored, observer_report
from veilwalk.audit._run import Run, Truth, choose_colluders, play
from veilwalk.audit._schemes import SCHEMES, chosen_law, scheme_law
from veilwalk.audit._scores import SCORES, Estimate, estimate, score
from veilwalk.audit._settings import (
    EXACT_NODES,
    AuditSettings,
    all_observers,
    check_colluders,
    chosen_horizon,
    predicted_memory,
)
from veilwalk.audit._sightings import COLLUDING, OBSERVERS, WORST_CASES, Sightings

__all__ = [
    "COLLUDING",
    "EXACT_NODES",
    "LINKED",
    "OBSERVERS",
    "SCHEMES",
    "SCORES",
    "WORST_CASES",
    "AuditSettings",
    "Estimate",
    "Run",
    "Scored",
    "Sightings",
    "Truth",
    "all_observers",
    "attacked",
    "audit",
    "audit_plain",
    "check_colluders",
    "choose_colluders",
    "chosen_horizon",
    "chosen_law",
    "collusion",
    "estimate",
    "last_hop_joint",
    "observer_report",
    "play",
    "predicted_memory",
    "scheme_law",
    "score",
]
