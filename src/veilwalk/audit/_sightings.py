"""What is seen: the observers' side of a run, with the truth left out.

A sighting holds only what the destination of an update, or the colluders, can know. Nothing in ``observers`` or
``inference`` reads a source; only the judge sees both (``_judge``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import BoolArray, IntArray


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
    told_by: IntArray
    told_from: IntArray
    told_clock: IntArray

    @classmethod
    def of(cls, updates: npt.NDArray[np.void], *, watching: BoolArray, recipients: int = 1) -> Sightings:
        """Take the observable columns of records of ``walks.UPDATE_DTYPE`` in lane order; ``watching`` collude.

        ``told_source`` is the source where a colluder made the update before, and so chose it itself. Of several
        recipients it does not know which one opened: ``told_by`` is that colluder, ``told_clock`` when it drew them,
        and ``told_from`` whence the token had come to it.
        """
        names = [field.name for field in fields(cls) if not field.name.startswith("told_")]
        told = {name: np.full(len(updates), -1) for name in ("told_source", "told_by", "told_from", "told_clock")}
        follows = updates["replica"][1:] == updates["replica"][:-1]
        knows = follows & watching[updates["source"][:-1]]
        if recipients == 1:
            told["told_source"][1:][knows] = updates["destination"][:-1][knows]
        else:
            # The colluder opened the update before its own; of the first of a lane that is not known.
            knows[1:] &= follows[:-1]
            knows[:1] = False
            drawn = np.flatnonzero(knows)
            told["told_by"][drawn + 1] = updates["source"][drawn]
            told["told_clock"][drawn + 1] = (updates["clock"] - updates["leg_hops"])[drawn]
            told["told_from"][drawn + 1] = updates["last_hop"][drawn - 1]
        return cls(**{name: updates[name].astype(np.int64) for name in names}, **told)

    @classmethod
    def empty(cls, size: int, **columns: IntArray) -> Sightings:
        """Return the columns given; of anything else there was nothing to see."""
        nothing = {field.name: np.full(size, -1) for field in fields(cls)}
        return cls(**nothing | columns)

    def at(self, rows: IntArray) -> Sightings:
        """Return the chosen rows."""
        return Sightings(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def __len__(self) -> int:
        return len(self.destination)
