"""Training: a scenario becomes a run, and the run says what was gained, what it cost and what leaks.

Settings are imported at once, the rest when it is first asked for: the command line shows their defaults, and starts
without compiled walks.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import late_names
from veilwalk.training._settings import PRIVATE, TrainSettings

if TYPE_CHECKING:
    from veilwalk.training._content import Evidence, attacked_rows, content_attack, gather_evidence
    from veilwalk.training._folder import RunFolder
    from veilwalk.training._membership import membership
    from veilwalk.training._privacy import privacy
    from veilwalk.training._result import TRAIN_FORMAT, TrainingRun
    from veilwalk.training._route import Route, route_anonymity
    from veilwalk.training._run import run_training, train
    from veilwalk.training._scenario import Scenario

_LATE = {
    "_content": ("Evidence", "attacked_rows", "content_attack", "gather_evidence"),
    "_folder": ("RunFolder",),
    "_membership": ("membership",),
    "_privacy": ("privacy",),
    "_result": ("TRAIN_FORMAT", "TrainingRun"),
    "_route": ("Route", "route_anonymity"),
    "_run": ("run_training", "train"),
    "_scenario": ("Scenario",),
}

__all__ = [
    "PRIVATE",
    "TRAIN_FORMAT",
    "Evidence",
    "Route",
    "RunFolder",
    "Scenario",
    "TrainSettings",
    "TrainingRun",
    "attacked_rows",
    "content_attack",
    "gather_evidence",
    "membership",
    "privacy",
    "route_anonymity",
    "run_training",
    "train",
]

__getattr__ = late_names(__name__, _LATE)
