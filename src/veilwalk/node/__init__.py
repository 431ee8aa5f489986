"""The real peer, in rooms: sealing, members, spool, link, peer, cluster; each imports only those before it."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
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
else:
    __getattr__, __all__ = open_room(__name__)
