"""Holds the root's key, the run's manifest and the roster, and refuses versions that do not follow them.

What a node holds is kept in its own folder, so that an older one is refused after a restart too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from veilwalk.core.errors import ProtocolError, RecordError, SpoolError
from veilwalk.core.records import write_atomically
from veilwalk.node.link import PROTOCOLS, Hello, agreed_protocol
from veilwalk.node.members import Manifest, NodeKeys, Roster, load_root_public_key, signature_path
from veilwalk.node.sealing import Opener

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from veilwalk.node.peer._config import NodeConfig

T = TypeVar("T", Manifest, Roster)


@dataclass(frozen=True, kw_only=True, eq=False)
class Membership:
    """The signed files that one node holds, and the protocols that it speaks."""

    manifest: Manifest
    roster: Roster
    protocols: range = PROTOCOLS

    def open_row(self, keys: NodeKeys) -> Membership:
        """Return the same files with what the roster of an overlay says to this member alone."""
        return replace(self, roster=self.roster.open_row(keys.id, keys.roster_key))

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
        protocol = agreed_protocol(hello.lowest, hello.highest, self.protocols)
        if hello.run != self.manifest.run_id:
            raise ProtocolError("a peer is of another run")
        _check_version(hello.roster_version, hello.roster_digest, self.roster)
        _check_version(hello.manifest_version, hello.manifest_digest, self.manifest)
        return protocol

    def opener(self, keys: NodeKeys) -> Opener:
        """Return what opens messages for this node: of this epoch, the last, and the next."""
        epochs = self.roster.open_epochs(time.time())
        contexts = [self.roster.seal_context(self.manifest, epoch=epoch) for epoch in epochs]
        pairs = [(context, keys.kem[context.epoch]) for context in contexts if context.epoch in keys.kem]
        return Opener(pairs, accepted=contexts)

    def check_still_valid(self) -> None:
        """Refuse a roster or a manifest whose time is over.

        Raises:
            ProtocolError: It is.
        """
        for document in (self.roster, self.manifest):
            document.check_time(time.time(), document.kind)


def _check_version(version: int, digest: bytes, held: Roster | Manifest) -> None:
    """Refuse what a peer holds, if it is no neighbour of the version held here, or of another history."""
    kind = held.kind
    if version < 1:
        raise ProtocolError(f"a peer holds {kind} version {version}: there is none")
    known = {held.version: held.digest, held.version - 1: held.prev_digest}
    if known.get(version, digest) != digest:
        raise ProtocolError(f"a peer holds another {kind} version {version}: the root signed two")
    if abs(version - held.version) > 1:
        raise ProtocolError(f"a peer holds {kind} version {version}: this node {held.version}")


def read_accepted(kind: type[T], state: Path, root_key: Ed25519PublicKey | None = None) -> T | None:
    """Return the version that the node of a state folder accepted last, its signature checked with the key given.

    None before any.
    """
    for path in sorted((state / f"{kind.kind}s").glob("*.json"))[-1:]:
        return kind.read_draft(path) if root_key is None else kind.read_signed(path, root_key)
    return None


class MembershipFiles:
    """Where the signed files are, and the copies a node keeps of those it accepted."""

    def __init__(self, config: NodeConfig) -> None:
        self._root_key = load_root_public_key(config.root)
        self._paths = {"manifest": config.manifest, "roster": config.roster}
        self._state = config.state

    def load(self) -> Membership:
        """Return the membership at start; what is older than what was held before is refused."""
        return Membership(
            manifest=self.read(Manifest, read_accepted(Manifest, self._state, self._root_key)),
            roster=self.read(Roster, read_accepted(Roster, self._state, self._root_key)),
        )

    def read(self, kind: type[T], held: T | None) -> T:
        """Return the version that is there now, perhaps the one that is held; it is not kept yet.

        Raises:
            CryptoError, ProtocolError, InputFileError: There is something there that must not be followed.
        """
        return kind.load(self._paths[kind.kind], self._root_key, current=held)

    def keep(self, document: Roster | Manifest) -> None:
        """Copy a version that was accepted; its signature first, so that a crash leaves no file without one."""
        folder = self._state / f"{document.kind}s"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = folder / f"{document.version:010d}.json"
            if copy.exists():
                return
            write_atomically(signature_path(copy), signature_path(self._paths[document.kind]).read_bytes())
            write_atomically(copy, document.data)
            for old in sorted(folder.glob("*.json"))[:-2]:  # the one before stays: somebody may be about to read it
                old.unlink()
                signature_path(old).unlink(missing_ok=True)
        except (OSError, RecordError) as error:
            raise SpoolError(f"{folder}: {error}") from None
