"""The folder of a cluster on one's own machine as documents: from the trail that ``cluster up`` writes there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veilwalk.audit import Answer
from veilwalk.core.config import read_json
from veilwalk.core.errors import ConfigError
from veilwalk.core.records import read_lines
from veilwalk.core.units import readable_data
from veilwalk.graphs import parse_graph_spec
from veilwalk.node import cluster
from veilwalk.watch._documents import MAP, Document, Source, draw_network
from veilwalk.watch._run import answer_blindly, describe_posterior

_UNKNOWN = -1
# Settings that the page lists.
_FACTS = ("graph", "law", "walks", "partition", "learner")
_KILLED = "kill: its process ended, and was started again"


class ClusterSource(Source):
    """A cluster: the nodes that held something, and that made an update, between two readings."""

    def __init__(self, folder: Path) -> None:
        spec = cluster.read_cluster_spec(folder, {})
        if spec is None:
            raise ConfigError(f"{folder} holds no cluster")
        self._folder, self._spec, self._offset = folder, spec, 0
        self._names = [path.parent.name for path in cluster.cluster_configs(folder)]
        self._size = cluster.manifest_in(folder).message_bytes
        about = {
            "kind": "about",
            "what": "cluster",
            "title": f"{len(self._names)} real nodes on this machine learn {readable_data(spec.learning.data)}",
            "knows": "What the owner of all nodes can see",
            "map": f"{MAP} It is read twice a second: most hops, and the recipients of updates, are not seen.",
            "facts": [[name, spec.options[name].default] for name in _FACTS],
            "message_bytes": self._size,
            "observers": ["prior"],
        }
        super().__init__(about, draw_network(parse_graph_spec(spec.graph), labels=self._names))
        self._openers: list[int] = []
        self._holders: list[int] = []
        self._points: list[Document] = []
        self._blind: list[Answer] = []
        self._n_guesses = 0

    def compute(self) -> Iterator[Document]:
        """Compute the blind guess of each receiver: readings see no hop, and so no return time."""
        self._blind = answer_blindly(cluster.set_up_cluster(self._spec).scenario.scheme)
        # A cluster that has ended is read no more.
        yield from self._guesses()

    def _read(self) -> Iterator[Document]:
        lines, self._offset = read_lines(self._folder / cluster.TRAIL, self._offset)
        rows: list[dict[str, Any]] = []
        points = len(self._points)
        for line in lines:
            rows += self._deliveries(line)
            yield from self._events(line)
            if (score := line.get("score")) is not None:
                spent = {"update": line["iteration"], "hops": line["hops"], "sent_bytes": line["hops"] * self._size}
                scores = {"seconds": line["t"], "loss": score["loss"], "accuracy": score.get("accuracy"), "scores": {}}
                self._points.append(spent | scores)
        if rows:
            yield {"kind": "deliveries"} | {name: [row[name] for row in rows] for name in rows[0]}
            yield {"kind": "state", "stages": {}, "finished": False}
        if len(self._points) > points:
            yield {"kind": "points", "algorithm": "private-walk", "points": self._points}
        yield from self._guesses()
        yield from self._end()

    def _maker(self, row: int) -> int | None:
        """Return who made an update: of one walk the node that updated before; of several that is not known."""
        return self._openers[row - 1] if row and self._spec.end.walks == 1 else None

    def _deliveries(self, line: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield a row for every update since the reading before, in the order of the counts that nodes know."""
        self._holders = [*dict.fromkeys([*self._holders, *line.get("held", [])])]
        for node in line.get("made", []):
            maker = self._maker(len(self._openers))
            yield dict.fromkeys(("last_hop", "hops", "return_time"), _UNKNOWN) | {
                "source": _UNKNOWN if maker is None else maker,
                "update": len(self._openers) + 1,
                "token": 0,
                "node": node,
                "clock": line["hops"],
                "tail": [],
                "seen": self._holders,
            }
            self._openers.append(node)
            self._holders = []

    def _events(self, line: dict[str, Any]) -> Iterator[Document]:
        for name, node, by in line.get("events", []):
            what, _, text = cluster.EVENTS.get(name, _KILLED).partition(": ")
            words = (self._names[node], text, f"{by} times" if by > 1 else "")
            text = ", ".join(word for word in words if word)
            yield {"kind": "event", "at": len(self._openers), "what": what, "node": node, "text": text}

    def _guesses(self) -> Iterator[Document]:
        while self._blind and self._n_guesses < len(self._openers):
            row, self._n_guesses = self._n_guesses, self._n_guesses + 1
            node = self._openers[row]
            given = f"node {self._names[node]} could open it; nothing else"
            yield describe_posterior("prior", self._blind[node], row=row, source=self._maker(row), given=given)

    def _end(self) -> Iterator[Document]:
        """The result is written when every node has the finished model."""
        path = self._folder / "result.json"
        if self.finished or not path.exists():
            return
        self.finished = True
        result = read_json(path)
        spread = 2 * result["hops_per_update_expected_error"]
        hops = result["hops_per_update_predicted"]
        how = f"{result['hops_per_update_prediction']}; 95% of such runs fall about within"
        yield {"kind": "price", "hops": hops, "how": how, "interval": [max(hops - spread, 0.0), hops + spread]}
        text = f"every node has the finished model ({result['ended_by']})"
        yield {"kind": "event", "at": len(self._openers), "what": "end", "text": text}
        yield {"kind": "state", "stages": {}, "finished": True}
