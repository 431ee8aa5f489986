"""Whom a node believes in: the root, the run's manifest and the roster, as it holds them, and the versions before.

What a node holds is kept in its own folder, so that an older one is refused after a restart too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from veilwalk.core.errors import ProtocolError, RecordError, SpoolError
from veilwalk.core.records import write_atomically
from veilwalk.node.link import PROTOCOLS, Hello, agreed_protocol
from veilwalk.node.members import (
    Manifest,
    NodeKeys,
    Roster,
    check_manifest_time,
    check_succession,
    check_time,
    load_manifest,
    load_root_public_key,
    load_roster,
    read_manifest_draft,
    read_roster_draft,
    read_signed_manifest,
    read_signed_roster,
    signature_path,
)
from veilwalk.node.sealing import Opener

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

T = TypeVar("T", Manifest, Roster)
_ROSTERS, _MANIFESTS = "rosters", "manifests"


@dataclass(frozen=True, kw_only=True, eq=False)
class Membership:
    """What the root has signed, as one node holds it, and which protocols this node speaks."""

    manifest: Manifest
    roster: Roster
    before: Roster | None = None
    manifest_before: Manifest | None = None
    protocols: range = PROTOCOLS

    @cached_property
    def message_bytes(self) -> int:
        """Length of every message of the run, in whichever epoch."""
        return self.roster.seal_context(self.manifest).message_bytes

    def hello(self, incarnation: bytes) -> Hello:
        """Return what the node whose disk has that mark says first."""
        roster, manifest = self.roster, self.manifest
        return Hello(
            highest=self.protocols[-1],
            lowest=self.protocols[0],
            roster_version=roster.version,
            roster_digest=roster.digest,
            manifest_version=manifest.version,
            manifest_digest=manifest.digest,
            run=manifest.run_id,
            incarnation=incarnation,
        )

    def check_hello(self, hello: Hello) -> int:
        """Return the protocol to speak; refuse another run, versions that are apart, and a forged history.

        Raises:
            ProtocolError: Such a peer.
        """
        protocol = agreed_protocol(hello, self.protocols)
        if hello.run != self.manifest.run_id:
            raise ProtocolError("a peer is of another run")
        _check_version("roster", hello.roster_version, hello.roster_digest, self.roster, self.before)
        _check_version("manifest", hello.manifest_version, hello.manifest_digest, self.manifest, self.manifest_before)
        return protocol

    def opener(self, keys: NodeKeys) -> Opener:
        """Return what opens messages for this node: of this epoch, the last, and the next.

        Whoever gets a new roster first seals by it first; what it seals must be relayed, and opened, all the same.
        """
        epoch = self.roster.epoch
        contexts = [
            self.roster.seal_context(self.manifest, epoch=number) for number in range(max(epoch - 1, 0), epoch + 2)
        ]
        pairs = [(context, keys.kem[context.epoch]) for context in contexts if context.epoch in keys.kem]
        return Opener(pairs, accepted=contexts)

    def follow(self, roster: Roster) -> Membership:
        """Return the membership after a new version of the roster."""
        return replace(self, roster=roster, before=self.roster)

    def check_still_valid(self) -> None:
        """Refuse a roster or a manifest whose time is over.

        Raises:
            ProtocolError: It is.
        """
        check_time(self.roster, time.time(), "roster")
        check_manifest_time(self.manifest, time.time(), "manifest")


def _check_version(
    kind: str, version: int, digest: bytes, held: Roster | Manifest, before: Roster | Manifest | None
) -> None:
    if version < 1:
        raise ProtocolError(f"a peer holds {kind} version {version}: there is none")
    known = {one.version: one.digest for one in (held, before) if one is not None}
    if known.get(version, digest) != digest:
        raise ProtocolError(f"a peer holds another {kind} version {version}: the root signed two")
    if abs(version - held.version) > 1:
        raise ProtocolError(f"a peer holds {kind} version {version}: this node {held.version}")


class _Kept(Generic[T]):
    """The two newest versions of a signed file that a node accepted, each under its number."""

    def __init__(self, folder: Path, original: Path, read: Callable[[Path], T]) -> None:
        self._folder, self._original = folder, original
        self._read: Callable[[Path], T] = read

    def versions(self) -> list[T]:
        """Return them, newest first."""
        return [self._read(path) for path in sorted(self._folder.glob("*.json"), reverse=True)[:2]]

    def keep(self, document: T, data: bytes) -> None:
        """Copy a version that was accepted; its signature first, so that a crash leaves no file without one."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = self._folder / f"{document.version:010d}.json"
            if copy.exists():
                return
            write_atomically(signature_path(copy), signature_path(self._original).read_bytes())
            write_atomically(copy, data)
            for old in sorted(self._folder.glob("*.json"))[:-2]:
                old.unlink()
                signature_path(old).unlink(missing_ok=True)
        except (OSError, RecordError) as error:
            raise SpoolError(f"{self._folder}: {error}") from None


