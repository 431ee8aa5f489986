"""Makes the parts of a node from its configuration: every file is read and checked before anything runs."""

from __future__ import annotations

import os
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError, SpoolError
from veilwalk.core.files import name_os_errors
from veilwalk.core.records import write_atomically
from veilwalk.node.link import Limits
from veilwalk.node.members import (
    KeyRing,
    Manifest,
    NodeKeys,
    Roster,
    RunRules,
    array_specs,
    make_private_directory,
    read_password,
)
from veilwalk.node.peer._config import NodeConfig, host_and_port
from veilwalk.node.peer._membership import Membership, MembershipFiles
from veilwalk.node.peer._observe import Log
from veilwalk.node.peer._routing import Law, OsDraws, file_digest, law_of
from veilwalk.node.peer._trainer import Task
from veilwalk.node.spool import FolderDisk, Spool

if TYPE_CHECKING:
    from veilwalk.learning import Learner, Partition
    from veilwalk.node.peer._worker import Worker


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeParts:
    """Everything a node is made of.

    Attributes:
        keys: Its own keys.
        membership: Roster and manifest.
        task: What it learns with.
        rules: What all members do alike.
        law: For whom it seals.
        disk: Where its custody lives.
        limits: Patience and quotas.
        draws: Where its secret choices come from.
        listen: Host and port, where they are not the roster's.
        starts: Whether it makes the run's first walk.
        log: Where events go.
        note: File beside the keys that says which disk this run is on (:func:`check_disk`); None for no check.
    """

    keys: NodeKeys
    membership: Membership
    task: Task | Worker
    rules: RunRules
    law: Law
    disk: FolderDisk
    limits: Limits = field(default_factory=Limits)
    draws: OsDraws = field(default_factory=OsDraws)
    listen: tuple[str, int] | None = None
    starts: bool = False
    log: Log = field(default_factory=Log)
    note: Path | None = None


# File in the state that says whose it is.
_OWNER = "node"
_MARK_BYTES = 16


def key_ring(config: NodeConfig) -> KeyRing:
    """Return the node's keys with their password, which is read here and not again."""
    password = None if config.password_file is None else read_password(config.password_file)
    return KeyRing(config.keys, password=password)


def assemble(
    config: NodeConfig, *, log: Log | None = None, keys: NodeKeys | None = None, worker: Worker | None = None
) -> NodeParts:
    """Return the parts of the node that ``config`` describes; it trains by ``worker``, or in this process.

    Its keys are read, where they are not given.

    Raises:
        VeilwalkError: Something is missing, forged, expired or does not fit together; the message says what.
    """
    files, keys = MembershipFiles(config), keys or key_ring(config).load()
    make_private_directory(config.state)
    membership = files.load().open_row(keys)
    known = is_owned(config.state, keys.id)
    task, rules, law = checked_work(config, membership, keys, worker)
    for document in (membership.roster, membership.manifest):
        files.keep(document)
    log = log or Log()
    disk = FolderDisk(config.state)
    if not known:
        _note_owner(disk, config.state, keys.id)
    if disk.mended:
        log.event("storage_damaged", why="the database was set aside, with what could not be read of it")
    return NodeParts(
        keys=keys,
        membership=membership,
        task=task,
        rules=rules,
        law=law,
        disk=disk,
        limits=config.limits,
        listen=None if config.listen is None else host_and_port("listen", config.listen),
        starts=config.starts,
        log=log,
        note=config.keys / f"disk-{membership.manifest.run_id.hex()}",
    )


def check_disk(spool: Spool, note: Path) -> None:
    """Count a disk as lost if it is not the one on which this member was last in this run: a new or an earlier one.

    Every start leaves a new mark on the disk, and then in the note, which is with the keys. A crash between the two
    leaves the mark before, which the disk knows too.
    """
    with name_os_errors(SpoolError, note):
        before = note.read_bytes() if note.exists() else b""
    mark = os.urandom(_MARK_BYTES)
    with spool.transaction() as register:
        if before and before not in (register.mark("start"), register.mark("start before")):
            register.count("disks_lost")
        register.set_mark("start before", before)
        register.set_mark("start", mark)
    write_atomically(note, mark, mode=0o600)


def load_task(config: NodeConfig, manifest: Manifest, *, index: int) -> Task:
    """Return what the node learns with, on what."""
    rules = manifest.rules
    if rules.noise and config.max_loss_ratio:
        raise ConfigError("max_loss_ratio: must be left out: the run's noise does not cover tests on a node's own rows")
    return Task(
        learner=learner_of(manifest, consent=config.learner),
        data=own_data(config, manifest),
        manifest=manifest,
        index=index,
        rules=rules,
        max_loss_ratio=config.max_loss_ratio,
        test=public_test(config, manifest, rules),
    )


