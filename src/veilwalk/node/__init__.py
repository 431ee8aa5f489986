"""The real peer, in rooms: sealing, members, spool, link, peer, cluster; each imports only those before it."""

from veilwalk.node.cluster import Cluster, ClusterPlan, make_manifest, prepare_cluster
from veilwalk.node.link import Limits
from veilwalk.node.members import RunRules
from veilwalk.node.peer import (
    Node,
    NodeConfig,
    NodeStatus,
    load_config,
    node_model,
    node_status,
    run_node,
    unfinish_node,
)
from veilwalk.node.sealing import Suite

__all__ = [
    "Cluster",
    "ClusterPlan",
    "Limits",
    "Node",
    "NodeConfig",
    "NodeStatus",
    "RunRules",
    "Suite",
    "load_config",
    "make_manifest",
    "node_model",
    "node_status",
    "prepare_cluster",
    "run_node",
    "unfinish_node",
]
