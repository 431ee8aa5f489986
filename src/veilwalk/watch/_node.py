"""The page of one real node: what its operator may see at any time, and nothing about when or whether it trained.

A page is left open, read over a shoulder and kept in screenshots, with the time. So it shows what the metrics of a node
show; what the node itself has trained only where its operator asks for it. It loads none of the libraries of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node import load_config, node_status
from veilwalk.node.peer import describe_tallies, is_running
from veilwalk.watch._documents import Document, Source

_SILENT = "Whether and when this node trained is not shown; --own shows it, to its operator alone."
_OWN = "This says what the node itself has trained: for its operator's eyes only."


class NodeSource(Source):
    """One node, by its folder; it need not be running."""

    def __init__(self, config: Path, *, own: bool = False) -> None:
        settings = load_config(config)
        self._state, self._own = settings.state, own
        name = config.resolve().parent.name
        super().__init__({"kind": "about", "what": "node", "title": f"Node {name}", "facts": []})
        self._sent: list[tuple[str, str]] | None = None

    def _read(self) -> Iterator[Document]:
        rows = self._rows()
        if rows != self._sent:
            self._sent = rows
            yield {"kind": "status", "rows": rows, "notes": [_OWN if self._own else _SILENT]}

    def _rows(self) -> list[tuple[str, str]]:
        running = ("running", "yes" if is_running(self._state) else "no")
        try:
            status = node_status(self._state, with_versions=True)
        except SpoolError:
            return [running, ("state", "none yet")]
        rows = [
            running,
            ("messages in custody", str(status.in_custody)),
            ("version of roster", str(status.roster_version)),
            ("version of manifest", str(status.manifest_version)),
        ]
        if self._own:
            rows.append(("finished", "yes" if status.finished else "no"))
            rows.append(("updates that its newest model has had", str(status.iteration)))
        tallies = describe_tallies(status.tallies, with_own=self._own)
        return rows + [(metric.about, str(count)) for metric, count in tallies]
