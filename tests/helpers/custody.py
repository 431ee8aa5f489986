"""A node's custody by itself, with messages whose first bytes say for whom they are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

from veilwalk.core.walk import SIMPLE
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._draws import OsDraws
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.sealing._envelope import Header
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._handover import Taken, Verdict
from veilwalk.node.spool._spool import Spool

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


def open_custody(folder: Path, inline_bytes: int = 0, *, dwells: bool = False, quota: int = 4) -> Custody:
    return Custody(
        Spool(FolderDisk(folder), inline_bytes=inline_bytes),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=NEIGHBOURS),
        draws=OsDraws(),
        quota=quota,
        dwells=dwells,
    )


def take(custody: Custody, seq: int, body: bytes, peer: str = "a") -> Any:
    """What becomes of a message that is offered and, where it is held, given."""
    held = custody.hold(peer, seq, digest(body), body)
    return custody.take(peer, seq) if held in {Verdict.HELD, Verdict.AGAIN} else Taken(held)
