"""What is seen: the observers' side of a run, with the truth left out.

A sighting holds only what the destination of an update, or the colluders, can know. Nothing in this module or in
the adversaries that use it reads a source; only the scorer sees both (``_scores``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import IntArray

#: What each observer uses. ``prior``: that it was chosen. ``window``: the paper's notion, on the return time.
#: ``return-time``: the hops since the token last passed. ``last-hop``: that, and the neighbour it came from.
#: ``first-sight``: colluders share which of them first held the ciphertext, and from whom. ``bridge``: that, and
#: with a common clock who last held the ciphertext before it, where it went, and how long before. ``predecessor``:
#: first sight, and what a colluder knows who made the update before: it chose the source. ``repeated``: last-hop
#: sightings of several updates known to have one and the same source.
OBSERVERS = ("prior", "window", "return-time", "last-hop", "repeated", "first-sight", "bridge", "predecessor")
COLLUDING = ("first-sight", "bridge", "predecessor")
#: Worst cases, asked for by name unless the walk remembers. ``path``: last-hop, and every hop the token made, as who
#: watches all links would know. ``round``: last-hop, and every hop until the token was last sent on, and so what every
#: node of a least-recent walk remembered then.
WORST_CASES = ("path", "round")


@dataclass(frozen=True, eq=False)
class Sightings:
    """Columns of what was seen at each delivery; -1 means that there was nothing to see."""

    destination: IntArray
    clock: IntArray
    return_time: IntArray
    last_hop: IntArray
    first_sight_node: IntArray
    first_sight_from: IntArray
    first_sight_clock: IntArray
    previous_sight_node: IntArray
    previous_sight_to: IntArray
    previous_sight_clock: IntArray
    told_source: IntArray

    @classmethod
    def of(cls, updates: npt.NDArray[np.void], *, told: IntArray) -> Sightings:
        """Take the observable columns of records of ``walks.UPDATE_DTYPE``.

        ``told`` holds the source where a colluder made the update before and so chose it itself, else -1.
        """
        names = [field.name for field in fields(cls) if field.name != "told_source"]
        return cls(**{name: updates[name].astype(np.int64) for name in names}, told_source=told)

    def at(self, rows: IntArray) -> Sightings:
        """Return the chosen rows."""
        return Sightings(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def __len__(self) -> int:
        return len(self.destination)
