"""The folder of a training run as documents. Nothing is written there, and nothing needs to be written for it.

The walk is fixed, and kept, before anything is trained, and checkpoints say how far training is: so what a page shows
comes of files that a run needs anyway, and a run that is watched has the bits of one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.errors import ConfigError, VeilwalkError
from veilwalk.core.walk import SIMPLE
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.training import RunFolder, TrainSettings, scheme_of
from veilwalk.walks import read_trace
from veilwalk.watch._documents import MAP, Document, network
from veilwalk.watch._guesses import ASKED, guesses
from veilwalk.watch._walked import Walked

_PRIVATE = "private-walk"


class RunSource:
    """A run that is made, was made, or stopped half way."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._settings: TrainSettings = self._folder.settings()
        self._graph = _graph(self._folder, self._settings)
        self._walked: Walked | None = None
        self._introduced = False
        self._told: dict[str, Any] = {}
        self.finished = False

    def look(self) -> Iterator[Document]:
        """Yield what is new: first the network, then the walk, then how far training is."""
        if not self._introduced:
            self._introduced = True
            yield self._about()
            yield network(self._graph)
        if self._walked is None and self._folder.trace.exists():
            self._walked = self._walk()
            yield from self._walked.documents()
        # Looked for before the checkpoints are: what stood there then is not missed.
        ended = (self._folder.path / "record.json").exists()
        yield from self._progress()
        if ended and not self.finished:
            self.finished = True
            yield from self._result()

    def study(self) -> Iterator[Document]:
        """Yield what observers say."""
        if self._walked is not None:
            yield from guesses(self._walked, tokens=self._settings.tokens, updates=self._settings.updates)

    @property
    def ready(self) -> bool:
        """Whether there is a walk to be studied."""
        return self._walked is not None

    def _about(self) -> Document:
        settings = self._settings
        return {
            "kind": "about",
            "what": "train",
            "title": f"{self._graph.n_nodes} peers learn {settings.data}",
            "folder": self._folder.path.name,
            "map": MAP,
            "facts": [
                ["network", settings.graph],
                ["law", settings.law],
                ["sealed for", settings.recipients],
                ["walk", settings.walk],
                ["tokens", settings.tokens],
                ["partition", settings.partition],
                ["learner", settings.learner],
                ["seed", settings.seed],
            ],
            "updates": settings.updates,
            "observers": list(ASKED),
            "algorithms": [_PRIVATE, *settings.comparisons],
        }

    def _walk(self) -> Walked:
        settings = self._settings
        try:
            scheme = scheme_of(self._graph, settings)
        except VeilwalkError:
            # A law that was given as an object has no name to make it by.
            scheme = None
        trace = read_trace(self._folder.trace, graph=self._graph)
        return Walked(
            graph=self._graph,
            walk=settings.chosen_walk or SIMPLE,
            scheme=scheme,
            records=np.concatenate(list(trace.chunks())),
            seed=settings.seed,
        )

    def _progress(self) -> Iterator[Document]:
        stages = {}
        for name in (_PRIVATE, *self._settings.comparisons):
            found = self._folder.progress(name)
            if found is None:
                continue
            stages[name] = {"done": found.done, "finished": found.finished}
            if self._told.get(name) != found.done:
                self._told[name] = found.done
                yield {"kind": "points", "algorithm": name, "points": [asdict(point) for point in found.points]}
        if stages and stages != self._told.get("stages"):
            self._told["stages"] = stages
            yield {"kind": "state", "stages": stages, "finished": False}

    def _result(self) -> Iterator[Document]:
        record = json.loads((self._folder.path / "record.json").read_text())
        algorithms = record["algorithms"]
        for name, found in algorithms.items():
            if found["reason"] != "all updates made":
                text = f"{name} ended after {found['updates']} updates: {found['reason']}"
                yield {"kind": "event", "at": found["updates"], "what": "end", "text": text}
        for warning in record["warnings"]:
            yield {"kind": "event", "at": 0, "what": "warning", "text": warning}
        kept = ("kind", "node_entropy_nats", "hit_ratio", "blind_hit_ratio", "prior_node_entropy_nats")
        means = {
            name: {key: found["anonymity"].get(key) for key in kept} | {"message_bytes": found["message_bytes"]}
            for name, found in algorithms.items()
        }
        yield {"kind": "result", "anonymity": means, "privacy": (record["privacy"] or {}).get("sentence")}
        yield {"kind": "state", "stages": self._told["stages"], "finished": True}


def _graph(folder: RunFolder, settings: TrainSettings) -> Graph:
    """Return the network, by its name; by the record where it was given as an object and the run has ended."""
    try:
        return parse_graph_spec(settings.graph)
    except VeilwalkError:
        record = folder.path / "record.json"
        if record.exists():
            found = json.loads(record.read_text())
            if found["sample"] is not None:
                return Graph.from_edges(found["network"]["nodes"], found["sample"]["edges"])
        need = "it can be drawn once the run has ended"
        raise ConfigError(f"{folder.path}: its network {settings.graph!r} was given as an object: {need}") from None
