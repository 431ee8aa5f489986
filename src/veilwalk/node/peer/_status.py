"""What a node has done, read from its own folder, whether it runs or not. For its operator only."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from veilwalk.core.errors import SpoolError
from veilwalk.node.members import Manifest, Roster
from veilwalk.node.peer._law_files import members_left_out
from veilwalk.node.peer._membership import read_accepted
from veilwalk.node.spool import (
    MESSAGES,
    FolderDisk,
    Register,
    Spool,
    StoredModel,
    open_read_only,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One look at a node's folder.

    Attributes:
        finished: Whether the node has the finished model.
        iteration: Updates that the newest model this node holds has had; of several walks, all together.
        in_custody: Messages it holds or is handing on.
        tallies: What it has counted.
        roster_version: Version of the roster it works under; 0 before it first started, or when not asked for.
        manifest_version: Version of the manifest, likewise.
        members_left_out: Members of that roster that the run's law, a file, does not name: nobody seals for them.
        walks: The same for each of the run's walks.
        ends: SHA-256 of the finished model of each walk that has ended, hexadecimal.
        models: The newest model of each walk that this node has one of, encoded; none where they were not asked for.
    """

    finished: bool
    iteration: int
    in_custody: int
    tallies: dict[str, int]
    roster_version: int = 0
    manifest_version: int = 0
    members_left_out: tuple[str, ...] = ()
    walks: tuple[int, ...] = (0,)
    ends: tuple[str, ...] = ()
    models: tuple[bytes, ...] = ()


def node_status(state: Path, *, with_models: bool = False, with_versions: bool = False) -> NodeStatus:
    """Return the status of the node whose state folder this is; what takes longer to read only where asked for."""
    roster, manifest = (read_accepted(Roster, state), read_accepted(Manifest, state)) if with_versions else (None, None)
    try:
        database = open_read_only(state)
        try:
            register = Register(database)
            newest = [
                register.model("final", lane) or register.model("checkpoint", lane)
                for lane in range(register.walks_of_run)
            ]
            walks = tuple(0 if model is None else model.iteration for model in newest)
            return NodeStatus(
                finished=register.is_finished(),
                iteration=sum(walks),
                walks=walks,
                ends=tuple(model.digest.hex() for model in newest if model is not None and model.kind == "final"),
                in_custody=len(register.messages()),
                tallies=register.tallies(),
                roster_version=0 if roster is None else roster.version,
                manifest_version=0 if manifest is None else manifest.version,
                members_left_out=members_left_out(state, manifest, roster),
                models=tuple(_model(register, one, state) for one in newest if one is not None) if with_models else (),
            )
        finally:
            database.close()
    except (sqlite3.Error, FileNotFoundError) as error:
        raise SpoolError(f"{state}: cannot be read ({error})") from error


def unfinish_node(state: Path) -> bool:
    """Undo the end of the run at the node whose state folder this is, and which does not run; return whether it had.

    The node goes on from its own last model, and takes that finished one no more, whoever has signed it. Of several
    walks all ends are undone.

    Raises:
        SpoolError: The node runs, or its folder cannot be read.
    """
    # Refuses a folder in which no node has run, and leaves it as it is.
    open_read_only(state).close()
    spool = Spool(FolderDisk(state))
    try:
        with spool.transaction() as register:
            lanes = range(register.walks_of_run)
            finals = {lane: final for lane in lanes if (final := register.model("final", lane)) is not None}
            if not finals:
                return False
            for lane, final in finals.items():
                register.undo_end(final.digest, lane)
            for row in register.messages():
                if row.end_lane is not None:
                    register.drop(row)
        return True
    finally:
        spool.close()


def _model(register: Register, stored: StoredModel, state: Path) -> bytes:
    data = register.inline(stored) if stored.file is None else (state / MESSAGES / stored.file).read_bytes()
    if hashlib.sha256(data).digest() != stored.digest:
        raise SpoolError(f"{state}: the stored model is damaged")
    return data
