"""Every observer, one line each."""

from __future__ import annotations

from veilwalk.audit.observers._base import Observer
from veilwalk.audit.observers.linked import LinkedCoalition, LinkedNeighbour, Repeated
from veilwalk.audit.observers.members import Coalition, Memory, Neighbour
from veilwalk.audit.observers.single import FirstSight, LastHop, Path, Prior, ReturnTime, Window

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
        Coalition,
        LinkedCoalition,
        Path,
    )
}
#: Those of them that are coalitions and answer for single updates.
COALITIONS = tuple(name for name, kind in OBSERVERS.items() if kind.colluding and not kind.links)
