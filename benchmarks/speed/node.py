"""A whole hop of a real node beside the parts it cannot do without, measured in one run.

A message of a given size walks round a ring of node processes: TLS, digest, trial opening, commit to disk,
acknowledgement. Beside it, on the same machine and between the rounds: the same bytes over a bare asyncio TLS
connection to another process and back an answer of a few bytes; the same bytes written to a file and synced; one trial
opening and one digest. A hop should cost at most 1.5 times their sum. And a ring of as many bare processes that do only
that, for parts that are timed in a loop are never cold. All are means, over the same minute, so that what
else the machine does weighs on both sides alike; ``--precedence`` lets the benchmark go before it (SCHED_FIFO). On a
busy machine the processor time of a hop, over all nodes, beside that of its parts says more: it does not count waiting.

    python -m benchmarks.speed.node
    python -m benchmarks.speed.node --steps      (processor time of each step of storage)
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import shutil
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaigns.chaos import ChaosCluster

from benchmarks.speed._harness import take_precedence
from benchmarks.speed.bare_ring import bare_hop
from veilwalk.core.walk import SIMPLE
from veilwalk.node.cluster import free_ports
from veilwalk.node.link import dialing_context, listening_context
from veilwalk.node.members import Manifest, NodeKeys, Roster, load_node_keys, load_root_public_key
from veilwalk.node.peer import NextHop, OsDraws, load_config, node_status
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._membership import Membership
from veilwalk.node.sealing import Opener
from veilwalk.node.spool import FolderDisk, Spool

SIZES = {"64 KB": 64 << 10, "1 MiB": 1 << 20, "10 MiB": 10 << 20}
# Half way round it is 64 hops to the next update, which is not what is measured.
RING = 16
# How often each part is timed in a round.
TIMES = 40


def main() -> None:
    """Measure every size and print a table."""
    parser = argparse.ArgumentParser(description="A whole hop beside its unavoidable parts.")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each round of hops lasts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of " + ", ".join(SIZES))
    parser.add_argument("--steps", action="store_true", help="time the steps of storage instead")
    parser.add_argument(
        "--precedence", action="store_true", help="go before all other programs, which then stand still"
    )
    options = parser.parse_args()
    precedence = "yes" if options.precedence and take_precedence() else "no"
    if options.steps:
        for name in options.sizes.split(","):
            print(f"{name:>8} " + ", ".join(f"{step} {us:.0f}" for step, us in steps(SIZES[name]).items()) + " us")
        return
    print(f"precedence over other programs: {precedence}; means of {options.rounds} rounds, ratio: median (range)")
    columns = f"{'size':>8} {'hop ms':>8} {'hops/s':>7} {'MB/s':>6} | {'TLS ms':>7} {'fsync':>6} {'CPU':>6}"
    print(f"{columns} | ratio; busy; bare ring")
    for name in options.sizes.split(","):
        found, size = measure(SIZES[name], seconds=options.seconds, rounds=options.rounds)
        mean = {part: statistics.mean(values) for part, values in found.items()}
        parts = zip(found["tls"], found["fsync"], found["cpu"], strict=True)
        ratios = sorted(hop / sum(alone) for hop, alone in zip(found["hop"], parts, strict=True))
        whole = f"{1e3 * mean['hop']:8.2f} {1 / mean['hop']:7.0f} {size / mean['hop'] / 1e6:6.1f}"
        alone = f"{1e3 * mean['tls']:7.2f} {1e3 * mean['fsync']:6.2f} {1e3 * mean['cpu']:6.2f}"
        ratio = f"{statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        limit = max(("TLS", mean["tls"]), ("disk", mean["fsync"]), ("CPU", mean["cpu"]), key=lambda part: part[1])[0]
        busy = sorted(hop / parts for hop, parts in zip(found["hop busy"], found["parts busy"], strict=True))
        busy_ms = f"{1e3 * mean['hop busy']:.2f} ms, {statistics.median(busy):.2f} ({busy[0]:.2f} to {busy[-1]:.2f})"
        bare = sorted(hop / ring for hop, ring in zip(found["hop"], found["ring"], strict=True))
        beside = f"{1e3 * mean['ring']:.2f} ms, {statistics.median(bare):.2f} ({bare[0]:.2f} to {bare[-1]:.2f})"
        print(f"{name:>8} {whole} | {alone} | {ratio}, limited by {limit}; {busy_ms}; {beside}", flush=True)


def measure(size: int, *, seconds: float, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Return seconds of a hop and of its parts in every round, and the bytes of a message."""
    folder = Path(tempfile.mkdtemp(prefix="veilwalk-bench-", dir=Path.cwd() / "out" if Path("out").exists() else None))
    try:
        padding = max(0, (size - 4096) // 8)
        with ChaosCluster(folder, f"ring:{RING}", updates=10**9, distance=RING // 2, padding=padding) as cluster:
            columns = ("hop", "tls", "fsync", "cpu", "hop busy", "parts busy", "ring")
            found: dict[str, list[float]] = {column: [] for column in columns}
            keys, membership = _secrets(folder)
            size = membership.roster.seal_context(membership.manifest).message_bytes
            body = os.urandom(size)
            for _ in range(rounds):
                found["tls"].append(tls_echo(keys, membership, size))
                begun = time.process_time()
                found["fsync"].append(_mean(lambda: _fsync(folder / "bare", body)))
                found["cpu"].append(_cpu(keys, membership, size))
                busy = (time.process_time() - begun) / TIMES
                found["parts busy"].append(busy + _echo_busy(keys, membership, size))
                tls = _contexts(keys, membership)
                ring = bare_hop(tls, membership, keys[0], folder=folder, size=size, processes=RING, seconds=seconds)
                found["ring"].append(ring)
                took, busy = hops(cluster, seconds)
                found["hop"].append(took)
                found["hop busy"].append(busy)
        return found, size
    finally:
        shutil.rmtree(folder)


def hops(cluster: ChaosCluster, seconds: float) -> tuple[float, float]:
    """Let the message walk for a while and return the seconds of one hop, and those of all processors in it."""
    cluster.start_all()
    total = _hops_counted(cluster)
    begun = time.monotonic()
    # Where they are quick, until every node has wiped its log once: from then on it is written over, and grows no more.
    for rounds, patience_s in ((8, 60), (64, 10)):
        while _hops_counted(cluster) < total + rounds * RING and time.monotonic() < begun + patience_s:
            time.sleep(0.05)
    first, begin, busy = _hops_counted(cluster), time.perf_counter(), _busy_seconds(cluster)
    time.sleep(seconds)
    last, took = _hops_counted(cluster), time.perf_counter() - begin
    busy = _busy_seconds(cluster) - busy
    cluster.stop_all()
    return took / max(last - first, 1), busy / max(last - first, 1)


def _own_seconds() -> float:
    """Return the processor time of this process and of those it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds(cluster: ChaosCluster) -> float:
    """Return the processor time of all nodes."""
    ticks = 0
    for pid in cluster.pids.values():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def steps(size: int, times: int = 300) -> dict[str, float]:
    """Return the processor time of each step of storage of a relayed message, in microseconds (medians)."""
    folder = Path(tempfile.mkdtemp(prefix="veilwalk-bench-"))
    custody = Custody(
        Spool(FolderDisk(folder)),
        opener=Opener([], accepted=[]),
        next_hop=NextHop(walk=SIMPLE, neighbours=("b", "c")),
        draws=OsDraws(),
        quota=4,
    )
    custody.opener.is_current = lambda message: True  # type: ignore[method-assign]  # noqa: ARG005
    found: dict[str, list[float]] = {}

    def timed(step: str, work: Callable[..., Any], *values: Any) -> Any:
        begin = time.thread_time()
        result = work(*values)
        found.setdefault(step, []).append(time.thread_time() - begin)
        return result

    try:
        for seq in range(1, times + 1):
            body = os.urandom(size)
            digest = timed("digest", lambda: hashlib.sha256(body).digest())  # noqa: B023  called at once
            key = seq.to_bytes(16, "big")
            timed("hold", custody.hold, "a", key, digest, body)
            taken = timed("take", custody.take, "a", key).row
            row = timed("pin", custody.pin, taken.id)
            timed("read", custody.outgoing, row.peer)
            timed("give", custody.give, row.peer, row.key)
            timed("let go", custody.deliver, row.peer, row.key)
        return {step: 1e6 * statistics.median(values) for step, values in found.items()}
    finally:
        custody.spool.close()
        shutil.rmtree(folder)


def _echo_busy(keys: list[NodeKeys], membership: Membership, size: int) -> float:
    """Return the processor time of both ends of an echo: what more of them take more."""
    marks = [_own_seconds()]
    for times in (TIMES, 6 * TIMES):
        tls_echo(keys, membership, size, times)
        marks.append(_own_seconds())
    few, many = marks[1] - marks[0], marks[2] - marks[1]
    return (many - few) / (5 * TIMES)


def tls_echo(keys: list[NodeKeys], membership: Membership, size: int, times: int = TIMES) -> float:
    """Return the seconds that ``size`` bytes and an answer take over bare asyncio TLS, to another process."""
    (port,) = free_ports(1)
    server_context, client_context = _contexts(keys, membership)
    server = multiprocessing.get_context("fork").Process(target=_echo_server, args=(server_context, port, size))
    server.start()
    try:
        return asyncio.run(_echo_client(client_context, port, size, times))
    finally:
        server.kill()
        server.join()


def _contexts(keys: list[NodeKeys], membership: Membership) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return TLS of who listens and of who dials."""
    return (
        listening_context(keys[0], membership.roster.trust_anchors([keys[1].id])),
        dialing_context(keys[1], membership.roster.trust_anchors([keys[0].id])),
    )


class _Sink(asyncio.BufferedProtocol):
    """Answers every ``size`` bytes with eight."""

    def __init__(self, size: int) -> None:
        self._buffer, self._have = memoryview(bytearray(size)), 0

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        del sizehint
        return self._buffer[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        """Answer when a message is complete."""
        self._have += nbytes
        if self._have == len(self._buffer):
            self._have = 0
            self._transport.write(bytes(8))


def _echo_server(context: ssl.SSLContext, port: int, size: int) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Sink(size), "127.0.0.1", port, ssl=context)
        await server.serve_forever()

    asyncio.run(serve())


async def _echo_client(context: ssl.SSLContext, port: int, size: int, count: int) -> float:
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            break
        except OSError:
            await asyncio.sleep(0.02)
    body = os.urandom(size)
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        writer.write(body)
        await writer.drain()
        await reader.readexactly(8)
        times.append(time.perf_counter() - begin)
    writer.transport.abort()
    return statistics.mean(times)


def _fsync(path: Path, body: bytes) -> float:
    begin = time.perf_counter()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(handle, body)
    os.fsync(handle)
    os.close(handle)
    return time.perf_counter() - begin


def _cpu(keys: list[NodeKeys], membership: Membership, size: int) -> float:
    """Seconds of one trial opening that fails and one digest."""
    opener = membership.opener(keys[0])
    message = membership.roster.seal_context(membership.manifest).clear + os.urandom(size - 4)

    def once() -> float:
        begin = time.perf_counter()
        opener.open(message)
        hashlib.sha256(message).digest()
        return time.perf_counter() - begin

    return _mean(once)


def _mean(once: Callable[[], float]) -> float:
    return statistics.mean(once() for _ in range(TIMES))


def _secrets(folder: Path) -> tuple[list[NodeKeys], Membership]:
    root = load_root_public_key(folder / "root" / "root.pub")
    roster = Roster.read_signed(folder / "roster.json", root)
    membership = Membership(manifest=Manifest.load(folder / "manifest.json", root), roster=roster)
    return [load_node_keys(folder / name / "keys") for name in roster.ids[:2]], membership


def _hops_counted(cluster: ChaosCluster) -> int:
    total = 0
    for name in cluster.names:
        try:
            total += node_status(load_config(cluster.folder / name / "node.toml").state).tallies.get("hops", 0)
        except OSError:
            continue
    return total


if __name__ == "__main__":
    main()
