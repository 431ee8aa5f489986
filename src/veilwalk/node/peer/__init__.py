"""One node at work: custody, routing, training at destinations, the service around them."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.node.peer._assemble import (
        check_own_entry,
        is_owned,
        key_ring,
        learner_of,
        own_data,
        public_test,
    )
    from veilwalk.node.peer._config import NodeConfig, host_and_port, load_config
    from veilwalk.node.peer._ends import signatures_needed
    from veilwalk.node.peer._membership import Membership, MembershipFiles
    from veilwalk.node.peer._node import Node
    from veilwalk.node.peer._observe import METRICS, describe_tallies
    from veilwalk.node.peer._process import run_node
    from veilwalk.node.peer._routing import DestinationRow, Law, NextHop, OsDraws, file_digest, law_of
    from veilwalk.node.peer._status import NodeStatus, drain_node, is_running, node_model, node_status, unfinish_node
    from veilwalk.node.peer._trainer import SecretNormal, protection_of
else:
    __getattr__, __all__ = open_room(__name__)
