"""What a node has done, read from its own folder, whether it runs or not. For its operator only."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node.spool import MESSAGES, Register, StoredModel, open_read_only


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One look at a node's folder.

    Attributes:
        finished: Whether the node has the finished model.
        iteration: Updates that the newest model this node holds has had.
        in_custody: Messages it holds or is handing on.
        tallies: What it has counted.
        model: The newest model, encoded; None before the first, or when not asked for.
    """

    finished: bool
    iteration: int
    in_custody: int
    tallies: dict[str, int]
    model: bytes | None = None


def node_status(state: Path, *, with_model: bool = False) -> NodeStatus:
    """Return the status of the node whose state folder this is."""
    try:
        database = open_read_only(state)
        try:
            register = Register(database)
            final, checkpoint = register.model("final"), register.model("checkpoint")
            newest = final or checkpoint
            return NodeStatus(
                finished=final is not None,
                iteration=0 if newest is None else newest.iteration,
                in_custody=len(register.messages()),
                tallies=register.tallies(),
                model=_model(register, newest, state) if with_model else None,
            )
        finally:
            database.close()
    except (sqlite3.Error, FileNotFoundError) as error:
        raise SpoolError(f"{state}: cannot be read ({error})") from error


def _model(register: Register, stored: StoredModel | None, state: Path) -> bytes | None:
    if stored is None:
        return None
    data = register.inline(stored) if stored.file is None else (state / MESSAGES / stored.file).read_bytes()
    if hashlib.sha256(data).digest() != stored.digest:
        raise SpoolError(f"{state}: the stored model is damaged")
    return data
