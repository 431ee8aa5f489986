"""The folder of a sweep as documents: its finished cases, as they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veilwalk.engine import JobStore
from veilwalk.experiments import Sweep, SweepPlan, finished_cases
from veilwalk.watch._documents import Document

_SHOWN = ("accuracy", "loss", "node_entropy_nats", "hit_ratio", "hops_per_update")


class SweepSource:
    """A sweep that is run, or was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan = SweepPlan.kept(folder)
        self._store = JobStore(folder / "jobs")
        self._done = -1
        self.finished = False
        self.ready = True

    def study(self) -> Iterator[Document]:
        """Yield nothing: cases are studied when they are run."""
        return iter(())

    def look(self) -> Iterator[Document]:
        """Yield the table, where there are more cases than before."""
        ended = (self._folder / "record.json").exists()
        found, done = finished_cases(self._plan, self._store)
        cases = len(self._plan.jobs())
        if done > self._done:
            self._done = done
            yield {
                "kind": "about",
                "what": "sweep",
                "title": f"{done} of {cases} cases of {self._plan.kind}",
                "folder": self._folder.name,
                "facts": [["swept", ", ".join(self._plan.swept)], *self._plan.settings.items()],
            }
            yield _table(found)
        if (ended or done == cases) and not self.finished:
            self.finished = True
            yield {"kind": "state", "stages": {}, "finished": True}


def _table(found: Sweep) -> Document:
    """Means over seeds, as the terminal prints them."""
    rows = found.summary()
    measures = [name for name in _SHOWN if any(name in row for row in rows)]
    labels = list(dict.fromkeys(key for row in rows for key in row))
    labels = labels[: labels.index("runs") + 1] if "runs" in labels else []
    meaning = found.record().result["meaning"]
    cells = [[_cell(row.get(name)) for name in labels] + [_mean(row, name) for name in measures] for row in rows]
    columns = [name.replace("_", " ") for name in (*labels, *measures)]
    return {"kind": "table", "columns": columns, "rows": cells, "meaning": meaning}


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _mean(row: Document, name: str) -> str:
    if name not in row:
        return "–"
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return _cell(row[name]) if low is None else f"{row[name]:.4g} ({low:.4g} to {high:.4g})"
