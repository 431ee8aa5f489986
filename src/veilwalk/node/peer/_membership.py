"""Whom a node believes in: the root, the run's manifest, the roster it holds and the one before.

The roster a node holds is kept in its own folder, so that an older one is refused after a restart too. The one before
is kept as well: messages sealed under it are still on their way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import ProtocolError, RecordError, SpoolError
from veilwalk.core.records import write_atomically
from veilwalk.node.link import PROTOCOL, Hello
from veilwalk.node.members import (
    Manifest,
    NodeKeys,
    Roster,
    check_time,
    load_manifest,
    load_root_public_key,
    load_roster,
    read_signed_roster,
    signature_path,
)
from veilwalk.node.sealing import Opener

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from veilwalk.node.sealing import KemPrivateKey, SealContext


@dataclass(frozen=True, kw_only=True, eq=False)
class Membership:
    """What the root has signed, as one node holds it."""

    manifest: Manifest
    roster: Roster
    before: Roster | None = None

    def hello(self, incarnation: bytes) -> Hello:
        """Return what the node whose disk has that mark says first."""
        return Hello(PROTOCOL, self.roster.version, self.roster.digest, self.roster.run_id, incarnation)

    def check_hello(self, hello: Hello) -> None:
        """Refuse a peer of another protocol or run, one that is versions apart, and one with a forged history.

        Raises:
            ProtocolError: Such a peer.
        """
        if hello.protocol != PROTOCOL:
            raise ProtocolError(f"a peer speaks protocol {hello.protocol}: this node speaks {PROTOCOL}")
        if hello.run != self.roster.run_id:
            raise ProtocolError("a peer is of another run")
        apart = abs(hello.roster_version - self.roster.version)
        known = {roster.version: roster.digest for roster in (self.roster, self.before) if roster is not None}
        if hello.roster_version in known and known[hello.roster_version] != hello.roster_digest:
            raise ProtocolError(f"a peer holds another roster version {hello.roster_version}: the root signed two")
        if apart > 1:
            raise ProtocolError(f"a peer holds roster version {hello.roster_version}: this node {self.roster.version}")

    def opener(self, keys: NodeKeys) -> Opener:
        """Return what opens messages for this node: of this epoch and the last, under both rosters."""
        pairs: list[tuple[SealContext, KemPrivateKey]] = []
        accepted: list[SealContext] = []
        for roster in (self.roster, self.before):
            if roster is None:
                continue
            for epoch in (roster.epoch, roster.epoch + 1):
                # Neighbours may be a version ahead; what they seal must be relayed though it cannot be opened yet.
                context = roster.seal_context(self.manifest, epoch=epoch)
                if epoch < self.roster.epoch - 1:
                    continue
                accepted.append(context)
                if epoch in keys.kem and epoch <= self.roster.epoch:
                    pairs.append((context, keys.kem[epoch]))
        return Opener(pairs, accepted=accepted)

    def follow(self, roster: Roster) -> Membership:
        """Return the membership after a new version of the roster."""
        return Membership(manifest=self.manifest, roster=roster, before=self.roster)


class MembershipFiles:
    """Where the signed files are, and the copies a node keeps: the two newest versions, each under its number."""

    def __init__(self, *, root: Path, manifest: Path, roster: Path, kept: Path) -> None:
        self._root_key: Ed25519PublicKey = load_root_public_key(root)
        self._manifest = manifest
        self._roster = roster
        self._kept_folder = kept

    def load(self, now: float | None = None) -> Membership:
        """Return the membership at start; a roster older than one held before is refused."""
        manifest = load_manifest(self._manifest, self._root_key)
        held = self._kept()
        current = held[0] if held else None
        roster = load_roster(self._roster, self._root_key, time.time() if now is None else now, current)
        if current is None or roster.digest != current.digest:
            held.insert(0, roster)
            self._keep(roster)
        return Membership(manifest=manifest, roster=roster, before=held[1] if len(held) > 1 else None)

    def news(self, current: Roster, now: float | None = None) -> Roster | None:
        """Return a new version of the roster if there is one.

        Raises:
            CryptoError, ProtocolError, InputFileError: There is something there that must not be followed.
        """
        roster = load_roster(self._roster, self._root_key, time.time() if now is None else now, current)
        if roster.digest == current.digest:
            return None
        self._keep(roster)
        return roster

    def _keep(self, roster: Roster) -> None:
        """Copy a version that was accepted; its signature first, so that a crash leaves no file without one."""
        try:
            self._kept_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = self._kept_folder / f"{roster.version:010d}.json"
            write_atomically(signature_path(copy), signature_path(self._roster).read_bytes())
            write_atomically(copy, roster.data)
            for old in sorted(self._kept_folder.glob("*.json"))[:-2]:
                old.unlink()
                signature_path(old).unlink(missing_ok=True)
        except (OSError, RecordError) as error:
            raise SpoolError(f"{self._kept_folder}: {error}") from None

    def _kept(self) -> list[Roster]:
        """Return the versions kept, newest first."""
        return [
            read_signed_roster(path, self._root_key)
            for path in sorted(self._kept_folder.glob("*.json"), reverse=True)[:2]
        ]


def check_still_valid(roster: Roster) -> None:
    """Refuse a roster whose time is over.

    Raises:
        ProtocolError: It is.
    """
    check_time(roster, time.time(), "roster")
