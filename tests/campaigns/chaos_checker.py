"""Looks at what a stopped cluster of tally learners left on disk, and says what is wrong with it.

Shares no code with the node: it knows the tables by their names and the model as raw numbers, so that a fault in the
node's own reading cannot hide one in its writing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
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
    taken: dict[str, bytes]
    messages: list[tuple[bytes, str | None, bytes | None, bool]]
    models: dict[str, tuple[int, Counts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a check found.

    Attributes:
        updates: Updates in the newest model; of several walks, in the newest of each.
        ended: Updates of the finished model of each walk that any node holds.
        hops: Hops counted by all nodes.
        live: Different ciphertexts that are still on their way.
        kept: Messages in anybody's keeping, with finished models that are under way to a neighbour.
        taken: How often nodes have taken a message.
        lost: Updates that nodes committed but the newest model lacks.
        doubled: Updates that the newest model has more often than nodes committed them.
        finished: Nodes that hold the finished models of all walks.
        unfinished: Nodes that do not.
        faults: Everything wrong, in words; nothing when all is well.
    """

    updates: int
    hops: int
    live: int
    kept: int
    taken: int
    lost: int
    doubled: int
    finished: int
    unfinished: int
    ended: list[int]
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
    newest = [_newest(nodes, lane) for lane in range(walks)]
    model = np.sum([counts[: len(nodes)] for _, counts in newest], axis=0)
    committed = np.array([node.tallies.get("updates", 0) for node in nodes])
    gap = model - committed
    finals = [
        [node.models[of] for node in nodes if (of := _name("final", lane)) in node.models] for lane in range(walks)
    ]
    finished = sum(all(_name("final", lane) in node.models for lane in range(walks)) for node in nodes)
    live = _live(nodes)
    faults = []
    lost, doubled = int(-gap[gap < 0].sum()), int(gap[gap > 0].sum())
    if lost or doubled:
        faults.append(f"{lost} updates lost, {doubled} doubled: models {model.tolist()}, nodes {committed.tolist()}")
    faults += [
        f"the newest model says {said} updates and counts {counts.sum()}"
        for said, counts in newest
        if said != counts.sum()
    ]
    expected = sum(not ended for ended in finals)
    if len(live) != expected and not (may_fork and len(live) >= expected):
        told = f", {finished} of {len(nodes)} nodes finished" if finished else ""
        faults.append(f"{len(live)} messages on their way, not {expected}{told}")
    if not may_fork and sum(live.values()) != len(live):
        faults.append(f"{sum(live.values())} copies of {len(live)} messages on their way")
    if any(len({counts.tobytes() for _, counts in ended}) > 1 for ended in finals):
        faults.append("nodes hold different finished models")
    total: dict[str, int] = {}
    for node in nodes:
        for name, value in node.tallies.items():
            total[name] = total.get(name, 0) + value
    return Findings(
        updates=sum(said for said, _ in newest),
        hops=total.get("hops", 0),
        live=len(live),
        kept=sum(len(node.messages) for node in nodes),
        taken=sum(node.tallies.get("taken", 0) for node in nodes),
        lost=lost,
        doubled=doubled,
        finished=finished,
        unfinished=len(nodes) - finished,
        ended=[ended[0][0] for ended in finals if ended],
        tallies=total,
        faults=faults,
    )


def ends() -> Callable[[Findings], bool]:
    """Return a test that is true of what is found in nodes that run, looked at again and again, once all is over.

    Nodes are read one after the other, and a message that changes hands meanwhile is seen with neither; but then one
    of them has taken something by the next look. A finished model on its way to a node that has it is still a message,
    and one that looks like any other from when the node has taken it until it has opened it.
    """
    before: list[int] = []

    def is_over(found: Findings) -> bool:
        quiet = found.unfinished == found.kept == 0 and before == [found.taken]
        before[:] = [found.taken]
        return quiet

    return is_over


def _name(kind: str, lane: int) -> str:
    return f"{kind} {lane}" if lane else kind


def _newest(nodes: Sequence[Remains], lane: int) -> tuple[int, Counts]:
    """Return the model of a walk that has had most updates, and how many it says they are."""
    kinds = {_name(kind, lane) for kind in ("checkpoint", "final", "end")}
    models = [model for node in nodes for kind, model in node.models.items() if kind in kinds]
    return max(models, key=lambda model: model[0], default=(0, np.zeros(len(nodes), dtype=np.int64)))


def holders(folder: Path, names: Sequence[str]) -> set[str]:
    """Return the nodes in whose keeping a message is that the next has not taken."""
    nodes = [_read(folder / name, name) for name in names]
    return {node.name for node in nodes if _live(nodes, of=node)}


def _read(folder: Path, name: str) -> Remains:
    if not (folder / "state" / "spool.db").exists():
        return Remains(name, {}, {}, [], {})
    # Not read-only: a node that was killed while it made its database left a journal to be undone.
    database = sqlite3.connect(f"file:{folder / 'state' / 'spool.db'}?mode=rw", uri=True, timeout=30)
    try:
        messages = [
            (digest, peer, key, end_lane is not None)
            for digest, peer, key, end_lane in database.execute(
                "SELECT digest, peer, key, end_lane FROM message JOIN body ON body.id = body"
            )
        ]
        models = {}
        query = "SELECT kind, lane, file, bytes, iteration FROM model JOIN body ON body.id = body WHERE kind != 'state'"
        for kind, lane, file, inline, iteration in database.execute(query):
            data = inline if file is None else (folder / "state" / "messages" / file).read_bytes()
            models[_name(kind, lane)] = (iteration, np.frombuffer(data, dtype="<i8"))
        return Remains(
            name,
            dict(database.execute("SELECT name, value FROM tally")),
            dict(database.execute("SELECT peer, taken FROM link")),
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
        for digest, peer, key, is_end in node.messages:
            keys = b"" if peer is None else taken[peer].get(node.name, b"")
            handed_over = key in {keys[at : at + 16] for at in range(0, len(keys), 16)}
            if not is_end and not handed_over:
                live[digest] = live.get(digest, 0) + 1
    return live
