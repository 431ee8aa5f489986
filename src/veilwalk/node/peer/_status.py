"""Reads the status and the model in a node's folder, and gives orders there: drain, unfinish."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilwalk.core.errors import ConfigError, SpoolError
from veilwalk.core.files import is_locked, name_os_errors
from veilwalk.node.members import Manifest, Roster, decode_params, load_root_public_key
from veilwalk.node.peer._assemble import learner_of, public_test
from veilwalk.node.peer._config import NodeConfig, load_config
from veilwalk.node.peer._membership import read_accepted
from veilwalk.node.peer._observe import read_neighbours
from veilwalk.node.peer._routing import members_left_out
from veilwalk.node.spool import (
    MESSAGES,
    FolderDisk,
    Register,
    Spool,
    StoredModel,
    open_read_only,
)

if TYPE_CHECKING:
    from veilwalk.learning import Params

#: File in the state that tells a running node to drain.
DRAIN_ORDER = "drain"
_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One look at a node's folder.

    Attributes:
        finished: Whether the node has the finished model.
        in_custody: Messages it holds or is handing on.
        tallies: What it has counted.
        roster_version: Version of the roster it works under; 0 before it first started, or when not asked for.
        manifest_version: Version of the manifest, likewise.
        members_left_out: Members of that roster that the run's law, a file, does not name: nobody seals for them.
        iteration: Updates that the newest model this node holds has had; of several walks, all together.
        walks: The same for each of the run's walks.
        ends: SHA-256 of the finished model of each walk that has ended, hexadecimal.
        undone: SHA-256 of finished models that the operator has undone.
        updates: So many updates the manifest asks for; 0 as above.
        neighbours: What each neighbour did lately, when the node last looked (:func:`.read_neighbours`).
        models: The newest model of each walk that this node has one of, encoded; none where they were not asked for.
    """

    finished: bool
    in_custody: int
    tallies: dict[str, int]
    roster_version: int = 0
    manifest_version: int = 0
    members_left_out: tuple[str, ...] = ()
    iteration: int = 0
    walks: tuple[int, ...] = (0,)
    ends: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    updates: int = 0
    neighbours: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: tuple[bytes, ...] = ()


