"""What the suffering clusters run: a model that counts updates, under the rules that ``cluster up`` writes."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from tests.campaigns.chaos_tally import Tally
from tests.helpers.manifests import settled_spec
from veilwalk.core.errors import InfeasibleDesignError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, DistanceLaw, Scheme, choose_scheme, late_after_hops
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import Partition
from veilwalk.node import Limits
from veilwalk.node.cluster import AWAY_S, ClusterPlan, find_late_hops
from veilwalk.node.members import RunFigures, RunRules

_TALLY = "tests.campaigns.chaos_tally:Tally"
#: As ``cluster up`` has it.
ALARM_HOPS = 1e7
HOP_S = 0.05


def tally_plan(
    graph: Graph,
    *,
    updates: int,
    walks: int = 1,
    distance: int = 2,
    recipients: int = 1,
    padding: int = 0,
    walk: str = "simple",
    late: float | None = None,
    hop: float = HOP_S,
    dwell: float = 0.0,
    away: float = AWAY_S,
    alarm_hops: float = ALARM_HOPS,
    limits: Limits | None = None,
) -> ClusterPlan:
    """Return a run on ``graph`` whose model counts updates.

    One recipient is ``distance`` hops away; several are any of those that are at least so far, or all where they are
    fewer. Walks are believed lost when ``cluster up`` would believe it, unless ``late`` says otherwise.
    """
    law: DestinationLaw = DistanceLaw(DistanceSupport(distance, distance), np.ones(1)).place_on(graph)
    if recipients > 1:
        law = choose_scheme(graph, f"far:{distance}").law
    scheme = Scheme(graph, law, Walk.parse(walk), recipients=min(recipients, int(law.n_choices.min())))
    late_hops, starve_hops = late, 1e12
    if late_hops is None:
        late_hops, starve_hops = _lost(scheme, max(hop, dwell), 8 * padding, away, alarm_hops)
    rows = np.eye(graph.n_nodes, dtype=np.int64)
    return ClusterPlan(
        graph=graph,
        law=law,
        partitions=[Partition(rows[index : index + 1], np.zeros(1, dtype=np.int64)) for index in range(graph.n_nodes)],
        learner=Tally(n_features=graph.n_nodes, n_classes=1, padding=padding),
        n_classes=1,
        spec=settled_spec(
            learner=f"{_TALLY}:padding={padding}",
            walk=scheme.walk.kind,
            updates=updates,
            walks=walks,
            hop_s=float(hop),
            dwell_s=float(dwell),
            seed=0,
            recipients=recipients,
        ),
        figures=RunFigures(late_hops=float(late_hops), starve_hops=float(starve_hops)),
        limits=limits or Limits(retry_s=0.2, connect_s=2.0, answer_s=5.0),
    )


def rules_in_words(spec: str, recipients: int, *, padding: int = 0) -> str:
    """Return when walks are believed lost on that network, as a page says it."""
    plan = tally_plan(
        parse_graph_spec(spec), updates=1, recipients=recipients, padding=padding, walk="non-backtracking"
    )
    rules = RunRules.from_spec(plan.spec, plan.figures)
    return f"{spec}: late {rules.late_s:.0f} s, starve {rules.starve_s:.0f} s"


@cache
def _lost(scheme: Scheme, step_s: float, model_bytes: int, away_s: float, alarm_hops: float) -> tuple[float, float]:
    try:
        return find_late_hops(scheme, alarm_hops=alarm_hops, step_s=step_s, model_bytes=model_bytes, away_s=away_s)
    except InfeasibleDesignError:
        # On a ring of four only every second node ever opens anything: the others must not call that hunger.
        late = late_after_hops(scheme.graph, alarm_hops=alarm_hops, walk=scheme.walk)
        return max(late, math.ceil(away_s / step_s)), 1e12
