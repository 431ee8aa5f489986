"""What is seen: the observers' side of a run, with the truth left out.

A sighting holds only what the destination of an update, or the colluders, can know. Nothing in ``observers`` or
``inference`` reads a source; only the judge sees both (``_attack.Judge``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Sightings:
    """Columns of what was seen at each delivery; -1 means that there was nothing to see."""

    destination: IntArray
    clock: IntArray
    return_time: IntArray
    last_hop: IntArray
    first_sight_node: IntArray
    first_sight_from: IntArray

    @classmethod
    def of(cls, updates: npt.NDArray[np.void]) -> Sightings:
        """Take the observable columns of records of ``walks.UPDATE_DTYPE``."""
        return cls(**{field.name: updates[field.name].astype(np.int64) for field in fields(cls)})

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