def node_status(state: Path, *, with_models: bool = False, with_versions: bool = False) -> NodeStatus:
    """Return the status of the node whose state folder this is; what takes longer to read only where asked for."""
    roster, manifest = (read_accepted(Roster, state), read_accepted(Manifest, state)) if with_versions else (None, None)
    try:
        database = open_read_only(state)
        try:
            register = Register(database)
            runs, last = register.walks_of_run, (register.rounds_of_run - 1) * register.walks_of_run
            newest = [register.newest(walk) for walk in range(runs)]
            ends = [model for model in newest if model is not None and model.kind == "final" and model.lane >= last]
            walks = tuple(0 if model is None else model.iteration for model in newest)
            return NodeStatus(
                finished=register.is_finished(),
                iteration=sum(walks),
                walks=walks,
                ends=tuple(model.digest.hex() for model in ends),
                undone=tuple(digest.hex() for lane in range(last + runs) for digest in register.undone_ends(lane)),
                updates=0 if manifest is None else manifest.rules.updates,
                neighbours=read_neighbours(state),
                in_custody=len(register.messages()),
                tallies=register.tallies(),
                roster_version=0 if roster is None else roster.version,
                manifest_version=0 if manifest is None else manifest.version,
                members_left_out=members_left_out(state, manifest, roster),
                models=tuple(_read_model(register, model, state) for model in newest if model and with_models),
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
            oldest = (register.round - 1) * register.walks_of_run
            lanes = [lane for lane in register.lanes("final") if lane >= oldest]
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


def _read_model(register: Register, stored: StoredModel, state: Path) -> bytes:
    data = register.inline(stored) if stored.file is None else (state / MESSAGES / stored.file).read_bytes()
    if hashlib.sha256(data).digest() != stored.digest:
        raise SpoolError(f"{state}: the stored model is damaged")
    return data


# ---- drain ----------------------------------------------------------------------------------------------------------


def is_running(state: Path) -> bool:
    """Return whether a node runs with this state folder."""
    with name_os_errors(SpoolError, state):
        return is_locked(state / "lock")


def drain_node(state: Path, *, timeout_s: float, tell: Callable[[int], None]) -> bool:
    """Tell the node of this folder to drain and wait until it has stopped; return whether it has in that time.

    One that has not goes on handing out, and stops when it is done.
    """
    with name_os_errors(SpoolError, state):
        if is_running(state):
            (state / DRAIN_ORDER).touch(mode=0o600)
    end = time.monotonic() + timeout_s
    while is_running(state):
        if time.monotonic() > end:
            return False
        tell(node_status(state).in_custody)
        time.sleep(_POLL_S)
    return True


# ---- model -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeModel:
    """A model that a node hands out.

    Attributes:
        params: Named arrays.
        learner: The learner's spec.
        remark: Which of several walks it is, and why; empty where there was one.
        ends: SHA-256 of the finished model of each walk, hexadecimal: members compare them.
    """

    params: Params
    learner: str
    remark: str = ""
    ends: tuple[str, ...] = ()


def node_model(path: Path, *, unfinished: bool = False) -> NodeModel:
    """Return the finished model of the node whose ``node.toml`` this is.

    Of several walks it is the best of their ends and their mean, by the loss on the run's public test set. Without such
    a set it is the end of the first walk: the mean of networks may be worse than each of them.

    Args:
        path: ``node.toml``; or a folder of a cluster, whose first node that has the finished model is asked.
        unfinished: Before the end, take the newest model that a node has trained itself.

    Raises:
        ConfigError: There is no such model yet.
    """
    configs = [path] if path.is_file() else sorted(path.glob("*/node.toml"))
    newest = _find_newest(configs)
    if newest is None or newest[1].iteration == 0:
        raise ConfigError(f"{path}: no model yet")
    chosen, status = newest
    if not status.finished and not unfinished:
        need = "wait for the end, or ask for the unfinished model (--unfinished)"
        raise ConfigError(f"{path}: not finished, its newest model has had {status.iteration} updates: {need}")
    config = load_config(chosen)
    manifest = Manifest.read_signed(config.manifest, load_root_public_key(config.root))
    models = [decode_params(manifest, model) for model in node_status(config.state, with_models=True).models]
    if not models:
        raise SpoolError(f"{config.state}: the model went away meanwhile")
    return replace(_choose_model(models, config, manifest), ends=status.ends)


def _choose_model(models: Sequence[Params], config: NodeConfig, manifest: Manifest) -> NodeModel:
    """Return which model of several walks a node hands out."""
    from veilwalk.learning import MEAN, choose_model

    spec = manifest.learner
    if len(models) == 1:
        return NodeModel(params=models[0], learner=spec)
    test = public_test(config, manifest, manifest.rules)
    if test is None:
        remark = f"the first of {len(models)} walks: no public test set says whether their mean is better"
        return NodeModel(params=models[0], learner=spec, remark=remark)
    learner = learner_of(manifest, consent=config.learner)
    name, params = choose_model(models, lambda model: learner.evaluate(model, test))
    chosen = "their mean" if name == MEAN else name
    remark = f"of {len(models)} walks and their mean, {chosen} has the least loss on the public test set"
    return NodeModel(params=params, learner=spec, remark=remark)


def _find_newest(configs: Sequence[Path]) -> tuple[Path, NodeStatus] | None:
    """Return who has the finished model, or without one the model with most updates."""
    statuses: dict[Path, NodeStatus] = {}
    for config in configs:
        try:
            statuses[config] = node_status(load_config(config).state)
        except SpoolError:
            if len(configs) == 1:
                raise
    return max(statuses.items(), key=lambda item: (item[1].finished, item[1].iteration), default=None)
