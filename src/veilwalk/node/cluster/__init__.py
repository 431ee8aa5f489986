"""Many nodes on one machine, and what is computed before a run: manifests and how late is late."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.node.cluster._check import check_node
    from veilwalk.node.cluster._files import (
        ClusterPlan,
        ClusterSetup,
        cluster_record,
        free_ports,
        manifest_in,
        node_ids,
        prepare_cluster,
        prepare_or_resume,
        read_cluster_spec,
        set_up_cluster,
    )
    from veilwalk.node.cluster._manifest import (
        AWAY_S,
        LEAST_DWELL_S,
        check_members,
        count_candidates,
        describe_crowd,
        describe_manifest,
        describe_manifest_changes,
        find_late_hops,
        make_manifest,
        measured_dwell,
        read_previous,
        trial_data,
    )
    from veilwalk.node.cluster._processes import (
        SETTINGS,
        Cluster,
        ClusterStatus,
        cluster_configs,
        look_at_cluster,
        run_cluster,
        stop_cluster,
        watching,
    )
    from veilwalk.node.cluster._trail import EVENTS, TRAIL, Trail
else:
    __getattr__, __all__ = open_room(__name__)
