"""Training: a scenario becomes a run, and the run says what was gained, what it cost and what leaks.

Settings are imported at once, the rest when it is first asked for: the command line shows their defaults, and starts
without compiled walks.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import lazy_attributes
from veilwalk.training._settings import PRIVATE, SCHEMES, TrainSettings

if TYPE_CHECKING:
    from veilwalk.training._algorithms import Made, task_of, train_by
    from veilwalk.training._content import Evidence, attacked_rows, content_attack, gather_evidence
    from veilwalk.training._folder import RunFolder
    from veilwalk.training._membership import membership, threshold_auc
    from veilwalk.training._plan import Plan, plan_run
    from veilwalk.training._privacy import privacy
    from veilwalk.training._result import TRAIN_FORMAT, TrainingRun, data_facts
    from veilwalk.training._route import Route, route_anonymity
    from veilwalk.training._run import run_training, train
    from veilwalk.training._scenario import Scenario, scheme_of
    from veilwalk.training._tracking import TRACKERS, Track, Tracker, open_tracker, trackers

_LATE = {
    "_algorithms": ("Made", "task_of", "train_by"),
    "_content": ("Evidence", "attacked_rows", "content_attack", "gather_evidence"),
    "_folder": ("RunFolder",),
    "_plan": ("Plan", "plan_run"),
    "_membership": ("membership", "threshold_auc"),
    "_privacy": ("privacy",),
    "_result": ("TRAIN_FORMAT", "TrainingRun", "data_facts"),
    "_route": ("Route", "route_anonymity"),
    "_run": ("run_training", "train"),
    "_scenario": ("Scenario", "scheme_of"),
    "_tracking": ("TRACKERS", "Track", "Tracker", "open_tracker", "trackers"),
}

__all__ = [
    "PRIVATE",
    "SCHEMES",
    "TRACKERS",
    "TRAIN_FORMAT",
    "Evidence",
    "Made",
    "Plan",
    "Route",
    "RunFolder",
    "Scenario",
    "Track",
    "Tracker",
    "TrainSettings",
    "TrainingRun",
    "attacked_rows",
    "content_attack",
    "data_facts",
    "gather_evidence",
    "membership",
    "open_tracker",
    "plan_run",
    "privacy",
    "route_anonymity",
    "run_training",
    "scheme_of",
    "task_of",
    "threshold_auc",
    "trackers",
    "train",
    "train_by",
]

__getattr__ = lazy_attributes(__name__, _LATE)
