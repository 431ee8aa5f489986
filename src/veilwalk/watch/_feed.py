"""Documents as they come: looked for again and again by one thread, studied by another, told to any number of pages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable

from veilwalk.core.errors import VeilwalkError
from veilwalk.core.records import plain
from veilwalk.watch._documents import Document, Source

_LOOK_S = 0.5


def as_text(document: Document) -> str:
    """Return a document as one line of JSON."""
    return json.dumps(plain(document), separators=(",", ":"), allow_nan=False)


class Feed:
    """All documents of a source so far."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines: list[str] = []
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def lines(self, first: int) -> list[str]:
        """Return the documents from the one with this number on."""
        return self._lines[first:]

    def gather(self) -> list[str]:
        """Return all that there is now, studied too."""
        self._take(self._source.look())
        self._take(self._source.study())
        return self.lines(0)

    def start(self) -> None:
        """Look and study in the background from now on; what is there now is there when this returns."""
        self._looked()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._follow, self._study)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more, and tell pages no more."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether that is so."""
        return self._stop.is_set()

    def _take(self, documents: Iterable[Document]) -> None:
        for document in documents:
            if self._stop.is_set():
                return
            # Appending is atomic, and nothing is ever taken away.
            self._lines.append(as_text(document))

    def _follow(self) -> None:
        while not self._source.finished and not self._stop.wait(_LOOK_S):
            self._looked()

    def _looked(self) -> None:
        try:
            self._take(self._source.look())
        except VeilwalkError as error:
            # A file that is damaged, or was removed: said once, and looked at again.
            self._say(str(error))

    def _study(self) -> None:
        while not self._source.ready and not self._stop.wait(_LOOK_S):
            pass
        try:
            self._take(self._source.study())
        except VeilwalkError as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        line = as_text({"kind": "event", "at": 0, "what": "note", "text": text})
        if line not in self._lines[-20:]:
            self._lines.append(line)