def kept_roster(state: Path) -> Roster | None:
    """Return the roster that the node of that folder works under, which it has checked itself; None before any."""
    newest = sorted((state / _ROSTERS).glob("*.json"))[-1:]
    return read_roster_draft(newest[0]) if newest else None


def kept_manifest(state: Path) -> Manifest | None:
    """Return the manifest that the node of that folder works under, likewise."""
    newest = sorted((state / _MANIFESTS).glob("*.json"))[-1:]
    return read_manifest_draft(newest[0]) if newest else None


class MembershipFiles:
    """Where the signed files are, and the copies a node keeps of those it accepted."""

    def __init__(self, *, root: Path, manifest: Path, roster: Path, state: Path) -> None:
        key: Ed25519PublicKey = load_root_public_key(root)
        self._root_key = key
        self._manifest = manifest
        self._roster = roster
        self._rosters = _Kept(state / _ROSTERS, roster, lambda path: read_signed_roster(path, key))
        self._manifests = _Kept(state / _MANIFESTS, manifest, lambda path: read_signed_manifest(path, key))

    def load(self, now: float | None = None) -> Membership:
        """Return the membership at start; what is older than what was held before is refused."""
        when = time.time() if now is None else now
        rosters, manifests = self._rosters.versions(), self._manifests.versions()
        manifest = load_manifest(self._manifest, self._root_key, when, manifests[0] if manifests else None)
        roster = load_roster(self._roster, self._root_key, when, rosters[0] if rosters else None)
        if not manifests or manifest.digest != manifests[0].digest:
            manifests.insert(0, manifest)
        if not rosters or roster.digest != rosters[0].digest:
            rosters.insert(0, roster)
        return Membership(
            manifest=manifest,
            roster=roster,
            before=rosters[1] if len(rosters) > 1 else None,
            manifest_before=manifests[1] if len(manifests) > 1 else None,
        )

    def accept(self, membership: Membership) -> None:
        """Keep what a node works under from now on."""
        self._rosters.keep(membership.roster, membership.roster.data)
        self._manifests.keep(membership.manifest, membership.manifest.to_bytes())

    def news(self, current: Roster, now: float | None = None) -> Roster | None:
        """Return a new version of the roster if there is one; it is not kept yet.

        Raises:
            CryptoError, ProtocolError, InputFileError: There is something there that must not be followed.
        """
        roster = load_roster(self._roster, self._root_key, time.time() if now is None else now, current)
        return None if roster.digest == current.digest else roster

    def keep(self, roster: Roster) -> None:
        """Keep a new version of the roster."""
        self._rosters.keep(roster, roster.data)

    def keep_up(self, roster: Roster) -> None:
        """Keep a new version for a run that does not work now, so that it finds no gap when it does."""
        held = self._rosters.versions()
        if held:
            check_succession(roster, held[0], str(self._roster))
            self.keep(roster)

    def has_new_manifest(self, current: Manifest) -> bool:
        """Return whether there is a new version of the manifest; raises as :meth:`news`."""
        return load_manifest(self._manifest, self._root_key, current=current).digest != current.digest
