"""Somebody who speaks the protocol by hand, in the name of a member: for tests of what a node answers."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np

from veilwalk.node.link import Ack, Connection, Go, Hello, Offer, dial, dialing_context
from veilwalk.node.members import NodeKeys
from veilwalk.node.peer._ends import sign_end
from veilwalk.node.sealing import seal
from veilwalk.node.spool import SignedEnd


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


def end_of(model: bytes, iteration: int, *, lane: int = 0, signatures: bytes = b"") -> SignedEnd:
    """The end of a lane, with its digest."""
    digest = hashlib.sha256(model).digest()
    return SignedEnd(lane=lane, model=model, digest=digest, iteration=iteration, signatures=signatures)


def forged_final(net: Any, goal: str, by: str, counts: list[float], iteration: int = 400) -> bytes:
    """A finished model that the members in ``by``, named with spaces between them, sign; sealed for ``goal``."""
    model = np.array(counts).tobytes()
    run, end = net.parts["n0"].membership.manifest.run_id, end_of(model, iteration)
    signatures = b"".join(sign_end(net.keys[one], run, end) for one in by.split())
    body = np.frombuffer(model + signatures).tolist()
    return message_for(net, goal, counts=body, iteration=iteration, final=True, walk_tag=bytes(8))


def garbage(net: Any, node: str) -> bytes:
    """A message that nobody can open."""
    clear: bytes = next(iter(net.nodes[node].scheduler.custody.opener._clear))
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


def key(number: int) -> bytes:
    """An idempotency key for a test."""
    return number.to_bytes(16, "big")


def ack(number: int) -> Ack:
    """The answer to what was taken under that key."""
    return Ack(key(number))


async def offer(connection: Connection, number: int, message: bytes) -> Any:
    await connection.send(Offer(key(number), len(message), hashlib.sha256(message).digest()), message)
    held = await connection.receive(5)
    if not isinstance(held, Ack):
        return held
    await connection.send(Go(key(number)))
    return await connection.receive(5)


async def hand_in(net: Any, goal: str, message: bytes) -> None:
    """Hand a message to the node it is for, as if nobody had: no neighbour's quota is used up by it."""
    scheduler, fresh = net.nodes[goal].scheduler, os.urandom(16)
    digest = hashlib.sha256(message).digest()
    await scheduler.store(scheduler.custody.hold, "nobody", fresh, digest, message)
    await scheduler.take("nobody", fresh)
