"""Limits: the memory that a computation may take, and the size up to which each is affordable."""

from __future__ import annotations

import os
import re
from pathlib import Path

from veilwalk.core.errors import InvalidParameterError

# The rest is for what is counted only roughly, and for everybody else on the machine.
_SHARE = 0.7
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
#: From this many nodes on, tables of all pairs are out of the question.
LARGE_NODES = 10_000
#: Up to so many nodes all sets of recipients are listed where a source has few of them.
SMALL_NODES, LISTED_SETS = 200, 10_000
#: Up to so many nodes little can be hidden: what two that collude learn is said.
FEW_NODES = 20
#: Largest graph with exact laws at every destination: they cost horizon * nodes^3 * degree.
EXACT_NODES = 500
#: Largest graph with exact laws at a sample of destinations.
SAMPLED_EXACT_NODES = 2_000
#: Up to so many arcs the long run of a walk on arcs is solved exactly; that takes ten seconds.
EXACT_ARCS = 3_000
#: Entries of a table of arcs by sources; several such tables are held at once.
TABLE_ENTRIES = 4_000_000


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
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise InvalidParameterError("memory", text, "an amount such as 8G or 512M")
    return int(float(match[1]) * _UNITS[match[2]])
