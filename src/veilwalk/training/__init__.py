"""Trains: a specification becomes a run, and the run reports what was gained, what it cost and what leaks.

Names are imported at their first use: the command line shows the options of a run, and starts without compiled walks.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.training._content import (
        Candidates,
        Evidence,
        EvidenceCollector,
        attacked_rows,
        candidate_losses,
        content_attack,
        gather_evidence,
        row_products,
    )
    from veilwalk.training._folder import RunFolder, Track, open_trackers, point_values
    from veilwalk.training._route import Route, route_anonymity
    from veilwalk.training._run import Plan, TrainingRun, data_facts, plan_run, run_training, train
    from veilwalk.training._scenario import Scenario, build_scheme
    from veilwalk.training._spec import (
        AUDIT,
        CLUSTER,
        MANIFEST,
        PRIVATE,
        SCHEMES,
        TRAIN,
        USUAL_LEARNER,
        RunSpec,
        SchemeSpec,
        View,
        make_spec,
    )
else:
    __getattr__, __all__ = open_room(__name__)
