"""Runs a sweep of kind ``routes``: other systems' routing before our observers.

    python -m tools.rivals.sweep examples/comparisons/dandelion.toml --out dandelion

The file is that of ``veilwalk sweep``: ``[settings]``, ``[grid]`` and ``[[cases]]`` have the fields of
:class:`tools.rivals.comparators.RouteSettings`. Finished cases are kept in ``--out``: run it again to go on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tools.rivals.comparators import RouteSettings, compared
from veilwalk.core.config import decode
from veilwalk.core.errors import VeilwalkError
from veilwalk.core.records import require_writable
from veilwalk.engine import JobStore
from veilwalk.engine._engines import ENGINES
from veilwalk.experiments import SweepPlan, sweep
from veilwalk.experiments._sweep import SweepKind
from veilwalk.report import sweep_files

_MEANING = (
    "Hit ratio and node entropy (nats) of a mixnet are exact, of veilwalk estimated; what is drawn, "
    "and recall and precision of first-spy, are means over messages; floors are p and p^2."
)


def compare_case(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Put one route before one observer, and return what it makes of it."""
    return compared(decode(RouteSettings, settings))


class RoutePlan(SweepPlan):
    """A plan whose cases are routes."""

    kinds: ClassVar[Mapping[str, SweepKind]] = {
        "routes": SweepKind(run=compare_case, check=partial(decode, RouteSettings), meaning=_MEANING)
    }


def main() -> int:
    """Run the cases of a file, and write tables, figure and page; the exit code is 1 where a case fails."""
    parser = argparse.ArgumentParser(description="Compare routes over a grid or list of settings.")
    parser.add_argument("file", type=Path, help="kind = 'routes', [settings], [grid] and [[cases]]")
    parser.add_argument("--out", type=Path, default=Path("sweep"), help="folder of the sweep")
    parser.add_argument("--engine", default="process", help=f"where cases are run: {ENGINES}")
    asked = parser.parse_args()
    require_writable(asked.out)
    results = sweep(RoutePlan.read(asked.file), executor=asked.engine, store=JobStore(asked.out / "jobs"))
    for path in (*results.write(asked.out), *sweep_files(results.record(), asked.out)):
        print(f"wrote {path}")
    for case in results.failed:
        print(f"case {case['job']} failed: {case['error']}", file=sys.stderr)
    return int(bool(results.failed))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VeilwalkError as error:
        sys.exit(str(error))
