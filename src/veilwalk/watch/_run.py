"""The folder of a training run as documents: its walk, its evaluations, and the posteriors of observers.

The walk is fixed and stored before anything is trained, and checkpoints say how far training is. So a page reads files
that a run writes anyway, and a run that is watched has the bits of one that is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from veilwalk.audit import Answer, AuditSettings, choose_colluders, iter_answers
from veilwalk.core.arrays import IntArray
from veilwalk.core.config import read_json
from veilwalk.core.errors import ConfigError, VeilwalkError
from veilwalk.core.units import readable_data
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import Scheme
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import read_progress, trace_of
from veilwalk.training import RunFolder, RunSpec, build_scheme
from veilwalk.walks import UPDATE_DTYPE, draw_recipients, read_trace, token_paths
from veilwalk.watch._documents import MAP, Document, Source, draw_network, note

# Options that the page lists.
_FACTS = ("graph", "law", "recipients", "walk", "walks", "partition", "learner", "seed")
#: Observers that a page offers, the strongest last.
OBSERVERS = ("prior", "return-time", "last-hop", "first-sight")
_MOST_NODES = 2_000
# Posteriors of one observer, and the numbers of all of them; of one that is exact each destination costs its own law.
_MOST_ROWS, _FEWEST_ROWS, _NUMBERS = 60, 12, 9_000
_HORIZON_LEGS = 3
# As in the route's summary of a training run: some ten seconds.
_TRAINED_HOPS = 4_000
# Bounds of what a page gets: deliveries, hops or recipients in all, and rows of one document.
_MOST_DELIVERIES, _MOST_NUMBERS, _AT_ONCE = 20_000, 400_000, 2_000
_FEWEST_HOPS, _MOST_HOPS = 8, 400
# A longer walk is not played again for a picture.
_REPLAYED_HOPS = 50_000_000


class RunSource(Source):
    """A run that goes on, has ended, or stopped half way."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._spec = spec = self._folder.spec()
        self._graph = _read_graph(self._folder, spec)
        about = {
            "kind": "about",
            "what": "train",
            "title": f"{self._graph.n_nodes} peers learn {readable_data(spec.learning.data)}",
            "map": MAP,
            "facts": [[name, spec.options[name].default] for name in _FACTS],
            "observers": list(OBSERVERS),
        }
        super().__init__(about, draw_network(self._graph))
        self._walk: PlayedWalk | None = None
        self._sent: dict[str, Any] = {}

    def _read(self) -> Iterator[Document]:
        if self._walk is None and self._folder.trace.exists():
            scheme: Scheme | None = None
            # A law that is an object has no name to make it by.
            with suppress(VeilwalkError):
                scheme = build_scheme(self._graph, self._spec)
            records = read_trace(self._folder.trace, graph=self._graph)
            self._walk = PlayedWalk(graph=self._graph, spec=self._spec, scheme=scheme, records=records)
            yield from self._walk.documents()
        # Read before the checkpoints: the last of them is not missed.
        ended = (self._folder.path / "record.json").exists()
        yield from self._progress()
        if ended and not self.finished:
            self.finished = True
            yield from self._result()

    def compute(self) -> Iterator[Document] | None:
        """Return the posteriors of observers, once there is a walk."""
        return None if self._walk is None else iter_posteriors(self._walk)

    def _progress(self) -> Iterator[Document]:
        stages = {}
        for name in self._spec.algorithms:
            if (progress := read_progress(self._folder.checkpoint(name))) is None:
                continue
            stages[name] = {"done": progress.done, "finished": progress.finished}
            if self._sent.get(name) != progress.done:
                self._sent[name] = progress.done
                yield {"kind": "points", "algorithm": name, "points": [asdict(point) for point in progress.points]}
        if stages and stages != self._sent.get("stages"):
            self._sent["stages"] = stages
            yield {"kind": "state", "stages": stages, "finished": False}

    def _result(self) -> Iterator[Document]:
        record = read_json(self._folder.path / "record.json")
        algorithms = record["algorithms"]
        for name, outcome in algorithms.items():
            if outcome["reason"] != "all updates made":
                text = f"{name} ended after {outcome['updates']} updates: {outcome['reason']}"
                yield {"kind": "event", "at": outcome["updates"], "what": "end", "text": text}
        for warning in record["warnings"]:
            yield {"kind": "event", "at": 0, "what": "warning", "text": warning}
        keys = ("kind", "node_entropy_nats", "hit_ratio", "blind_hit_ratio", "prior_node_entropy_nats")
        means = {
            name: {key: outcome["anonymity"].get(key) for key in keys} | {"message_bytes": outcome["message_bytes"]}
            for name, outcome in algorithms.items()
        }
        yield {"kind": "result", "anonymity": means, "privacy": (record["privacy"] or {}).get("sentence")}
        yield {"kind": "state", "stages": self._sent["stages"], "finished": True}


