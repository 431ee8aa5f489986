"""Attack a scheme and report what really leaks: observers, inference, scores.

What is seen (``_sightings``), what is inferred from it (``observers``, ``inference``) and the truth (``_play.Truth``)
are kept apart; only the judge (``_attack.Judge``) sees both sides.
"""

from veilwalk.audit._answers import Answer, answers
from veilwalk.audit._audit import Audit, Findings, audit, collusion
from veilwalk.audit._feasible import coalitions, make_plan, predicted_memory
from veilwalk.audit._play import Run, Truth, choose_colluders, play
from veilwalk.audit._scores import SCORES, Scored, estimate, observer_report, score
from veilwalk.audit._settings import AuditSettings, Plan, parse_coalition, parse_colluders
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference import INFERENCES, Inference, Posterior
from veilwalk.audit.inference.exact import last_hop_joint
from veilwalk.audit.observers import COALITIONS, OBSERVERS, Observer, Place
from veilwalk.core.rooms import make_callable
from veilwalk.core.stats import Estimate

__all__ = [
    "COALITIONS",
    "INFERENCES",
    "OBSERVERS",
    "SCORES",
    "Answer",
    "Audit",
    "AuditSettings",
    "Estimate",
    "Findings",
    "Inference",
    "Observer",
    "Place",
    "Plan",
    "Posterior",
    "Run",
    "Scored",
    "Sightings",
    "Truth",
    "answers",
    "audit",
    "choose_colluders",
    "coalitions",
    "collusion",
    "estimate",
    "last_hop_joint",
    "make_plan",
    "observer_report",
    "parse_coalition",
    "parse_colluders",
    "play",
    "predicted_memory",
    "score",
]

make_callable(__name__)
