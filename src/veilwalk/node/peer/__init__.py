"""One node at work: custody, routing, training at destinations, the service around them."""

from veilwalk.node.peer._assemble import learner_of, own_data
from veilwalk.node.peer._check import Finding, check_node
from veilwalk.node.peer._config import NodeConfig, load_config, load_configs
from veilwalk.node.peer._drain import drain_node, is_running
from veilwalk.node.peer._ends import signatures_needed
from veilwalk.node.peer._law_files import file_digest
from veilwalk.node.peer._metrics import PUBLIC_TALLIES
from veilwalk.node.peer._model import node_model
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._process import run_node
from veilwalk.node.peer._routing import DestinationRow, NextHop, OsDraws
from veilwalk.node.peer._status import NodeStatus, node_status, unfinish_node
from veilwalk.node.peer._trainer import SecretNormal, protection_of

__all__ = [
    "PUBLIC_TALLIES",
    "DestinationRow",
    "Finding",
    "NextHop",
    "Node",
    "NodeConfig",
    "NodeStatus",
    "OsDraws",
    "SecretNormal",
    "check_node",
    "drain_node",
    "file_digest",
    "is_running",
    "learner_of",
    "load_config",
    "load_configs",
    "node_model",
    "node_status",
    "own_data",
    "protection_of",
    "run_node",
    "signatures_needed",
    "unfinish_node",
]
