"""How much memory a computation may take unless it is told."""

from __future__ import annotations

import os
import re
from pathlib import Path

from veilwalk.core.errors import InvalidParameterError

# The rest is for what is counted only roughly, and for everybody else on the machine.
_SHARE = 0.7
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def machine_bytes() -> int:
    """The memory of this machine, or of the container that this is."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return whole


#: Seven tenths of what there is.
DEFAULT_MEMORY_BYTES = int(_SHARE * machine_bytes())


def parse_memory(text: str) -> int:
    """Read an amount of memory: ``8G``, ``512M``, or bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if found is None:
        raise InvalidParameterError("memory", text, "an amount such as 8G or 512M")
    return int(float(found[1]) * _UNITS[found[2]])
