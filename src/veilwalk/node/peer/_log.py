"""Structured logs: one event a line, on standard error, as JSON or as text.

Only what concerns the process and its links is ever logged. What happens to a message is counted, not logged, and a
line carries no time: a log that says when a node trained would say who made which update.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from typing import TextIO

from veilwalk.core.errors import InvalidParameterError

#: From what says least to what matters most.
LEVELS = ("info", "warning", "error")
FORMATS = ("json", "text")
# Events that are not as they should be; all others are information.
_LEVEL_OF = {
    "asyncio": "warning",
    "law_lacks_members": "warning",
    "link_down": "warning",
    "link_fault": "error",
    "roster_refused": "warning",
    "run_down": "error",
    "set_aside": "error",
    "storage_damaged": "error",
    "storage_trouble": "error",
    "turned_away": "warning",
    "two_nodes": "error",
}


class Log:
    """Writes events of a level or above; those below are only counted.

    Attributes:
        counts: How often each event was, written or not.
    """

    def __init__(self, stream: TextIO | None = None, *, level: str = "info", form: str = "json", run: str = "") -> None:
        check_log(level, form)
        self._settings = {"level": level, "form": form}
        self._about = {"run": run} if run else {}
        self._stream = stream
        self._least = LEVELS.index(level)
        self._form = form
        self.counts: Counter[str] = Counter()

    def of_run(self, run: str) -> Log:
        """Return the log of one of several runs: it is named in every line, and counted for itself."""
        return Log(self._stream, **self._settings, run=run)

    def event(self, name: str, **fields: str | float | bool) -> None:
        """Write one event."""
        self.counts[name] += 1
        level = _LEVEL_OF.get(name, "info")
        if LEVELS.index(level) < self._least:
            return
        if self._form == "json":
            line = json.dumps({"event": name, "level": level, **self._about, **fields})
        else:
            # Values may come from others: each on its own line would let them write events.
            line = " ".join(
                [
                    f"{level}: {name}",
                    *(f"{key}={json.dumps(value)}" for key, value in {**self._about, **fields}.items()),
                ]
            )
        # A disk that is full, or a pipe that nobody reads any more, takes no line: no reason to end a node.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=self._stream or sys.stderr, flush=True)


def check_log(level: str, form: str) -> None:
    """Refuse a level or a format that there is not."""
    if level not in LEVELS:
        raise InvalidParameterError("log_level", level, f"one of {', '.join(LEVELS)}")
    if form not in FORMATS:
        raise InvalidParameterError("log", form, f"one of {', '.join(FORMATS)}")
