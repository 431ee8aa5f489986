"""The folder of a cluster on one's own machine as documents: from the trail that ``cluster up`` writes there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veilwalk.audit import Answer
from veilwalk.core.errors import ConfigError
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.cluster import (
    EVENTS,
    TRAIL,
    cluster_configs,
    manifest_in,
    message_bytes,
    read_trail,
    set_up_cluster,
    settings_in,
)
from veilwalk.watch._documents import MAP, Document, network
from veilwalk.watch._guesses import blind_answers, posterior

_COLUMNS = ("update", "token", "source", "node", "last_hop", "hops", "return_time", "clock", "tail", "seen")
_UNKNOWN = -1
_KILLED = "kill: its process ended, and was started again"


class ClusterSource:
    """A cluster: who held something, and who made an update, between one look and the next."""

    def __init__(self, folder: Path) -> None:
        settings = settings_in(folder, {})
        if settings is None:
            raise ConfigError(f"{folder} holds no cluster")
        self._folder, self._settings = folder, settings
        self._names = [path.parent.name for path in cluster_configs(folder)]
        self._size = message_bytes(manifest_in(folder))
        self._offset, self._introduced = 0, False
        self._openers: list[int] = []
        self._seen: list[int] = []
        self._points: list[Document] = []
        self._blind: list[Answer] = []
        self._guessed = 0
        self.ready = True
        self.finished = False

    def study(self) -> Iterator[Document]:
        """Find out what each node, as a receiver, can say blindly: a look sees no hop, and so no return time."""
        self._blind = blind_answers(set_up_cluster(self._settings).scenario.scheme)
        # A cluster that has ended is looked at no more.
        yield from self._guesses()

    def look(self) -> Iterator[Document]:
        """Yield what the trail has more."""
        if not self._introduced:
            self._introduced = True
            yield self._about()
            yield network(parse_graph_spec(self._settings.graph), labels=self._names)
        lines, self._offset = read_trail(self._folder / TRAIL, self._offset)
        rows: list[dict[str, Any]] = []
        points, first = len(self._points), len(self._openers)
        for line in lines:
            rows += self._deliveries(line)
            yield from self._events(line)
            self._score(line)
        if rows:
            columns = {name: [row[name] for row in rows] for name in _COLUMNS}
            yield {"kind": "deliveries", "from": first, "every": 1} | columns
            yield {"kind": "state", "stages": {}, "finished": False}
        if len(self._points) > points:
            yield {"kind": "points", "algorithm": "private-walk", "points": self._points}
        yield from self._guesses()
        yield from self._end()

    def _about(self) -> Document:
        settings = self._settings
        return {
            "kind": "about",
            "what": "cluster",
            "title": f"{len(self._names)} real nodes on this machine learn {settings.data}",
            "folder": self._folder.name,
            "knows": "What whoever runs all nodes can see",
            "map": f"{MAP} Looks are half a second apart: most hops, and who sealed for whom, are not seen.",
            "facts": [
                ["network", settings.graph],
                ["law", settings.law or "as recommended for the network"],
                ["walks", settings.walks],
                ["partition", settings.partition],
                ["learner", settings.learner],
            ],
            "updates": settings.updates,
            "message_bytes": self._size,
            "observers": ["prior"],
            "algorithms": ["private-walk"],
        }

    def _deliveries(self, line: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A row for every update made since the look before, in the order of the counts that nodes know."""
        self._seen = [*dict.fromkeys([*self._seen, *line.get("held", [])])]
        for node in line.get("made", []):
            # Of one walk whoever updated before is the maker of what was opened; of several it is not known which.
            known = self._settings.walks == 1 and self._openers
            row = dict.fromkeys(("last_hop", "hops", "return_time"), _UNKNOWN)
            yield row | {
                "source": self._openers[-1] if known else _UNKNOWN,
                "update": len(self._openers) + 1,
                "token": 0,
                "node": node,
                "clock": line["hops"],
                "tail": [],
                "seen": self._seen,
            }
            self._openers.append(node)
            self._seen = []

    def _events(self, line: dict[str, Any]) -> Iterator[Document]:
        for name, node, by in line.get("events", []):
            what, _, text = EVENTS.get(name, _KILLED).partition(": ")
            said = ", ".join(part for part in (self._names[node], text, f"{by} times" if by > 1 else "") if part)
            yield {"kind": "event", "at": len(self._openers), "what": what, "node": node, "text": said}

    def _score(self, line: dict[str, Any]) -> None:
        if (score := line.get("score")) is not None:
            spent = {"update": line["iteration"], "hops": line["hops"], "sent_bytes": line["hops"] * self._size}
            found = {"seconds": line["t"], "loss": score["loss"], "accuracy": score.get("accuracy"), "scores": {}}
            self._points = [*self._points, spent | found]

    def _guesses(self) -> Iterator[Document]:
        while self._blind and self._guessed < len(self._openers):
            row, self._guessed = self._guessed, self._guessed + 1
            node = self._openers[row]
            source = self._openers[row - 1] if row and self._settings.walks == 1 else None
            given = f"node {self._names[node]} could open it; nothing else"
            yield posterior("prior", self._blind[node], row=row, source=source, given=given)

    def _end(self) -> Iterator[Document]:
        """The result is written when every node has the finished model."""
        path = self._folder / "result.json"
        if self.finished or not path.exists():
            return
        self.finished = True
        result = json.loads(path.read_text())
        spread = 2 * result["hops_per_update_expected_error"]
        hops = result["hops_per_update_predicted"]
        within = [max(hops - spread, 0.0), hops + spread]
        how = f"{result['hops_per_update_prediction']}; 95% of such runs fall about within"
        yield {"kind": "price", "hops": hops, "how": how, "interval": within}
        text = f"every node has the finished model ({result['ended_by']})"
        yield {"kind": "event", "at": len(self._openers), "what": "end", "text": text}
        yield {"kind": "state", "stages": {}, "finished": True}
