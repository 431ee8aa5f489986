"""What a cluster on one's own machine did, look by look: a file in its folder, for the page that shows it.

It says who trained when, which no node of a real network is told; only whoever runs all nodes, and so has all their
keys, can write it. It grows by a line a look at most, and up to a bound.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from veilwalk.core.errors import RecordError, SpoolError
from veilwalk.core.records import append_line, read_lines
from veilwalk.learning import Params
from veilwalk.node.cluster._files import manifest_in
from veilwalk.node.cluster._processes import ClusterStatus
from veilwalk.node.members import decode_params
from veilwalk.node.peer import NodeStatus, load_config, node_status

TRAIL = "trail.jsonl"
#: Tallies whose growth is an event, with what it is called.
EVENTS = {
    "created": "lost walk: a new one was made in its stead",
    "forks": "fork: a walk was found to have been made twice",
    "merged": "merge: two walks became one",
    "retired": "walk retired",
    "rerouted": "sent another way: a neighbour was silent",
    "damaged": "stored file found damaged",
    "refused": "model refused",
}
_MOST_BYTES = 32 << 20
# Looks at the model: a share of the updates apart, and so many seconds.
_SCORES, _SCORE_S = 40, 2.0

Evaluate = Callable[[Params], Mapping[str, Any]]


class Trail:
    """Writes what changed since the look before; a cluster that goes on adds to the file that is there."""

    def __init__(self, folder: Path, configs: Sequence[Path], *, updates: int, evaluate: Evaluate) -> None:
        self._folder, self._evaluate, self._updates = folder, evaluate, updates
        self._states = [load_config(path).state for path in configs]
        self._path = folder / TRAIL
        self._before: list[NodeStatus | None] = [None] * len(configs)
        self._held: list[int] = []
        self._restarts: tuple[int, ...] = (0,) * len(configs)
        lines, _ = read_lines(self._path)
        last = lines[-1] if lines else {}
        self._began = time.monotonic() - float(last.get("t", 0.0))
        self._scored_at, self._scored = 0.0, int(last.get("iteration", 0))

    def add(self, status: ClusterStatus) -> None:
        """Note what is new at this look; a disk that is full costs the trail, not the run."""
        line = self._changes(status)
        score = self._score(status)
        if score is not None:
            line["score"] = score
        self._before, self._restarts = list(status.nodes), status.restarts or self._restarts
        if not line or (self._path.exists() and self._path.stat().st_size > _MOST_BYTES):
            return
        line = {
            "t": round(time.monotonic() - self._began, 2),
            "iteration": status.iteration,
            "hops": status.total("hops"),
            "finished": status.finished,
        } | line
        with contextlib.suppress(RecordError):
            append_line(self._path, line, mode=0o600)

    def _changes(self, status: ClusterStatus) -> dict[str, Any]:
        makers, events = [], []
        held = [index for index, node in enumerate(status.nodes) if node is not None and node.in_custody]
        for index, (node, before) in enumerate(zip(status.nodes, self._before, strict=True)):
            if node is None:
                continue
            # What was counted before the first look is not news.
            then = node.tallies if before is None else before.tallies
            more = {name: value - then.get(name, 0) for name, value in node.tallies.items()}
            grew = {name: by for name, by in more.items() if by > 0}
            if grew.get("updates"):
                makers += [[max(node.walks), index]] * grew["updates"]
            events += [[name, index, by] for name, by in grew.items() if name in EVENTS]
        ended = zip(status.restarts, self._restarts, strict=False)
        events += [["killed", index, now - then] for index, (now, then) in enumerate(ended) if now > then]
        news: dict[str, list[Any]] = {"made": [index for _, index in sorted(makers)], "events": events}
        changes = {name: what for name, what in news.items() if what}
        if changes or held != self._held:
            changes["held"] = self._held = held
        return changes

    def _score(self, status: ClusterStatus) -> dict[str, Any] | None:
        """Evaluate the newest model now and then."""
        new = status.iteration - self._scored
        now = time.monotonic()
        if new < max(1, self._updates // _SCORES) or now < self._scored_at + _SCORE_S:
            return None
        self._scored_at, self._scored = now, status.iteration
        newest = max(range(len(status.nodes)), key=lambda index: (n := status.nodes[index]) is not None and n.iteration)
        with contextlib.suppress(SpoolError):
            manifest = manifest_in(self._folder)
            models = [
                decode_params(manifest, model) for model in node_status(self._states[newest], with_models=True).models
            ]
            if models:
                return dict(self._evaluate(models[0]))
        return None
