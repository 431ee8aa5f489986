"""One node at work: custody, routing, training at destinations, the service around them."""

from veilwalk.node.peer._assemble import file_digest, learner_text
from veilwalk.node.peer._config import NodeConfig, load_config
from veilwalk.node.peer._draws import OsDraws, RecordedDraws
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._process import run_node
from veilwalk.node.peer._routing import DestinationRow, NextHop
from veilwalk.node.peer._status import NodeStatus, node_status

__all__ = [
    "DestinationRow",
    "NextHop",
    "Node",
    "NodeConfig",
    "NodeStatus",
    "OsDraws",
    "RecordedDraws",
    "file_digest",
    "learner_text",
    "load_config",
    "node_status",
    "run_node",
]
