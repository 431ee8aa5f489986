"""One node at work: custody, routing, training at destinations, the service around them."""

from veilwalk.node.peer._assemble import (
    check_own_entry,
    is_owned,
    key_ring,
    learner_of,
    membership_files,
    own_data,
    public_test,
)
from veilwalk.node.peer._config import NodeConfig, host_and_port, load_config
from veilwalk.node.peer._drain import drain_node, is_running
from veilwalk.node.peer._ends import signatures_needed
from veilwalk.node.peer._laws import DestinationRow, Law, file_digest, law_of
from veilwalk.node.peer._membership import Membership
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._observe import METRICS, describe_tallies
from veilwalk.node.peer._process import run_node
from veilwalk.node.peer._routing import NextHop, OsDraws
from veilwalk.node.peer._status import NodeStatus, node_model, node_status, unfinish_node
from veilwalk.node.peer._trainer import SecretNormal, protection_of

__all__ = [
    "METRICS",
    "DestinationRow",
    "Law",
    "Membership",
    "NextHop",
    "Node",
    "NodeConfig",
    "NodeStatus",
    "OsDraws",
    "SecretNormal",
    "check_own_entry",
    "describe_tallies",
    "drain_node",
    "file_digest",
    "host_and_port",
    "is_owned",
    "is_running",
    "key_ring",
    "law_of",
    "learner_of",
    "load_config",
    "membership_files",
    "node_model",
    "node_status",
    "own_data",
    "protection_of",
    "public_test",
    "run_node",
    "signatures_needed",
    "unfinish_node",
]