def _read_graph(folder: RunFolder, spec: RunSpec) -> Graph:
    """Return the network by its name; where it is an object, by the record of the run that has ended."""
    try:
        return parse_graph_spec(spec.graph)
    except VeilwalkError:
        path = folder.path / "record.json"
        record: dict[str, Any] = read_json(path, {"sample", "network"}) if path.exists() else {"sample": None}
        if record["sample"] is not None:
            return Graph.from_edges(record["network"]["nodes"], record["sample"]["edges"])
        need = "it can be drawn once the run has ended"
        raise ConfigError(f"{folder.path}: its network {spec.graph!r} is an object: {need}") from None


@dataclass(frozen=True, eq=False, kw_only=True)
class PlayedWalk:
    """The records of a played walk (``walks.UPDATE_DTYPE``, one replica) in the order in which updates happened.

    The scheme is None where the law is an object, and not known.
    """

    graph: Graph
    spec: RunSpec
    scheme: Scheme | None
    records: npt.NDArray[np.void]

    def __post_init__(self) -> None:
        """Order records as training does: the k-th update of a token in its trace is the k-th record of that token."""
        trace, by_token = trace_of(self.graph, self.records), np.argsort(self.records["token"], kind="stable")
        starts = np.searchsorted(self.records["token"][by_token], trace.model)
        object.__setattr__(self, "records", self.records[by_token[starts + trace.ages]])

    def documents(self) -> Iterator[Document]:
        """Yield the deliveries, subsampled above 20,000, and the last hops of long legs."""
        every = -(-len(self.records) // _MOST_DELIVERIES)
        rows = np.arange(0, len(self.records), every)
        tails, sealed = self._tails(rows), self._sealed(rows)
        clock = np.cumsum(self.records["leg_hops"], dtype=np.int64)
        for first in range(0, len(rows), _AT_ONCE):
            block = slice(first, first + _AT_ONCE)
            records = self.records[rows[block]]
            columns = {name: records[name].tolist() for name in ("token", "source", "last_hop", "return_time")}
            columns |= {"node": records["destination"].tolist(), "hops": records["leg_hops"].tolist()}
            columns |= {"update": (rows[block] + 1).tolist(), "clock": clock[rows[block]].tolist()}
            yield {"kind": "deliveries", **columns, "tail": tails[block], "recipients": sealed[block]}

    def _tails(self, rows: IntArray) -> list[list[int]]:
        """Return the path of each leg, or its last hops; nothing where this version walks otherwise."""
        records = self.records
        tokens, hops = int(records["token"].max()) + 1, int(records["clock"].max())
        if tokens * hops > _REPLAYED_HOPS:
            return []
        walk = SIMPLE if self.spec.scheme.walk is None else Walk(self.spec.scheme.walk)
        paths = token_paths(self.graph, hops=hops, lanes=tokens, seed=self.spec.seed, walk=walk)
        if not (paths[records["token"], records["clock"]] == records["destination"]).all():
            return []
        longest = int(np.clip(_MOST_NUMBERS // len(rows), _FEWEST_HOPS, _MOST_HOPS))
        return [
            paths[token, clock - min(leg, longest) : clock + 1].tolist()
            for token, clock, leg in records[["token", "clock", "leg_hops"]][rows].tolist()
        ]

    def _sealed(self, rows: IntArray) -> list[list[int]]:
        """Return the recipients of each update; nothing where that would be too much."""
        records, scheme = self.records[rows], self.scheme
        if scheme is None or scheme.recipients * len(rows) > _MOST_NUMBERS:
            return []
        if scheme.has_exact_law:
            return [[node] for node in records["destination"].tolist()]
        sets = draw_recipients(
            scheme.graph,
            scheme.law.rows,
            scheme.recipients,
            seed=self.spec.seed,
            lane=records["token"],
            source=records["source"],
            clock=records["clock"] - records["leg_hops"],
        )
        return [sorted(recipients) for recipients in sets.tolist()]


def iter_posteriors(walk: PlayedWalk) -> Iterator[Document]:
    """Yield posteriors of observers for deliveries spread evenly over the run, and the predicted price of an update.

    The walk is played once more, to note the sightings of the coalition: that changes no hop of it.
    """
    scheme, seed, end = walk.scheme, walk.spec.seed, walk.spec.end
    if scheme is None or scheme.graph.n_nodes > _MOST_NODES:
        unnamed = "the law is an object: without its name no posterior can be computed"
        yield note(unnamed if scheme is None else f"posteriors are computed for up to {_MOST_NODES} nodes")
        return
    colluders = choose_colluders(scheme.graph, max(round(scheme.graph.n_nodes / 10), 1), seed)
    watching = np.isin(np.arange(scheme.graph.n_nodes), colluders)
    chunks = scheme.iter_updates(updates=end.updates, seed=seed, tokens=end.walks, replicas=1, colluders=watching)
    again = replace(walk, records=np.concatenate(list(chunks))).records
    if not (again[["token", "clock", "destination"]] == walk.records[["token", "clock", "destination"]]).all():
        yield note("this version walks otherwise than the one that made the run: posteriors are left out")
        return
    lanes = np.argsort(again["token"], kind="stable")
    records = again[lanes]
    records["replica"] = records["token"]
    count = int(np.clip(_NUMBERS // scheme.graph.n_nodes, _FEWEST_ROWS, _MOST_ROWS))
    rows = np.isin(lanes, np.linspace(0, len(records) - 1, count).astype(np.int64)).nonzero()[0]
    price = scheme.price
    yield {"kind": "price", "hops": price.hops, "how": price.kind, "interval": price.interval}
    settings = AuditSettings(seed=seed, updates=len(records), replicas=2, rehearsed_hops=_TRAINED_HOPS)
    if scheme.has_exact_law:
        settings = replace(settings, horizon=max(int(_HORIZON_LEGS * walk.records["leg_hops"].mean()), 1))
    try:
        for name, answers in iter_answers(scheme, records, OBSERVERS, rows, settings=settings):
            for answer in answers:
                record = records[answer.row]
                given = _describe_knowledge(scheme, name, record, len(colluders))
                yield describe_posterior(
                    name, answer, row=int(lanes[answer.row]), source=int(record["source"]), given=given
                )
    except VeilwalkError as error:
        yield note(f"posteriors are left out: {error}")


def describe_posterior(name: str, answer: Answer, *, row: int, source: int | None, given: str) -> Document:
    """Return an observer's posterior of a delivery; ``source`` is its real maker, where that is known."""
    before = None
    if source is not None:
        true = answer.weights[source]
        # Better guesses than the truth; those as good are before it half of the time.
        before = float((answer.weights > true).sum() + ((answer.weights == true).sum() - 1) / 2)
    return {
        "kind": "posterior",
        "observer": name,
        "row": row,
        "how": answer.how,
        "given": given,
        # Three digits are all that a shade shows.
        "weights": [float(f"{weight:.3g}") for weight in answer.weights.tolist()],
        "entropy_nats": float(special.entr(answer.weights).sum()),
        "blind_entropy_nats": float(special.entr(answer.prior).sum()),
        "top": int(answer.weights.argmax()),
        "before": before,
    }


def answer_blindly(scheme: Scheme) -> list[Answer]:
    """Return the blind guess of each node about what it opens, which needs no walk."""
    records = np.zeros(scheme.graph.n_nodes, dtype=UPDATE_DTYPE)
    records["destination"] = np.arange(len(records))
    settings = AuditSettings(updates=len(records), replicas=2)
    ((_, answers),) = iter_answers(scheme, records, ("prior",), np.arange(len(records)), settings=settings)
    return answers


def _describe_knowledge(scheme: Scheme, name: str, record: np.void, colluders: int) -> str:
    """Return in words what the observer knows of this delivery."""
    label = scheme.graph.label
    if name == "first-sight":
        first = f"{label(int(record['first_sight_node']))} was the first of them to hold this ciphertext"
        return f"{colluders} nodes collude; {first}, and had it from {label(int(record['first_sight_from']))}"
    timed = f"the token was last there {int(record['return_time'])} hops before"
    last = f"{timed}, and came from {label(int(record['last_hop']))}"
    more = {"prior": "nothing else", "return-time": timed, "last-hop": last}[name]
    return f"node {label(int(record['destination']))} could open it; {more}"
