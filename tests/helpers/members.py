"""Somebody who speaks the protocol by hand, in the name of a member: for tests of what a node answers."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np

from veilwalk.node.link._connection import Connection, dial, dialing_context
from veilwalk.node.link._wire import Ack, Go, Hello, Offer
from veilwalk.node.members._keys import NodeKeys
from veilwalk.node.peer._ends import vouch
from veilwalk.node.sealing._envelope import seal


async def greet(
    net: Any, name: str, peer: str, keys: NodeKeys | None = None, *, incarnation: bytes = b"incarnat"
) -> Connection:
    """A connection to ``peer`` in the name of ``name``, as far as offering messages."""
    context = dialing_context(keys or net.keys[name], net.roster.trust_anchors([peer]))
    connection = await dial(net.roster.member(peer), context, message_bytes=size_of(net), timeout_s=5)
    await connection.send(net.parts[name].membership.hello(incarnation))
    assert isinstance(await connection.receive(5), Hello)
    return connection


def size_of(net: Any) -> int:
    membership = net.parts["n0"].membership
    return int(membership.roster.seal_context(membership.manifest).message_bytes)


def message_for(net: Any, goal: str, *, counts: list[float], iteration: int = 0, **options: Any) -> bytes:
    membership = net.parts["n0"].membership
    context = membership.roster.seal_context(membership.manifest)
    body = np.array(counts).tobytes()
    options = {"walk_tag": b"walktag1"} | options
    return seal(context, [membership.roster.kem_key(goal, 0)], iteration=iteration, body=body, **options)


def forged_final(net: Any, goal: str, by: str, counts: list[float], iteration: int = 400) -> bytes:
    """A finished model that ``by`` vouches for, sealed for ``goal``."""
    digest = hashlib.sha256(np.array(counts).tobytes()).digest()
    word = vouch(net.keys[by], net.parts[by].membership.manifest.run_id, iteration, digest)
    return message_for(net, goal, counts=counts, iteration=iteration, final=True, walk_tag=bytes(8), vouch=word)


def garbage(net: Any, node: str) -> bytes:
    """A message that nobody can open."""
    clear: bytes = next(iter(net.nodes[node].desk.custody.opener._clear))
    return clear + os.urandom(size_of(net) - len(clear))


def slow(task: Any, seconds: float) -> Any:
    """The task with a learner that takes so long."""

    class Slow:
        init_params, evaluate = task.learner.init_params, task.learner.evaluate

        def update(self, *values: Any) -> Any:
            """Wait, and update."""
            time.sleep(seconds)
            return task.learner.update(*values)

    return replace(task, learner=Slow())


async def offer(connection: Connection, seq: int, message: bytes) -> Any:
    await connection.send(Offer(seq, len(message), hashlib.sha256(message).digest()), message)
    held = await connection.receive(5)
    if not isinstance(held, Ack):
        return held
    await connection.send(Go(seq))
    return await connection.receive(5)


async def hand_in(net: Any, goal: str, message: bytes) -> None:
    """Hand a message to the node it is for, as if nobody had: no neighbour's quota is used up by it."""
    custody = net.nodes[goal].desk.custody

    def put() -> Any:
        with custody.spool.transaction() as register:
            return register.add_message(custody.spool.store(message), came_from=None)

    net.nodes[goal].desk._settle(await net.nodes[goal].desk.storage(put), for_us=True)


async def watched_releases(net: Any) -> tuple[Connection, dict[int, float]]:
    """Start n1 and n2; return a connection to n1 in the name of n0, who takes nothing, and when n1 released what."""
    await net.start("n1", "n2")
    await net.until(lambda: net.nodes["n1"].gone() == {"n0"})
    connection = await greet(net, "n0", "n1")
    released: dict[int, float] = {}

    def release(seq: int) -> None:
        released[seq] = time.monotonic()

    connection.on_release = release
    return connection, released
