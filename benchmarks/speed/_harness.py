"""Contenders that take turns in one process, the peers among them, and what came out beside its goal."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from veilwalk.core.arrays import FloatArray

Contender = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One comparison: what was measured, the goal, and whether it was met (None where no verdict is due)."""

    goal: str
    what: str
    found: float
    low: float
    high: float
    need: str
    met: bool | None
    rounds: int
    #: Of ours, a median; 0 where it was not timed by itself.
    seconds: float = 0.0


def goal_line(
    goal: str,
    what: str,
    values: FloatArray | Sequence[float],
    sign: Literal["<=", ">="],
    need: float,
    *,
    seconds: float = 0.0,
) -> Line:
    """Return the line of one goal from its figure in every round; the median decides."""
    found = float(np.median(values))
    return Line(
        goal=goal,
        what=what,
        found=found,
        low=float(np.min(values)),
        high=float(np.max(values)),
        need=f"{sign} {need:g}",
        met=found <= need if sign == "<=" else found >= need,
        rounds=len(values),
        seconds=seconds,
    )


def spread(values: FloatArray, form: str) -> str:
    """Return median [least-largest], each in the format ``form``."""
    return f"{np.median(values):{form}} [{values.min():{form}}-{values.max():{form}}]"


def peer(name: str) -> Any:
    """Return a peer's module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def in_turns(
    contenders: Mapping[str, Contender], rounds: int, *, calls: int = 1, most_stolen: float = 1.0
) -> dict[str, FloatArray]:
    """Return the seconds of a call of every contender in every round.

    Nothing is run beforehand: who must be compiled or warm is called before.

    Args:
        contenders: Who takes turns, by name.
        rounds: How many rounds to keep.
        calls: Made in each turn.
        most_stolen: Rounds in which the host gave a larger share of the machine's time to others are dropped; after
            three times as many tries, what there is must do.
    """
    kept: list[list[float]] = []
    spoiled: list[list[float]] = []
    while len(kept) < rounds and len(kept) + len(spoiled) < 3 * rounds:
        before = _cpu_times()
        turn = [_seconds(run, calls) for run in contenders.values()]
        (kept if _stolen(before, _cpu_times()) <= most_stolen else spoiled).append(turn)
    return dict(zip(contenders, np.array(kept or spoiled).T, strict=True))


def _seconds(run: Contender, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _cpu_times() -> list[int]:
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
    except OSError:
        return []
    return [int(field) for field in line.split()[1:]]


def _stolen(before: list[int], after: list[int]) -> float:
    """Return the share of time the host took away, where the system tells."""
    if len(before) < 8:
        return 0.0
    spent = [late - early for early, late in zip(before, after, strict=True)]
    return spent[7] / max(1, sum(spent[:8]))


def take_precedence() -> bool:
    """Let this process, and all it starts, go before ordinary ones; return whether the system allows it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True
