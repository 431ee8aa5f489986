"""Every observer, one line each."""

from __future__ import annotations

from veilwalk.audit.observers._base import Observer
from veilwalk.audit.observers.coalition import Coalition
from veilwalk.audit.observers.first_sight import Bridge, FirstSight, Predecessor
from veilwalk.audit.observers.linked import LinkedCoalition, LinkedNeighbour, Repeated
from veilwalk.audit.observers.memory import Memory
from veilwalk.audit.observers.neighbour import Neighbour
from veilwalk.audit.observers.prior import Prior
from veilwalk.audit.observers.timed import LastHop, ReturnTime
from veilwalk.audit.observers.window import Window
from veilwalk.audit.observers.worst_case import Path

#: Every observer by name, in the order in which they are reported.
OBSERVERS: dict[str, type[Observer]] = {
    kind.name: kind
    for kind in (
        Prior,
        Window,
        ReturnTime,
        LastHop,
        Memory,
        Repeated,
        Neighbour,
        LinkedNeighbour,
        FirstSight,
        Bridge,
        Predecessor,
        Coalition,
        LinkedCoalition,
        Path,
    )
}
#: Those of them that are coalitions and answer for single updates.
COALITIONS = tuple(name for name, kind in OBSERVERS.items() if kind.colluding and not kind.links)
