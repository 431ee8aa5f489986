"""``metrics.csv`` and ``metrics.jsonl`` of a run folder: there from the first evaluation on, the same after a stop."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from veilwalk.core.errors import InputFileError, RecordError
from veilwalk.core.records import plain, write_atomically
from veilwalk.learning import Point
from veilwalk.training._settings import TrainSettings

#: Columns of ``metrics.csv``; ``round`` counts updates, ``peer`` -1 is the average of all models in flight, ``time`` is
#: in modelled seconds. All other scores of a learner follow, by name.
COLUMNS = ("algorithm", "dataset", "partitioner", "alpha", "peer", "round", "time", "accuracy", "loss", "hops", "bytes")
# The table is written whole each time: not more often than anybody looks.
_TABLE_S = 0.5


def rows_of(settings: TrainSettings, name: str, points: Iterable[Point]) -> list[dict[str, Any]]:
    """Return one row an evaluation, as ``metrics.csv`` has them."""
    kind, _, value = settings.partition.partition(":")
    return [
        {
            "algorithm": name,
            "dataset": settings.data,
            "partitioner": kind,
            "alpha": value,
            "peer": -1,
            "round": point.update,
            "time": point.seconds,
            "accuracy": "" if point.accuracy is None else point.accuracy,
            "loss": point.loss,
            "hops": point.hops,
            "bytes": point.sent_bytes,
        }
        | {f"score_{key}" if key in COLUMNS else key: score for key, score in point.scores.items()}
        for point in points
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as CSV: ``COLUMNS``, then whatever scores there are."""
    others = sorted({key for row in rows for key in row} - set(COLUMNS))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=(*COLUMNS, *others), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue().encode()


class LiveMetrics:
    """Writes both files while a run goes on."""

    def __init__(self, folder: Path, settings: TrainSettings) -> None:
        """Go on with what is there."""
        self._table, self._lines, self._settings = folder / "metrics.csv", folder / "metrics.jsonl", settings
        self._points: dict[tuple[str, int], Point] = {}
        self._written = 0.0
        for line in self._whole_lines():
            algorithm = line.pop("algorithm")
            self._points[algorithm, line["update"]] = Point(**line)

    def _whole_lines(self) -> list[dict[str, Any]]:
        """Return what was written before; a last line that was cut by a kill is taken away."""
        if not self._lines.exists():
            return []
        text = self._lines.read_text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_atomically(self._lines, whole.encode())
        try:
            return [dict(json.loads(line)) for line in whole.splitlines()]
        except ValueError as error:
            raise InputFileError(f"{self._lines} cannot be read ({error}): remove it to begin it anew") from error

    def is_new(self, algorithm: str, point: Point) -> bool:
        """Return whether an evaluation is not there yet."""
        return (algorithm, point.update) not in self._points

    def __call__(self, algorithm: str, point: Point) -> None:
        """Write down an evaluation."""
        self._points[algorithm, point.update] = point
        line = json.dumps(plain({"algorithm": algorithm, **asdict(point)}), allow_nan=False)
        try:
            with self._lines.open("a") as stream:
                stream.write(line + "\n")
        except OSError as error:
            raise RecordError(f"cannot write {self._lines}: {error.strerror or error}") from error
        if time.monotonic() - self._written >= _TABLE_S:
            rows = [row for (name, _), one in self._points.items() for row in rows_of(self._settings, name, [one])]
            write_atomically(self._table, table(rows))
            self._written = time.monotonic()
