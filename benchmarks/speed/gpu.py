"""The graphics card against the processor: the same integers, and how many times as fast.

``python -m benchmarks.speed.gpu --check`` holds every digest that the processor made (``tests/golden``), and larger
cases against the processor at hand: integers must be equal. Without ``--check`` it measures besides and, with
``--write``, writes a section of ``docs/measured/speed.md``. It needs the extra ``cuda``.
``--golden`` makes the digests anew, on the processor.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from tools.pages.markdown import write_section

from benchmarks.speed._golden import digest, exact_law, golden_cases, known_digests, large_cases, write_digests
from benchmarks.speed._harness import Line, goal_line, peer
from veilwalk import walks
from veilwalk.core.walk import Walk
from veilwalk.graphs import random_regular
from veilwalk.walks._device import DEVICES, open_cuda

#: How many times two threads of the processor (H2).
GOAL = 20.0
PAGE = Path(__file__).parents[2] / "docs" / "measured" / "speed.md"


class Clock:
    """Seconds of work on the card, contenders in turn."""

    def __init__(self, rounds: int) -> None:
        self._cupy, self._rounds = peer("cupy"), rounds

    def in_turns(self, contenders: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return the seconds of every contender in every round; each is run once before."""
        for run in contenders.values():
            run()
        turns = [[self._seconds(run) for run in contenders.values()] for _ in range(self._rounds)]
        return dict(zip(contenders, np.array(turns).T, strict=True))

    def _seconds(self, run: Callable[[], Any]) -> float:
        self._cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        run()
        self._cupy.cuda.Device().synchronize()
        return time.perf_counter() - began


def protocol_lines(clock: Clock) -> list[Line]:
    """Compare the protocol, whole calls with their records fetched, with the processor on two threads."""
    graph = random_regular(300, 3, seed=1)
    law, lines = exact_law(graph), []
    for recipients, walk in itertools.product((1, 16), ("simple", "non-backtracking")):
        played: dict[str, int] = {}
        options: dict[str, Any] = {"recipients": recipients, "walk": Walk.parse(walk), "seed": 1, "burn_in": 2}

        def play(device: str, played: Any = played, options: Any = options) -> None:
            size: dict[str, Any] = {"updates": 100_000 * options["recipients"]}
            if device == "cuda":
                size = {"updates": 1 << 23, "replicas": 1 << 17}
            chunks = walks.iter_protocol(graph, law, device=device, **size, **options)
            played[device] = sum(int(chunk["leg_hops"].sum()) for chunk in chunks)

        spent = clock.in_turns({device: partial(play, device) for device in DEVICES})
        rates = {device: played[device] / seconds for device, seconds in spent.items()}
        rate = f"{np.median(rates['cuda']) / 1e9:.1f} Ghop/s"
        what = f"protocol, rrg:300:3, {walk}, K={recipients}, records fetched ({rate}) / two threads"
        lines.append(goal_line("H2", what, rates["cuda"] / rates["cpu"], ">=", GOAL))
        show(lines[-1])
    return lines


def show(line: Line) -> None:
    """Print a line."""
    print(f"{line.what}: {line.found:.3g} [{line.low:.3g}-{line.high:.3g}]", flush=True)


def check() -> dict[str, bool]:
    """Return for each case whether the card gives the integers of the processor."""
    known, found = known_digests(), {}
    played = {name: case for name, case in golden_cases().items() if name.startswith("protocol")}
    for name, case in played.items():
        found[name] = digest(case("cuda")) == known[name]
    for name, case in large_cases().items():
        found[name] = digest(case("cuda")) == digest(case("cpu"))
        print(f"{'equal' if found[name] else 'DIFFERENT'}  {name}", flush=True)
    different = [name for name, equal in found.items() if not equal]
    print(f"{len(found) - len(different)} of {len(found)} cases equal to the processor, bit for bit", flush=True)
    for name in different:
        print(f"DIFFERENT  {name}")
    return found


def page(lines: list[Line], checked: dict[str, bool], about: str) -> str:
    """Return the section of figures."""
    rows = [
        f"| {line.what} | {line.found:.3g} [{line.low:.3g}-{line.high:.3g}] | {'met' if line.met else '**missed**'} |"
        for line in lines
    ]
    return "\n".join(
        [
            f"{about} Contenders in turn in one process; medians [least-largest] of per-round ratios.",
            "",
            f"Equality: {sum(checked.values())} of {len(checked)} cases (the protocol sealed for one and for several)",
            "gave the processor's bits.",
            "",
            f"| what | ratio | goal {GOAL:g} |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _processor() -> str:
    """Return what the processor calls itself, where the system tells."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    fields = dict(line.split(":", 1) for line in told.split("\n\n", 1)[0].splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    return (
        f"{named.get('model name', platform.machine())} (family {named.get('cpu family')}, model {named.get('model')})"
    )


def main() -> int:
    """Check, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare integers with the processor's")
    parser.add_argument("--golden", action="store_true", help="make the digests anew, on the processor, and stop")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the section there, and its figures beside it as JSON")
    parser.add_argument("--write", action="store_true", help="write the section of docs/measured/speed.md")
    options = parser.parse_args()
    if options.golden:
        write_digests()
        return 0
    numba.set_num_threads(min(2, os.cpu_count() or 1))
    card: Any = open_cuda()
    checked = check()
    if options.check:
        return 0 if all(checked.values()) else 1
    lines = protocol_lines(Clock(options.rounds))
    about = (
        f"One {card.name}, CuPy {peer('cupy').__version__}; processor {_processor()}, "
        f"{os.cpu_count()} cores of which two threads were used; numba {numba.__version__}."
    )
    text = page(lines, checked, about)
    if options.write:
        write_section(PAGE, "benchmarks.speed.gpu --write", text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
        figures = {line.what: [line.found, line.low, line.high] for line in lines}
        options.out.with_suffix(".json").write_text(json.dumps({"lines": figures, "checked": checked}, indent=2))
    return 0 if all(checked.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
