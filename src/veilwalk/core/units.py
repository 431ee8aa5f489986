"""Numbers with their units, as people read them."""

from __future__ import annotations

import math
from pathlib import Path

#: A nat in bits.
BITS_PER_NAT = 1 / math.log(2)


def nats_and_bits(nats: float) -> str:
    """Return an entropy in both units."""
    return f"{nats:.4f} nats = {nats * BITS_PER_NAT:.4f} bits"


def readable_bytes(count: float) -> str:
    """Return a number of bytes as people read it: three digits and a unit."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def readable_data(spec: str) -> str:
    """Return what is learnt, in words: ``digits``, or ``from rows.csv`` for a file."""
    kind, _, place = spec.partition(":")
    path = Path(place.partition(":")[0])
    if path.name and (folder := path if not path.suffix else path.parent if "*" in path.name else None) is not None:
        return f"from the files in {folder.name or 'this folder'}"
    return f"from {path.name}" if path.name else kind


def readable_seconds(seconds: float) -> str:
    """Return a duration as people read it: two digits, and a unit of which there are two or more."""
    unit = "s"
    for longer, length in (("min", 60.0), ("h", 60.0), ("days", 24.0)):
        if seconds < 2 * length:
            break
        unit, seconds = longer, seconds / length
    return f"{seconds:.0f} {unit}" if seconds >= 10 else f"{seconds:.2g} {unit}"
