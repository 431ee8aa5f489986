"""From a configuration to the parts of a node: every file read and checked before anything runs."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError
from veilwalk.core.records import write_atomically
from veilwalk.node.members import (
    Manifest,
    NodeKeys,
    Roster,
    RunRules,
    array_specs,
    canonical_json,
    load_node_keys,
    make_private_directory,
    parse_canonical,
    read_bounded,
    read_password,
)
from veilwalk.node.peer._config import NodeConfig, host_and_port
from veilwalk.node.peer._destination import Task
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._membership import MembershipFiles
from veilwalk.node.peer._parts import NodeParts
from veilwalk.node.peer._routing import DestinationRow, read_law_row
from veilwalk.node.spool import FolderDisk

if TYPE_CHECKING:
    from veilwalk.learning import Learner, Partition

_LAW_LIMIT = 16 * 1024 * 1024


def load_keys(config: NodeConfig) -> NodeKeys:
    """Return the node's keys, opened with its password if it has one."""
    password = None if config.password_file is None else read_password(config.password_file)
    return load_node_keys(config.keys, password=password)


def membership_files(config: NodeConfig) -> MembershipFiles:
    """Return where the signed files are."""
    return MembershipFiles(
        root=config.root, manifest=config.manifest, roster=config.roster, kept=config.state / "rosters"
    )


def assemble(config: NodeConfig, *, log: Log | None = None) -> NodeParts:
    """Return the parts of the node that ``config`` describes.

    Raises:
        VeilwalkError: Something is missing, forged, expired or does not fit together; the message says what.
    """
    keys = load_keys(config)
    make_private_directory(config.state)
    membership = membership_files(config).load()
    roster, manifest = membership.roster, membership.manifest
    check_own_entry(keys, roster)
    rules = RunRules.from_text(manifest.walk)
    log = log or Log()
    disk = FolderDisk(config.state)
    if disk.mended:
        log.event("storage_damaged", why="the database was set aside, with what could not be read of it")
    return NodeParts(
        keys=keys,
        membership=membership,
        task=Task(
            learner=learner_of(manifest, consent=config.learner),
            data=_own_data(config, manifest),
            manifest=manifest,
            index=roster.index(keys.id),
            max_loss_ratio=config.max_loss_ratio,
            test=_public_test(config, manifest, rules),
        ),
        rules=rules,
        law=_law_row(config, manifest, roster, keys.id),
        disk=disk,
        limits=config.limits,
        listen=None if config.listen is None else host_and_port("listen", config.listen),
        starts=config.starts,
        log=log,
    )


def check_own_entry(keys: NodeKeys, roster: Roster) -> None:
    """Refuse a roster that leaves this node out, or lists keys for it that it does not hold."""
    if keys.id not in roster.ids:
        raise ConfigError(f"{keys.id} is not a member of roster version {roster.version}")
    keys.check_entry(roster.member(keys.id))


def learner_text(spec: str, *, n_features: int, n_classes: int) -> str:
    """Return how a manifest names a learner: its spec, and the shape of the data."""
    return f"{spec} {n_features} {n_classes}"


def learner_of(manifest: Manifest, *, consent: str | None) -> Learner:
    """Return the manifest's learner.

    One that is not of this package is other people's code: it runs only where the node's owner has named it too.
    """
    from veilwalk.learning import LEARNERS, make_learner

    spec, shape = _learner_fields(manifest)
    if spec.partition(":")[0] not in LEARNERS and spec != consent:
        raise ConfigError(
            f"the manifest names the learner {spec[:80]!r}, which is not ours: set learner to the same to run it"
        )
    learner = make_learner(spec, **shape)
    if array_specs(learner.init_params(np.random.default_rng(0))) != manifest.arrays:
        raise ConfigError(f"the learner {spec[:80]!r} makes other arrays than the manifest lists")
    return learner


def _learner_fields(manifest: Manifest) -> tuple[str, dict[str, int]]:
    """Return the spec of the manifest's learner, and the shape of the data it is for."""
    try:
        spec, n_features, n_classes = manifest.learner.split(" ")
        return spec, {"n_features": int(n_features), "n_classes": int(n_classes)}
    except ValueError:
        raise ConfigError(f"the manifest's learner {manifest.learner[:80]!r}: must be SPEC FEATURES CLASSES") from None


def _own_data(config: NodeConfig, manifest: Manifest) -> Partition:
    """Return the node's examples; what the learner could not use is refused now, not when the model is in its hands."""
    from veilwalk.learning import require_fit

    data = read_partition(config.data)
    require_fit(data, **_learner_fields(manifest)[1], name=f"data {config.data}")
    return data


def read_partition(path: Path) -> Partition:
    """Return a node's own examples from an ``.npz`` with ``features`` and ``labels``, exactly as they are there."""
    from veilwalk.learning import Partition

    try:
        with np.load(path, allow_pickle=False) as archive:
            data = Partition(archive["features"], archive["labels"])
    except OSError as error:
        raise InputFileError(f"data {path}: {error.strerror or error}") from None
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"data {path}: not an .npz of features and labels ({error})") from None
    if len(data.features) != len(data.labels):
        raise InputFileError(f"data {path}: {len(data.features)} rows of features, {len(data.labels)} labels")
    return data


def _public_test(config: NodeConfig, manifest: Manifest, rules: RunRules) -> Partition | None:
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


def file_digest(path: Path, name: str) -> str:
    """Return the SHA-256 of a file that the manifest names, hexadecimal."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputFileError(f"{name} {path}: {error.strerror or error}") from None


def _law_row(config: NodeConfig, manifest: Manifest, roster: Roster, node: str) -> DestinationRow:
    """Return for whom this node seals.

    Read from the law once, and kept under the names of the members: rows of the law are numbered by the members of
    the first roster, and a later one may have others.
    """
    kept = config.state / "law.json"
    if kept.exists():
        content = parse_canonical(read_bounded(kept, _LAW_LIMIT), str(kept))
        if content["digest"] == manifest.law_digest:
            return DestinationRow.of(dict(content["shares"])).among(roster.ids)
    digest = file_digest(config.law, "law")
    if digest != manifest.law_digest:
        raise ConfigError(
            f"law {config.law}: SHA-256 {digest[:12]}..., the manifest's is {manifest.law_digest[:12]}..."
        )
    row = read_law_row(config.law, roster.ids, node)
    write_atomically(kept, canonical_json({"digest": digest, "shares": row.shares}))
    return row
