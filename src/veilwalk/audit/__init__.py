"""Attacks a scheme and reports what really leaks: observers, inference, scores.

Sightings and knowledge hold what observers may see. The truth is a type of its own (``_play.Truth``), and only the
scorer (``_attack``) reads it.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import make_callable, open_room

if TYPE_CHECKING:
    from veilwalk.audit._attack import Answer, iter_answers
    from veilwalk.audit._audit import Audit, audit, audit_collusion, warn_few_members
    from veilwalk.audit._coalitions import OverlayAttack, measure_overlay
    from veilwalk.audit._knowledge import Knowledge, Posterior
    from veilwalk.audit._members import Coalition
    from veilwalk.audit._observers import Observer
    from veilwalk.audit._plan import OBSERVERS, make_plan, plan_collusion
    from veilwalk.audit._play import choose_colluders
    from veilwalk.audit._score import SCORES, estimate_over_lanes, score_posteriors
    from veilwalk.audit._settings import AuditSettings, parse_colluders
    from veilwalk.audit._timings import last_hop_joint
else:
    __getattr__, __all__ = open_room(__name__)

make_callable(__name__)
