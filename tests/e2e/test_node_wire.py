"""A whole run with every byte recorded before TLS: nothing on a link says who made an update, how far, or when.

The recording is read by a parser of its own, written from the protocol's description.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import struct
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.helpers.manifests import FIGURES, settled_spec

from veilwalk.core.geometry import CLEAR_BYTES
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import load_data, make_learner, make_partitions, parse_partition_spec
from veilwalk.node import ClusterPlan, Node, load_config, node_status, prepare_cluster
from veilwalk.node.link._connection import Connection
from veilwalk.node.peer._assemble import assemble
from veilwalk.node.peer._observe import Log
from veilwalk.node.sealing import Bytes

UPDATES = 25
#: A time, a hash or an id; the line of a log that told when a model was trained would have one.
TELLING = re.compile(r"\d{5,}|[0-9a-f]{12,}")
assert TELLING.search(json.dumps({"event": "trained", "time": time.time()}))
LAYOUTS = {1: ">BBQ32sQ32s16s8s", 2: ">16sI32s", 3: ">16s", 4: ">16sB", 5: ">16s", 6: ">"}


@dataclass
class Recording:
    """What was sent: for each connection, by whom to whom, the bytes in order."""

    streams: dict[tuple[str, str, int], bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    logs: dict[str, io.StringIO] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    hops: int = 0
    updates: int = 0
    farewells: int = 0
    message_bytes: int = 0
    ids: tuple[str, ...] = ()
    secrets: list[bytes] = field(default_factory=list)

    def frames(self) -> list[tuple[tuple[str, str], int, tuple[Any, ...], bytes]]:
        """Every frame as (link, type, fields, message), by the description alone."""
        found = []
        for (sender, receiver, _), stream in self.streams.items():
            data = bytes(stream)
            at = 0
            while at < len(data):
                layout = struct.Struct(LAYOUTS[data[at]])
                fields = layout.unpack_from(data, at + 1)
                body = b""
                kind, at = data[at], at + 1 + layout.size
                if kind == 2:
                    body = data[at : at + fields[1]]
                    assert len(body) == fields[1]
                    at += fields[1]
                found.append(((sender, receiver), kind, fields, body))
        return found


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("wire")
    graph = parse_graph_spec("rrg:8:3:seed=4")
    data = load_data("digits", seed=1)
    plan = ClusterPlan(
        graph=graph,
        law=DistanceLaw(DistanceSupport(2, 2), np.ones(1)).place_on(graph),
        partitions=make_partitions(parse_partition_spec("iid", graph=graph, seed=1), data),
        learner=make_learner("softmax", n_features=data.n_features, n_classes=data.n_classes),
        n_classes=data.n_classes,
        spec=settled_spec(updates=UPDATES, seed=1),
        figures=FIGURES,
    )
    configs = prepare_cluster(folder, plan)
    found = Recording()
    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(_run(configs, found, patch))
    return found


async def _run(configs: list[Path], found: Recording, patch: pytest.MonkeyPatch) -> None:
    nodes: dict[str, Node] = {}
    for path in configs:
        log = io.StringIO()
        parts = assemble(load_config(path), log=Log(log))
        found.logs[parts.keys.id] = log
        nodes[parts.keys.id] = Node(parts)
        by_key = {member.tls_spki_sha256: member.id for member in parts.membership.roster.members}
        found.ids = parts.membership.roster.ids
        found.secrets += [member.tls_spki_sha256 for member in parts.membership.roster.members]
        found.secrets += [member.kem[0][:32] for member in parts.membership.roster.members]
        found.message_bytes = nodes[parts.keys.id].manifest.message_bytes
    _record(found, by_key, patch)
    stop = asyncio.Event()
    runs = [asyncio.create_task(node.run(stop)) for node in nodes.values()]
    end = time.monotonic() + 60
    while time.monotonic() < end:
        await asyncio.sleep(0.1)
        states = [node_status(load_config(path).state) for path in configs]
        if all(state.finished and not state.in_custody for state in states):
            break
    from veilwalk.node.peer._observe import HealthWatch, MetricsServer

    for path, node in zip(configs, nodes.values(), strict=True):
        watch, quiet = HealthWatch(node, load_config(path).state), Log(io.StringIO())
        await watch.beat()
        process: Any = SimpleNamespace(log=quiet, watch=watch, refused="")
        found.metrics.append(await MetricsServer(process)._metrics())
    stop.set()
    await asyncio.gather(*runs)
    for name in ("hops", "updates", "farewells"):
        setattr(found, name, sum(state.tallies.get(name, 0) for state in states))


def _record(found: Recording, by_key: dict[bytes, str], patch: pytest.MonkeyPatch) -> None:
    """Note whatever a node writes, with the receiver by its key and the sender by the other end of the socket."""
    write = Connection._write
    ports: dict[int, str] = {}

    def writing(self: Connection, *parts: Bytes) -> None:
        write(self, *parts)
        transport: Any = self._transport
        mine, theirs = transport.get_extra_info("sockname")[1], transport.get_extra_info("peername")[1]
        receiver = by_key[self.peer_spki]
        ports[theirs] = receiver
        found.streams[ports.get(mine, "?"), receiver, id(self)] += b"".join(parts)

    patch.setattr(Connection, "_write", writing)


def test_the_recording_is_complete(recording: Recording) -> None:
    """As many messages as the nodes counted, and everybody spoke."""
    offers = [frame for frame in recording.frames() if frame[1] == 2]
    assert recording.updates == UPDATES
    assert len(offers) == recording.hops + recording.farewells
    assert {link[1] for link, *_ in recording.frames()} == set(recording.ids)


def faults_of(frames: list[Any], *, message_bytes: int, legs: int) -> list[str]:
    """What a recording gives away."""
    offers = [frame for frame in frames if frame[1] == 2]
    bodies = [body for *_, body in offers]
    found = []
    if {len(body) for body in bodies} != {message_bytes}:
        found.append("lengths differ")
    if len({body[:CLEAR_BYTES] for body in bodies}) != 1:
        found.append("clear bytes differ")
    if len(set(bodies)) != legs:
        found.append("a ciphertext changes between two hops of one leg")
    counts = np.bincount(
        np.frombuffer(b"".join(body[CLEAR_BYTES:] for body in set(bodies)), dtype=np.uint8), minlength=256
    )
    if stats.chisquare(counts).pvalue < 1e-6:
        found.append("ciphertexts are not uniform")
    heads = Counter(body[CLEAR_BYTES : CLEAR_BYTES + 32] for body in set(bodies))
    if max(heads.values()) > 1:
        found.append("two ciphertexts begin alike")
    return found


def test_messages_are_alike_but_for_random_bytes(recording: Recording) -> None:
    """One length; a few clear bytes that never change; one ciphertext for each leg; uniform otherwise."""
    frames = recording.frames()
    legs = UPDATES + recording.farewells
    size = recording.message_bytes
    assert faults_of(frames, message_bytes=size, legs=legs) == []

    def mutant(change: Any) -> list[str]:
        changed = [
            (link, kind, fields, change(number, body) if kind == 2 else body)
            for number, (link, kind, fields, body) in enumerate(frames)
        ]
        return faults_of(changed, message_bytes=size, legs=legs)

    assert "clear bytes differ" in mutant(lambda number, body: body[:3] + bytes([number % 256]) + body[4:])
    assert "lengths differ" in mutant(lambda number, body: body[: size - int(2 * number > len(frames))])
    assert "a ciphertext changes between two hops of one leg" in mutant(
        lambda number, body: body[:-2] + number.to_bytes(2, "big")
    )
    assert "ciphertexts are not uniform" in mutant(
        lambda _, body: body[:CLEAR_BYTES] + bytes(500) + body[CLEAR_BYTES + 500 :]
    )
    assert "two ciphertexts begin alike" in mutant(
        lambda _, body: body[:CLEAR_BYTES] + b"n3".ljust(32) + body[CLEAR_BYTES + 32 :]
    )


def test_keys_are_random_and_of_one_message_on_one_link(recording: Recording) -> None:
    """Sixteen bytes that are drawn anew for every hop: they say nothing of a walk, and link no two messages."""
    keys = [fields[0] for _, kind, fields, _ in recording.frames() if kind == 2]
    assert len(keys) == len(set(keys)) > 16
    counts = np.bincount(np.frombuffer(b"".join(keys), dtype=np.uint8) >> 4, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-6
    # Numbers that count would not pass.
    counted = b"".join(number.to_bytes(16, "big") for number in range(len(keys)))
    assert stats.chisquare(np.bincount(np.frombuffer(counted, dtype=np.uint8) >> 4, minlength=16)).pvalue < 1e-6


def test_what_is_not_ciphertext_holds_no_name_key_or_time(recording: Recording) -> None:
    """HELLO, numbers, digests and answers: no member's name or key, and no number that could be a time."""
    now = time.time()
    alike, marks, clear = set(), defaultdict(set), b""
    for (sender, _), kind, fields, _ in recording.frames():
        for number in (part for part in fields if isinstance(part, int)):
            assert number < 1e6, "too large for a count: a time?"
        if kind != 1:
            continue
        *digests, mark = parts = [part for part in fields if isinstance(part, bytes)]
        alike.add(tuple(digests))
        if sender != "?":
            # A listener does not say who it is, and the recording does not know.
            marks[sender].add(mark)
        clear += b"".join(parts)
        for part in parts:
            for size, form in ((4, "I"), (8, "Q"), (8, "d")):
                for order in "<>":
                    values = [v for (v,) in struct.iter_unpack(order + form, part[: len(part) // size * size])]
                    assert not any(abs(value - now) < 3600 for value in values)
    # Digests and run are the same for all, and so name nobody; the rest is a mark that a disk has drawn once.
    assert len(alike) == 1
    assert all(len(drawn) == 1 and len(min(drawn)) == 8 for drawn in marks.values())
    assert len(set.union(*marks.values())) == len(marks) == len(recording.ids)
    for secret in recording.secrets:
        assert secret not in clear


def test_logs_and_metrics_tell_nothing_about_updates(recording: Recording) -> None:
    """No time, no ids, no counts of what a node did itself."""
    for log in recording.logs.values():
        # Of neighbours that are not there yet it says where they should be.
        text = re.sub(r"127\.0\.0\.1(:|', )\d+", "address", log.getvalue())
        assert {json.loads(line)["event"] for line in text.splitlines()} <= {
            "started",
            "stopped",
            "ended",
            "link_up",
            "link_down",
        }
        assert not TELLING.search(text)
    for metrics in recording.metrics:
        # Two counts of the day before are told, and nothing of this one.
        daily = [
            line
            for line in metrics.splitlines()
            if any(f"veilwalk_{name}" in line for name in ("dwell_overruns", "discarded"))
        ]
        assert {line.split()[-1] for line in daily if line[0] != "#"} <= {"0"}
        told = "\n".join(line for line in metrics.splitlines() if line not in daily)
        told = told.replace("veilwalk_roster_refused", "")
        assert not re.search(r"update|opened|train|turns|created|refused|duplicate|final|farewell", told)
        assert "veilwalk_hops_total" in metrics
