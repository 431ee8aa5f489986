"""Where the time of a hop goes: the moments of every step on its way, and the floor under them.

A message walks round a ring of node processes that note when each step begins (one clock for all processes); printed
are the medians since the message's first byte left, of the hop's two nodes. Beside it the floor: two processes with
nothing but asyncio, TLS and SQLite that do what a hop must, one after the other: the message and an answer of nine
bytes, nine bytes and an answer, and in between one synced commit of the message.

    python -m benchmarks.speed.hop --precedence
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.campaigns.chaos import ChaosCluster

from benchmarks.speed._harness import take_precedence
from benchmarks.speed.node import RING, SIZES, TIMES, _secrets, hops, tls_echo

STAMPS = "stamps.json"


def main() -> None:
    """Print the steps of a hop, and the floor."""
    parser = argparse.ArgumentParser(description="Where the time of a hop goes.")
    parser.add_argument("--size", default="64 KB", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--precedence", action="store_true", help="go before all other programs")
    options = parser.parse_args()
    if options.precedence:
        take_precedence()
    size = SIZES[options.size]
    with tempfile.TemporaryDirectory(prefix="veilwalk-hop-", dir=Path.cwd()) as name:
        folder = Path(name)
        padding = max(0, (size - 4096) // 8)
        plan: dict[str, Any] = {"updates": 10**9, "distance": RING // 2, "padding": padding}
        with ChaosCluster(folder, f"ring:{RING}", mutant="stamps", **plan) as cluster:
            took, _ = hops(cluster, options.seconds)
            keys, membership = _secrets(folder)
            first = [tls_echo(keys, membership, length) for length in (size, 9)]
            commit = _commit(folder / "floor.db", os.urandom(size))
        print(f"{options.size}: a hop takes {1e3 * took:.2f} ms (mean)")
        echoes = " + ".join(f"{1e3 * part:.2f}" for part in (*first, commit))
        print(f"floor: message and answer + GO and answer + synced commit = {echoes} ms (means)")
        for step, at in steps(folder):
            print(f"{at:8.2f} ms  {step}")


def steps(folder: Path) -> list[tuple[str, float]]:
    """Return what happened in a hop and when, in milliseconds since it began (medians), in that order."""
    events = sorted(event for path in folder.glob(f"*/{STAMPS}") for event in map(tuple, json.loads(path.read_text())))
    begun = [place for place, (_, _, what) in enumerate(events) if what == "sends Offer"]
    found: dict[str, list[float]] = defaultdict(list)
    for here, there in itertools.pairwise(begun[RING:]):
        (start, sender, _), (_, receiver, _) = events[here], events[there]
        seen: dict[str, float] = {}
        for at, pid, what in events[here : there + 1]:
            who = {sender: "sender", receiver: "receiver"}.get(pid)
            if who is not None and sender != receiver:
                seen.setdefault(f"{who} {what}", 1e3 * (at - start))
        for what, after in seen.items():
            found[what].append(after)
    often = max(map(len, found.values()), default=0) * 0.7
    medians = [(what, statistics.median(values)) for what, values in found.items() if len(values) > often]
    return sorted(medians, key=lambda step: step[1])


def install() -> None:
    """Let every node of this process note when it does what; written beside its configuration when it stops."""
    from veilwalk.node.link._connection import Connection
    from veilwalk.node.link._wire import Wire
    from veilwalk.node.peer import Node
    from veilwalk.node.peer._custody import Custody

    events: list[tuple[float, int, str]] = []

    def note(what: str) -> None:
        events.append((time.perf_counter(), os.getpid(), what))

    def noting(owner: Any, name: str, before: Any = None, after: Any = None) -> None:
        original = getattr(owner, name)

        def noted(self: Any, *values: Any) -> Any:
            if before is not None:
                note(before(*values))
            result = original(self, *values)
            if after is not None and after(result):
                note(after(result))
            return result

        setattr(owner, name, noted)

    noting(Connection, "send", lambda frame, *_: f"sends {type(frame).__name__}")
    noting(Wire, "following", after=lambda frame: frame and f"has {type(frame).__name__}")
    noting(Custody, "hold", after=lambda _: "holds it")
    noting(Custody, "take", after=lambda _: "has it on disk")
    noting(Custody, "pin", after=lambda _: "has drawn its next hop")
    noting(Custody, "deliver", after=lambda _: "has let it go")
    shut_down = Node._shut_down  # noqa: SLF001  the end of a node

    async def end(self: Any) -> None:
        path = Path(self.scheduler.custody.spool._disk._files).parents[1] / STAMPS  # noqa: SLF001
        path.write_text(json.dumps(events))
        await shut_down(self)

    Node._shut_down = end  # type: ignore[method-assign]  # noqa: SLF001


def _commit(path: Path, body: bytes) -> float:
    """Return the seconds of one commit of a message, synced as a node's."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "CREATE TABLE message (bytes BLOB)"):
        database.execute(statement)
    begin = time.perf_counter()
    for _ in range(TIMES):
        database.execute("INSERT INTO message VALUES (?)", (body,))
    took = (time.perf_counter() - begin) / TIMES
    database.close()
    return took


if __name__ == "__main__":
    main()
