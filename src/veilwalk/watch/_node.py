"""A real node's own page: what its operator may see at any time, and nothing that says when or whether it trained.

A page is left open, looked at over a shoulder and kept in screenshots, with the time. So it shows what the metrics of a
node show, which every node has alike; what the node has done itself only where its operator asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node import load_config, node_status
from veilwalk.node.peer import PUBLIC_TALLIES, is_running
from veilwalk.watch._documents import Document

_SILENT = "Whether and when this node trained is not shown; --own shows it, to its operator alone."
_OWN = "This says what the node itself has trained: for its operator's eyes only."


class NodeSource:
    """One node, by its folder; it need not be running."""

    def __init__(self, config: Path, *, run: str | None = None, own: bool = False) -> None:
        found = load_config(config, run)
        self._state, self._own = found.state, own
        self._name = found.name or config.resolve().parent.name
        self._shown: list[tuple[str, str]] | None = None
        self.finished = False
        self.ready = True

    def study(self) -> Iterator[Document]:
        """Yield nothing."""
        return iter(())

    def look(self) -> Iterator[Document]:
        """Yield the state, where it is another than before."""
        if self._shown is None:
            yield {"kind": "about", "what": "node", "title": f"Node {self._name}", "facts": []}
        rows = self._rows()
        if rows != self._shown:
            self._shown = rows
            yield {"kind": "status", "rows": rows, "notes": [_OWN if self._own else _SILENT]}

    def _rows(self) -> list[tuple[str, str]]:
        running = [("running", "yes" if is_running(self._state) else "no")]
        try:
            found = node_status(self._state, with_versions=True)
        except SpoolError:
            return [*running, ("state", "none yet")]
        rows = [
            *running,
            ("messages in custody", str(found.in_custody)),
            ("version of roster", str(found.roster_version)),
            ("version of manifest", str(found.manifest_version)),
        ]
        public = [(text, str(found.tallies.get(name, 0))) for name, text in PUBLIC_TALLIES.items()]
        if not self._own:
            return rows + public
        own = [(f"{name.replace('_', ' ')}, counted", str(count)) for name, count in sorted(found.tallies.items())]
        finished = ("finished", "yes" if found.finished else "no")
        newest = ("updates that its newest model has had", str(found.iteration))
        return [*rows, finished, newest, *own]
