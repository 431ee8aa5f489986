"""A node's custody by itself, with messages whose first bytes say for whom they are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

from veilwalk.core.walk import SIMPLE
from veilwalk.node.peer import NextHop, OsDraws
from veilwalk.node.peer._custody import Custody
from veilwalk.node.sealing import Header
from veilwalk.node.spool import FolderDisk, Row, Spool, Taken, Verdict

NEIGHBOURS = ("a", "b", "c")
HEADER = Header(update_id=b"u" * 16, walk_tag=b"w" * 8, iteration=1, body_length=3)


class Opener:
    """Opens messages that begin with ``mine``; the id is what follows."""

    oldest_epoch = 7

    def is_current(self, message: Any) -> bool:
        """Return whether the message is not marked as old."""
        return not bytes(message).startswith(b"old")

    def open(self, message: Any) -> Any:
        """Return a header, or None."""
        if not bytes(message).startswith(b"mine"):
            return None

        class Opened:
            header = Header(update_id=bytes(message)[4:20], walk_tag=b"w" * 8, iteration=1, body_length=3)

        return Opened


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def open_custody(folder: Path, inline_bytes: int = 0, *, quota: int = 4) -> Custody:
    return Custody(
        Spool(FolderDisk(folder), inline_bytes=inline_bytes),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=NEIGHBOURS),
        draws=OsDraws(),
        quota=quota,
    )


def key(number: int) -> bytes:
    """An idempotency key for a test."""
    return number.to_bytes(16, "big")


def take(custody: Custody, number: int, body: bytes, peer: str = "a") -> Any:
    """What becomes of a message that is offered and, where it is held, given."""
    held = custody.hold(peer, key(number), digest(body), body)
    return custody.take(peer, key(number)) if held in {Verdict.HELD, Verdict.AGAIN} else Taken(held)


def relay(custody: Custody, number: int, body: bytes, peer: str = "a") -> Row:
    """A message that was taken and pinned to its next hop."""
    row = custody.pin(take(custody, number, body, peer).row.id)
    assert row is not None
    return row


def give(custody: Custody, row: Row) -> bool:
    """Give a pinned message to its next hop."""
    return custody.give(str(row.peer), row.key or b"")


def deliver(custody: Custody, row: Row) -> None:
    """Give a pinned message, and hear that it was taken."""
    give(custody, row)
    custody.deliver(str(row.peer), row.key or b"")
