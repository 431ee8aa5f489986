"""Many nodes on one machine, and what is computed before a run: manifests and how late is late."""

from veilwalk.node.cluster._care import cluster_configs, look_at_cluster, stop_cluster, watching
from veilwalk.node.cluster._files import ClusterPlan, prepare_cluster
from veilwalk.node.cluster._lost_walks import (
    late_after_hops,
    late_on_regular,
    lost_walk_rules,
    starved_after_hops,
)
from veilwalk.node.cluster._manifest_request import RunRequest, make_manifest
from veilwalk.node.cluster._processes import Cluster, ClusterStatus, run_cluster
from veilwalk.node.cluster._record import cluster_record, manifest_in, message_bytes
from veilwalk.node.cluster._settings import ClusterSettings, prepare_or_resume, rules_in, set_up_cluster, settings_in
from veilwalk.node.cluster._trail import EVENTS, TRAIL, Trail, read_trail

__all__ = [
    "EVENTS",
    "TRAIL",
    "Cluster",
    "ClusterPlan",
    "ClusterSettings",
    "ClusterStatus",
    "RunRequest",
    "Trail",
    "cluster_configs",
    "cluster_record",
    "late_after_hops",
    "late_on_regular",
    "look_at_cluster",
    "lost_walk_rules",
    "make_manifest",
    "manifest_in",
    "message_bytes",
    "prepare_cluster",
    "prepare_or_resume",
    "read_trail",
    "rules_in",
    "run_cluster",
    "set_up_cluster",
    "settings_in",
    "starved_after_hops",
    "stop_cluster",
    "watching",
]
