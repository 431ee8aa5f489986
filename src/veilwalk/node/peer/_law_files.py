"""The destination law of a run as one node needs it: a rule of the manifest's, or a row of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError
from veilwalk.core.records import write_atomically
from veilwalk.node.members import LawRule, Manifest, Roster, canonical_json, parse_canonical, read_bounded
from veilwalk.node.peer._routing import DestinationRow, FileLaw, Law, RuleLaw

_LAW_LIMIT = 16 * 1024 * 1024
_ROW_FILE = "law.json"


def law_of(manifest: Manifest, roster: Roster, node: str, *, file: Path | None, state: Path) -> Law:
    """Return for whom this node seals: by the manifest's rule, or by its row of the law that the manifest names.

    The row is read once and kept under the names of the members: where the law has no names it is numbered by the
    members of the roster of that time, and a later one may have others.
    """
    if manifest.law:
        return RuleLaw(LawRule.parse(manifest.law))
    stored = _kept_law(state, manifest)
    if stored is not None:
        return stored
    if file is None:
        raise ConfigError("the manifest names a law in a file: set law to it")
    digest = file_digest(file, "law")
    if digest != manifest.law_digest:
        raise ConfigError(f"law {file}: SHA-256 {digest[:12]}..., the manifest's is {manifest.law_digest[:12]}...")
    law = read_law(file, roster.ids, node)
    write_atomically(
        state / _ROW_FILE, canonical_json({"digest": digest, "names": list(law.names), "shares": law.row.shares})
    )
    return law


def members_left_out(state: Path, manifest: Manifest | None, roster: Roster | None) -> tuple[str, ...]:
    """Return the members that nobody seals for, as the node of that folder knows."""
    if manifest is None or roster is None or manifest.law:
        return ()
    stored = _kept_law(state, manifest)
    return () if stored is None else stored.left_out(roster)


def _kept_law(state: Path, manifest: Manifest) -> FileLaw | None:
    path = state / _ROW_FILE
    if not path.exists():
        return None
    content = parse_canonical(read_bounded(path, _LAW_LIMIT), str(path))
    if content["digest"] != manifest.law_digest or "names" not in content:
        return None
    return FileLaw(DestinationRow.of(dict(content["shares"])), tuple(content["names"]))


def file_digest(path: Path, name: str) -> str:
    """Return the SHA-256 of a file that the manifest names, hexadecimal."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputFileError(f"{name} {path}: {error.strerror or error}") from None


def read_law(path: Path, members: Sequence[str], node: str) -> FileLaw:
    """Return the row of ``node`` in a destination law written by ``veilwalk design --graph ... --out law.npz``.

    Members are found by name. In a law whose nodes have no names they stand in the order of their names, and must be as
    many. Reads with NumPy alone: a node must start quickly, and needs no more of a law than its row.
    """
    try:
        with np.load(path, allow_pickle=False) as law:
            if str(law["format"]) != "veilwalk-law-1" or str(law["kind"]) != "destination":
                raise InputFileError(f"law {path}: not a destination law; make one with design --graph")
            indptr, indices, data = law["indptr"], law["indices"], law["data"]
            names = tuple(map(str, law["labels"])) if "labels" in law.files else None
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(f"law {path}: not a law file ({error})") from error
    names = _names_of_rows(path, names, len(indptr) - 1, members)
    if node not in names:
        raise ConfigError(f"law {path} does not name {node}: it needs a law of the new members, or one by rule (far:R)")
    index = names.index(node)
    row = slice(indptr[index], indptr[index + 1])
    shares = {names[int(column)]: float(share) for column, share in zip(indices[row], data[row], strict=True)}
    if shares.get(node, 0.0) != 0.0:
        raise InputFileError(f"law {path}: {node} may choose itself")
    return FileLaw(DestinationRow.of(shares), names)


def _names_of_rows(path: Path, names: tuple[str, ...] | None, size: int, members: Sequence[str]) -> tuple[str, ...]:
    # Numbers are names too where members are called so.
    called = tuple(map(str, range(size))) if names is None else names
    if set(called) & set(members):
        return called
    if names is not None or size != len(members):
        raise ConfigError(f"law {path} is for {size} nodes called otherwise: the roster has {len(members)} members")
    return tuple(members)
