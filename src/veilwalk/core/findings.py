"""What a check found: how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: ``ok``, ``note`` or ``fails``; how it is; and what to do, if anything."""

    state: str
    what: str
    cure: str = ""
    name: str = ""
