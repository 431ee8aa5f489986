"""Many nodes on one machine, and what is computed before a run: manifests and how late is late."""

from veilwalk.node.cluster._care import cluster_configs, look_at_cluster, stop_cluster, watching
from veilwalk.node.cluster._files import ClusterPlan, prepare_cluster
from veilwalk.node.cluster._lost_walks import (
    late_after_hops,
    late_on_regular,
    lateness,
    lost_walk_rules,
    starved_after_hops,
)
from veilwalk.node.cluster._manifest_request import RunRequest, make_manifest
from veilwalk.node.cluster._processes import Cluster, ClusterStatus, run_cluster
from veilwalk.node.cluster._record import cluster_record
from veilwalk.node.cluster._settings import ClusterSettings, prepare_or_resume, rules_in, set_up_cluster, settings_in

__all__ = [
    "Cluster",
    "ClusterPlan",
    "ClusterSettings",
    "ClusterStatus",
    "RunRequest",
    "cluster_configs",
    "cluster_record",
    "late_after_hops",
    "late_on_regular",
    "lateness",
    "look_at_cluster",
    "lost_walk_rules",
    "make_manifest",
    "prepare_cluster",
    "prepare_or_resume",
    "rules_in",
    "run_cluster",
    "set_up_cluster",
    "settings_in",
    "starved_after_hops",
    "stop_cluster",
    "watching",
]
