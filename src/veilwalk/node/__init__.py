"""The real peer: sealing, members, durable custody, links, the service and the cluster."""

from veilwalk.node._cluster import Cluster, ClusterStatus
from veilwalk.node._cluster_up import (
    ClusterSettings,
    ClusterSetup,
    cluster_record,
    prepare_or_resume,
    run_cluster,
    set_up_cluster,
)
from veilwalk.node._config import NodeConfig, load_config
from veilwalk.node._draws import Draws, OsDraws, RecordedDraws
from veilwalk.node._encoding import decode_params, encode_params
from veilwalk.node._kem import Suite
from veilwalk.node._keyfile import read_password
from veilwalk.node._keys import (
    NodeKeys,
    delete_old_keys,
    load_node_keys,
    load_root_key,
    load_root_public_key,
    new_node_keys,
    new_root_key,
    rotate_node_keys,
)
from veilwalk.node._limits import Limits
from veilwalk.node._lost_walks import Lateness, late_after_hops, late_on_regular, lateness, starved_after_hops
from veilwalk.node._manifest import ArraySpec, Manifest, array_specs, load_manifest, sign_manifest
from veilwalk.node._member import Member
from veilwalk.node._parts import NodeParts
from veilwalk.node._prepare import ClusterPlan, prepare_cluster
from veilwalk.node._request import RunRequest, make_manifest
from veilwalk.node._roster import (
    Roster,
    check_succession,
    check_time,
    load_roster,
    read_roster_draft,
    read_signed_roster,
    sign_roster,
)
from veilwalk.node._roster_draft import (
    changed_roster,
    edges_of_graph,
    first_roster,
    parse_run_id,
    read_cards,
    read_edges,
    rotated_roster,
)
from veilwalk.node._routing import DestinationRow, NextHop
from veilwalk.node._rules import RunRules
from veilwalk.node._run import run_node
from veilwalk.node._sealing import Header, OpenedHeader, SealContext, open_body, open_header, seal
from veilwalk.node._sealing_body import bucket_for
from veilwalk.node._service import Node
from veilwalk.node._status import NodeStatus, node_status

__all__ = [
    "ArraySpec",
    "Cluster",
    "ClusterPlan",
    "ClusterSettings",
    "ClusterSetup",
    "ClusterStatus",
    "DestinationRow",
    "Draws",
    "Header",
    "Lateness",
    "Limits",
    "Manifest",
    "Member",
    "NextHop",
    "Node",
    "NodeConfig",
    "NodeKeys",
    "NodeParts",
    "NodeStatus",
    "OpenedHeader",
    "OsDraws",
    "RecordedDraws",
    "Roster",
    "RunRequest",
    "RunRules",
    "SealContext",
    "Suite",
    "array_specs",
    "bucket_for",
    "changed_roster",
    "check_succession",
    "check_time",
    "cluster_record",
    "decode_params",
    "delete_old_keys",
    "edges_of_graph",
    "encode_params",
    "first_roster",
    "late_after_hops",
    "late_on_regular",
    "lateness",
    "load_config",
    "load_manifest",
    "load_node_keys",
    "load_root_key",
    "load_root_public_key",
    "load_roster",
    "make_manifest",
    "new_node_keys",
    "new_root_key",
    "node_status",
    "open_body",
    "open_header",
    "parse_run_id",
    "prepare_cluster",
    "prepare_or_resume",
    "read_cards",
    "read_edges",
    "read_password",
    "read_roster_draft",
    "read_signed_roster",
    "rotate_node_keys",
    "rotated_roster",
    "run_cluster",
    "run_node",
    "seal",
    "set_up_cluster",
    "sign_manifest",
    "sign_roster",
    "starved_after_hops",
]
