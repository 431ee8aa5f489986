"""A whole hop of a real node beside the parts it cannot do without, measured in one run.

A message of a given size walks round a ring of node processes: TLS, digest, trial opening, commit to disk,
acknowledgement. Beside it, on the same machine and between the rounds: the same bytes over a bare asyncio TLS
connection to another process and back an answer of a few bytes; the same bytes written to a file and synced; one trial
opening and one digest. A hop should cost at most 1.5 times their sum. All are means, over the same minute, so that what
else the machine does weighs on both sides alike; where the system lets it, the benchmark takes precedence (SCHED_FIFO).

    python -m benchmarks.speed.node
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

from benchmarks.reliability.chaos import ChaosCluster
from veilwalk.node.cluster._files import free_ports
from veilwalk.node.link._connection import dialing_context, listening_context
from veilwalk.node.members._keys import NodeKeys, load_node_keys, load_root_public_key
from veilwalk.node.members._manifest import load_manifest
from veilwalk.node.members._roster import read_signed_roster
from veilwalk.node.peer._config import load_config
from veilwalk.node.peer._membership import Membership
from veilwalk.node.peer._status import node_status

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
    options = parser.parse_args()
    precedence = "yes" if take_precedence() else "no"
    print(f"precedence over other programs: {precedence}; means of {options.rounds} rounds, ratio: median (range)")
    print(f"{'size':>8} {'hop ms':>8} {'hops/s':>7} {'MB/s':>6} | {'TLS ms':>7} {'fsync':>6} {'CPU':>6} | ratio")
    for name in options.sizes.split(","):
        found, size = measure(SIZES[name], seconds=options.seconds, rounds=options.rounds)
        mean = {part: statistics.mean(values) for part, values in found.items()}
        parts = zip(found["tls"], found["fsync"], found["cpu"], strict=True)
        ratios = sorted(hop / sum(alone) for hop, alone in zip(found["hop"], parts, strict=True))
        whole = f"{1e3 * mean['hop']:8.2f} {1 / mean['hop']:7.0f} {size / mean['hop'] / 1e6:6.1f}"
        alone = f"{1e3 * mean['tls']:7.2f} {1e3 * mean['fsync']:6.2f} {1e3 * mean['cpu']:6.2f}"
        ratio = f"{statistics.median(ratios):5.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        limit = max(("TLS", mean["tls"]), ("disk", mean["fsync"]), ("CPU", mean["cpu"]), key=lambda part: part[1])[0]
        print(f"{name:>8} {whole} | {alone} | {ratio}, limited by {limit}", flush=True)


def take_precedence() -> bool:
    """Let this process, and all it starts, go before ordinary ones; return whether the system allows it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True


def measure(size: int, *, seconds: float, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Return seconds of a hop and of its parts in every round, and the bytes of a message."""
    folder = Path(tempfile.mkdtemp(prefix="veilwalk-bench-", dir=Path.cwd() / "out" if Path("out").exists() else None))
    try:
        padding = max(0, (size - 4096) // 8)
        with ChaosCluster(folder, f"ring:{RING}", updates=10**9, distance=RING // 2, padding=padding) as cluster:
            found: dict[str, list[float]] = {"hop": [], "tls": [], "fsync": [], "cpu": []}
            keys, membership = _secrets(folder)
            size = membership.roster.seal_context(membership.manifest).message_bytes
            for _ in range(rounds):
                found["tls"].append(tls_echo(keys, membership, size))
                found["fsync"].append(_mean(lambda: _fsync(folder / "bare", os.urandom(size))))
                found["cpu"].append(_cpu(keys, membership, size))
                found["hop"].append(hops(cluster, seconds))
        return found, size
    finally:
        shutil.rmtree(folder)


def hops(cluster: ChaosCluster, seconds: float) -> float:
    """Let the message walk for a while and return the seconds of one hop."""
    cluster.start_all()
    total = _hops_counted(cluster)
    end = time.monotonic() + 60
    while _hops_counted(cluster) < total + 8 * RING and time.monotonic() < end:
        time.sleep(0.05)
    first, begin = _hops_counted(cluster), time.perf_counter()
    time.sleep(seconds)
    last, took = _hops_counted(cluster), time.perf_counter() - begin
    cluster.stop_all()
    return took / max(last - first, 1)


def tls_echo(keys: list[NodeKeys], membership: Membership, size: int) -> float:
    """Return the seconds that ``size`` bytes and an answer take over bare asyncio TLS, to another process."""
    (port,) = free_ports(1)
    server_context = listening_context(keys[0], membership.roster.trust_anchors([keys[1].id]))
    client_context = dialing_context(keys[1], membership.roster.trust_anchors([keys[0].id]))
    server = multiprocessing.get_context("fork").Process(target=_echo_server, args=(server_context, port, size))
    server.start()
    try:
        return asyncio.run(_echo_client(client_context, port, size))
    finally:
        server.kill()
        server.join()


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


async def _echo_client(context: ssl.SSLContext, port: int, size: int) -> float:
    for _ in range(200):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            break
        except OSError:
            await asyncio.sleep(0.02)
    body = os.urandom(size)
    times = []
    for _ in range(TIMES):
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
    roster = read_signed_roster(folder / "roster.json", root)
    membership = Membership(manifest=load_manifest(folder / "manifest.json", root), roster=roster)
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