def checked_work(
    config: NodeConfig, membership: Membership, keys: NodeKeys, worker: Worker | None = None
) -> tuple[Task | Worker, RunRules, Law]:
    """Return what a node is to do under these signed files; nothing is written but the law's row under its names.

    Of a roster its own row is opened.

    Raises:
        VeilwalkError: It cannot, and why.
    """
    roster, manifest = membership.roster, membership.manifest
    check_own_entry(keys, roster)
    rules = manifest.rules
    index = roster.index(keys.id)
    task: Task | Worker
    if worker is None:
        task = load_task(config, manifest, index=index)
    else:
        worker.begin(manifest, index, limit_s=config.training_limit_s(rules.dwell_s))
        task = worker
    law = law_of(manifest, roster, keys.id, file=config.law, state=config.state)
    law.row(roster, keys.id)
    return task, rules, law


def check_own_entry(keys: NodeKeys, roster: Roster) -> None:
    """Refuse a roster that leaves this node out, or lists keys for it that it does not hold."""
    if keys.id not in roster.ids:
        raise ConfigError(f"{keys.id} is not a member of roster version {roster.version}")
    keys.check_entry(roster.member(keys.id), roster.open_epochs(time.time())[0])


def is_owned(state: Path, node: str) -> bool:
    """Return whether a state is noted as this member's; refuse another's: its messages, numbers, models are that one's.

    Raises:
        ConfigError: It is another member's.
    """
    try:
        owner = (state / _OWNER).read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise SpoolError(f"{state / _OWNER}: {error.strerror or error}") from None
    if owner != node:
        raise ConfigError(f"state {state} is {owner[:64]}'s, the keys are {node}'s: each needs a folder of its own")
    return True


def _note_owner(disk: FolderDisk, state: Path, node: str) -> None:
    """Note whose folder it is, once nobody else can have it."""
    try:
        write_atomically(state / _OWNER, f"{node}\n".encode("ascii"))
    except BaseException:
        disk.close()
        raise


def learner_of(manifest: Manifest, *, consent: str | None) -> Learner:
    """Return the manifest's learner.

    One that is not of this package is other people's code: it runs only where the node's owner has named it too.
    """
    from veilwalk.learning import LEARNERS, make_learner

    spec = manifest.learner
    if spec.partition(":")[0] not in LEARNERS and spec != consent:
        raise ConfigError(
            f"the manifest names the learner {spec[:80]!r}, which is not ours: set learner to the same to run it"
        )
    learner = make_learner(spec, **manifest.shape)
    if array_specs(learner.init_params(np.random.default_rng(0))) != manifest.arrays:
        raise ConfigError(f"the learner {spec[:80]!r} makes other arrays than the manifest lists")
    return learner


def own_data(config: NodeConfig, manifest: Manifest) -> Partition:
    """Return the node's examples; what the learner could not use is refused now, not when the model is in its hands."""
    from veilwalk.learning import require_fit

    data = read_partition(config.data)
    require_fit(data, **manifest.shape, name=f"data {config.data}")
    return data


def read_partition(path: Path) -> Partition:
    """Return a node's own examples from an ``.npz`` with ``features`` and ``labels``, exactly as they are there."""
    from veilwalk.learning import Partition

    try:
        # Of anything else NumPy speaks of pickles, and of how to read them all the same.
        zipfile.ZipFile(path).close()
        with np.load(path, allow_pickle=False) as archive:
            data = Partition(archive["features"], archive["labels"])
    except OSError as error:
        raise InputFileError(f"data {path}: {error.strerror or error}") from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"data {path}: not an .npz of features and labels ({error})") from None
    rows, labels = data.features.shape[:1], data.labels.shape[:1]
    if not (rows and rows == labels):
        raise InputFileError(f"data {path}: {(*rows, 'no')[0]} rows of features, {(*labels, 'no')[0]} labels")
    return data


def public_test(config: NodeConfig, manifest: Manifest, rules: RunRules) -> Partition | None:
    """Return the run's public test set, which must be the very one the root has signed for."""
    if not manifest.test_digest:
        if rules.target:
            raise ConfigError(f"the manifest asks for an accuracy of {rules.target:g} and names no test set")
        return None
    if config.test is None:
        raise ConfigError("the manifest names a public test set: set test to its file")
    digest = file_digest(config.test, "test")
    if digest != manifest.test_digest:
        raise ConfigError(
            f"test {config.test}: SHA-256 {digest[:12]}..., the manifest's is {manifest.test_digest[:12]}..."
        )
    return read_partition(config.test)
