"""Many nodes on one machine, and what is computed before a run: manifests and how late is late."""

from veilwalk.node.cluster._files import ClusterPlan, prepare_cluster
from veilwalk.node.cluster._lost_walks import late_after_hops, late_on_regular, lateness, starved_after_hops
from veilwalk.node.cluster._manifest_request import RunRequest, make_manifest
from veilwalk.node.cluster._processes import Cluster, ClusterStatus, run_cluster
from veilwalk.node.cluster._record import cluster_record
from veilwalk.node.cluster._settings import ClusterSettings, prepare_or_resume, set_up_cluster

__all__ = [
    "Cluster",
    "ClusterPlan",
    "ClusterSettings",
    "ClusterStatus",
    "RunRequest",
    "cluster_record",
    "late_after_hops",
    "late_on_regular",
    "lateness",
    "make_manifest",
    "prepare_cluster",
    "prepare_or_resume",
    "run_cluster",
    "set_up_cluster",
    "starved_after_hops",
]
