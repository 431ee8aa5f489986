"""Small networks of real nodes in one process, over real sockets."""

from __future__ import annotations

import asyncio
import io
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.helpers.manifests import make_test_manifest

from veilwalk.core.walk import SIMPLE
from veilwalk.design import visits_per_link
from veilwalk.learning import Partition, UpdateResult
from veilwalk.node.cluster import free_ports
from veilwalk.node.link._limits import Limits
from veilwalk.node.members import Deal, LawRule, RunRules, _keys, deal_roster
from veilwalk.node.members._keys import NodeKeys, new_node_keys, new_root_key
from veilwalk.node.members._roster import Roster
from veilwalk.node.peer import Law
from veilwalk.node.peer._assemble import NodeParts
from veilwalk.node.peer._membership import Membership
from veilwalk.node.peer._node import Node
from veilwalk.node.peer._observe import Log
from veilwalk.node.peer._trainer import Task
from veilwalk.node.sealing._kem import Suite
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._register import Register


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretch passwords quickly; test_keyfiles holds the real cost."""
    for name in ("ARGON2_COST", "ARGON2_LEAST"):
        monkeypatch.setattr(_keys, name, {"iterations": 1, "lanes": 1, "memory_kib": 64})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


class Tally:
    """Its model counts the updates of every node."""

    def __init__(self, n_nodes: int, factor: float = 1.0) -> None:
        self._n_nodes, self._factor = n_nodes, factor

    def init_params(self, rng: np.random.Generator) -> Mapping[str, Any]:  # noqa: ARG002
        """Return zeros."""
        return {"counts": np.zeros(self._n_nodes)}

    def update(self, params: Mapping[str, Any], data: Partition, ctx: Any) -> UpdateResult:
        """Count one more, here and in what this node keeps."""
        ctx.state["made"] = ctx.state.get("made", np.zeros(1)) + 1
        return UpdateResult(params={"counts": params["counts"] + self._factor * data.features[0]}, num_examples=1)

    def evaluate(self, params: Mapping[str, Any], data: Partition) -> Mapping[str, float]:  # noqa: ARG002
        """Return a loss that grows with the largest entry."""
        return {"loss": 1.0 + float(np.abs(params["counts"]).max())}


@dataclass
class Network:
    """Nodes in a ring with the parts they are made of; change the parts before :meth:`run`."""

    folder: Path
    root: Any
    roster: Roster
    keys: dict[str, NodeKeys]
    parts: dict[str, NodeParts]
    logs: dict[str, io.StringIO]
    nodes: dict[str, Node] = field(default_factory=dict)
    stops: dict[str, asyncio.Event] = field(default_factory=dict)
    runs: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    deal: Deal | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes."""
        return self.roster.ids

    def change(self, name: str, **parts: Any) -> None:
        """Put other parts into a node."""
        self.parts[name] = replace(self.parts[name], **parts)

    async def start(self, *names: str) -> None:
        """Start some nodes, or all, and wait until they listen."""
        for name in names or self.names:
            self.parts[name] = replace(self.parts[name], disk=FolderDisk(self.folder / f"state-{name}"))
            self.logs[name].truncate(0)
            self.logs[name].seek(0)
            self.nodes[name], self.stops[name] = Node(self.parts[name]), asyncio.Event()
            self.runs[name] = asyncio.create_task(self.nodes[name].run(self.stops[name]))
        for name in names or self.names:
            await self.until(partial(self._listens, name))

    def _listens(self, name: str) -> bool:
        return '"started"' in self.logs[name].getvalue()

    async def stop(self, *names: str) -> None:
        """Stop some nodes, or all."""
        for name in names or tuple(self.runs):
            self.stops[name].set()
            await self.runs.pop(name)

    async def until(self, done: Callable[[], Any], timeout_s: float = 60.0) -> None:
        """Wait until something holds; a node that fails meanwhile fails the test."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for run in self.runs.values():
                if run.done():
                    run.result()
            if done():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {timeout_s} s: {[(n, self.look(n)) for n in self.nodes]}")

    def look(self, name: str) -> dict[str, Any]:
        """What a node has on disk now."""
        with FolderReader(self.folder / f"state-{name}") as register:
            final, checkpoint = register.model("final"), register.model("checkpoint")
            return {
                "tallies": register.tallies(),
                "messages": register.messages(),
                "given": [(row.peer, row.key) for row in register.messages() if row.given],
                "final": None if final is None else np.frombuffer(register.inline(final)),
                "checkpoint": None if checkpoint is None else np.frombuffer(register.inline(checkpoint)),
                "walks": dict(register.walks()),
            }

    def tally(self, name: str, *names: str) -> int:
        """A tally summed over ``names``, or all."""
        return sum(self.look(node)["tallies"].get(name, 0) for node in names or self.nodes)

    def finished(self) -> bool:
        """Whether everybody has the finished model and nothing left to send."""
        return all(self.look(name)["final"] is not None and not self.look(name)["messages"] for name in self.nodes)


class FolderReader:
    """The tables of a folder, read only."""

    def __init__(self, folder: Path) -> None:
        from veilwalk.node.spool._disk import open_read_only

        self._database = open_read_only(folder)

    def __enter__(self) -> Register:
        return Register(self._database)

    def __exit__(self, *_: object) -> None:
        self._database.close()


_fresh = itertools.count()


_NEVER = 1e9


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., Network]:
    """Make a network: a ring of ``n_nodes`` with ``chords``, everybody sealing for everybody else alike."""

    def make(
        n_nodes: int = 4,
        *,
        chords: tuple[tuple[int, int], ...] = (),
        rules: RunRules | None = None,
        limits: Limits | None = None,
        starts: bool = True,
        recipients: int = 1,
        overlay: int = 0,
        period_s: int = 60,
        prefix: str = "n",
    ) -> Network:
        folder = tmp_path / f"network{next(_fresh)}"
        names = [f"{prefix}{index}" for index in range(n_nodes)]
        keys = {
            name: new_node_keys(
                folder / name,
                node_id=name,
                address=f"127.0.0.1:{port}",
                suite=Suite.X25519,
                periods=8 if overlay else 2,
            )
            for name, port in zip(names, free_ports(n_nodes), strict=True)
        }
        ring = [(i, (i + 1) % n_nodes) for i in range(n_nodes)]
        edges = {tuple(sorted((names[a], names[b]))) for a, b in (*ring, *chords)}
        deal = None
        if overlay:
            cards = {name: keys[name].member for name in names}
            about: dict[str, Any] = {"suite": Suite.X25519, "now": int(time.time()), "days": 1}
            about["network"] = bytes(range(16))
            roster, deal = deal_roster(cards, degree=overlay, period_s=period_s, **about)
        else:
            roster = published(names, keys, edges)
        learner = Tally(n_nodes)
        manifest = make_test_manifest(
            learner.init_params(np.random.default_rng(0)),
            run_id=roster.network,
            graph_digest=roster.graph_digest,
            spec={"learner": "tally", "recipients": recipients},
        )
        rules = rules or RunRules(walk=SIMPLE, updates=20, late_hops=1e9)
        if rules.late_hops == _NEVER and rules.starve_hops >= _NEVER:
            # Only signatures are waited for by it, and visits that come too often.
            rules = replace(rules, hop_s=rules.hop_s / 5)
        often = visits_per_link(roster.graph(), recipients=recipients, walk=rules.walk)
        rules = replace(rules, visits_per_link=rules.visits_per_link or often)
        logs = {name: io.StringIO() for name in names}
        everybody = {name: Law(shares={other: 1 / (n_nodes - 1) for other in names if other != name}) for name in names}
        parts = {
            name: NodeParts(
                keys=keys[name],
                membership=Membership(manifest=manifest, roster=roster).open_row(keys[name]),
                task=Task(
                    learner=learner,
                    data=Partition(np.eye(n_nodes)[index : index + 1], np.zeros(1, dtype=np.int64)),
                    manifest=manifest,
                    index=index,
                    rules=rules,
                ),
                rules=rules,
                law=Law(rule=LawRule(2)) if overlay else everybody[name],
                disk=cast("Any", None),  # given at each start
                limits=limits or Limits(retry_s=0.2, connect_s=2.0, answer_s=3.0),
                starts=starts and index == 0,
                log=Log(logs[name]),
            )
            for index, name in enumerate(names)
        }
        return Network(folder, new_root_key(folder / "root"), roster, keys, parts, logs, deal=deal)

    return make


def published(names: list[str], keys: Mapping[str, NodeKeys], edges: set[Any]) -> Roster:
    """Return version 1 of a roster that shows all links."""
    return Roster(
        network=bytes(range(16)),
        suite=Suite.X25519,
        version=1,
        epoch=0,
        created=int(time.time()),
        expires=int(time.time()) + 3600,
        prev_digest=None,
        members=tuple(keys[name].member for name in names),
        edges=tuple(sorted(edges)),
        seals_from=int(time.time()),
        period_s=7 * 86400,
    )
