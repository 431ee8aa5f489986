"""Structured logs: one JSON object a line, on standard error.

Only what concerns the process and its links is ever logged. What happens to a message is counted, not logged, and a
line carries no time: a log that says when a node trained would say who made which update.
"""

from __future__ import annotations

import json
import sys
from typing import TextIO


class Log:
    """Writes events."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def event(self, name: str, **fields: str | float | bool) -> None:
        """Write one event."""
        line = json.dumps({"event": name, **fields})
        print(line, file=self._stream or sys.stderr, flush=True)
