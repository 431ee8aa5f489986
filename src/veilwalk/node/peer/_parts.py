"""Everything a node is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from veilwalk.node.link import Limits
from veilwalk.node.members import NodeKeys, RunRules
from veilwalk.node.peer._draws import Draws, OsDraws
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._membership import Membership
from veilwalk.node.peer._routing import Law
from veilwalk.node.peer._trainer import Trainer
from veilwalk.node.spool import Disk


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeParts:
    """Everything a node is made of.

    Attributes:
        keys: Its own keys.
        membership: Roster and manifest.
        task: What it learns with.
        rules: What all members do alike.
        law: For whom it seals.
        disk: Where its custody lives.
        limits: Patience and quotas.
        draws: Where its secret choices come from.
        listen: Host and port, where they are not the roster's.
        starts: Whether it makes the run's first walk.
        log: Where events go.
    """

    keys: NodeKeys
    membership: Membership
    task: Trainer
    rules: RunRules
    law: Law
    disk: Disk
    limits: Limits = field(default_factory=Limits)
    draws: Draws = field(default_factory=OsDraws)
    listen: tuple[str, int] | None = None
    starts: bool = False
    log: Log = field(default_factory=Log)
