"""Looks at what a stopped cluster of tally learners left on disk, and says what is wrong with it.

Shares no code with the node: it knows the tables by their names and the model as raw numbers, so that a fault in the
node's own reading cannot hide one in its writing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(slots=True)
class Remains:
    """What one node left."""

    name: str
    tallies: dict[str, int]
    taken: dict[str, int]
    messages: list[tuple[bytes, str | None, int | None, bool]]
    models: dict[str, tuple[int, Counts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a check found.

    Attributes:
        updates: Updates in the newest model.
        hops: Hops counted by all nodes.
        live: Different ciphertexts that are still on their way.
        lost: Updates that nodes committed but the newest model lacks.
        doubled: Updates that the newest model has more often than nodes committed them.
        finished: Nodes that hold the finished model.
        faults: Everything wrong, in words; nothing when all is well.
    """

    updates: int
    hops: int
    live: int
    lost: int
    doubled: int
    finished: int
    tallies: dict[str, int]
    faults: list[str] = field(default_factory=list)


def check(folder: Path, names: Sequence[str], *, walks: int = 1, may_fork: bool = False) -> Findings:
    """Look at the nodes called ``names`` under ``folder``, none of which may be running.

    Args:
        folder: The cluster's.
        names: Its nodes, in the order of the model's entries.
        walks: How many walks there are.
        may_fork: Whether messages were rerouted, so that copies of one ciphertext may be under way.
    """
    nodes = [_read(folder / name, name) for name in names]
    newest = max(
        (model for node in nodes for model in node.models.values()),
        key=lambda model: model[0],
        default=(0, np.zeros(len(nodes), dtype=np.int64)),
    )
    committed = np.array([node.tallies.get("updates", 0) for node in nodes])
    gap = newest[1][: len(nodes)] - committed
    finals = [node.models["final"] for node in nodes if "final" in node.models]
    live = _live(nodes)
    faults = []
    lost, doubled = int(-gap[gap < 0].sum()), int(gap[gap > 0].sum())
    if walks == 1 and (lost or doubled):
        faults.append(f"{lost} updates lost, {doubled} doubled: model {newest[1].tolist()}, nodes {committed.tolist()}")
    if walks == 1 and newest[0] != newest[1].sum():
        faults.append(f"the newest model says {newest[0]} updates and counts {newest[1].sum()}")
    expected = 0 if finals else walks
    if len(live) != expected and not (may_fork and len(live) >= expected):
        told = f", {len(finals)} of {len(nodes)} nodes finished" if finals else ""
        faults.append(f"{len(live)} messages on their way, not {expected}{told}")
    if not may_fork and sum(live.values()) != len(live):
        faults.append(f"{sum(live.values())} copies of {len(live)} messages on their way")
    if len({model[1].tobytes() for model in finals}) > 1:
        faults.append("nodes hold different finished models")
    total: dict[str, int] = {}
    for node in nodes:
        for name, value in node.tallies.items():
            total[name] = total.get(name, 0) + value
    return Findings(
        updates=newest[0],
        hops=total.get("hops", 0),
        live=len(live),
        lost=lost,
        doubled=doubled,
        finished=len(finals),
        tallies=total,
        faults=faults,
    )


def holders(folder: Path, names: Sequence[str]) -> set[str]:
    """Return the nodes in whose keeping a message is that the next has not taken."""
    nodes = [_read(folder / name, name) for name in names]
    return {node.name for node in nodes if _live(nodes, of=node)}


def _read(folder: Path, name: str) -> Remains:
    if not (folder / "state" / "spool.db").exists():
        return Remains(name, {}, {}, [], {})
    database = sqlite3.connect(f"file:{folder / 'state' / 'spool.db'}?mode=ro", uri=True)
    try:
        messages = [
            (digest, peer, seq, bool(fixed))
            for digest, peer, seq, fixed in database.execute("SELECT digest, peer, seq, fixed FROM message")
        ]
        models = {}
        for kind, file, inline, iteration in database.execute("SELECT kind, file, bytes, iteration FROM model"):
            data = inline if file is None else (folder / "state" / "messages" / file).read_bytes()
            models[kind] = (iteration, np.frombuffer(data, dtype="<i8"))
        return Remains(
            name,
            dict(database.execute("SELECT name, value FROM tally")),
            dict(database.execute("SELECT peer, coalesce(taken, 0) FROM link")),
            messages,
            models,
        )
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return Remains(name, {}, {}, [], {})
    finally:
        database.close()


def _live(nodes: Sequence[Remains], of: Remains | None = None) -> dict[bytes, int]:
    """Return how often each ciphertext is under way: in keeping, or in one node's, and not with the next."""
    taken = {node.name: node.taken for node in nodes}
    live: dict[bytes, int] = {}
    for node in nodes if of is None else [of]:
        for digest, peer, seq, fixed in node.messages:
            handed_over = peer is not None and seq is not None and taken[peer].get(node.name, 0) >= seq
            if not fixed and not handed_over:
                live[digest] = live.get(digest, 0) + 1
    return live
