"""The roster: who belongs to a network, with which keys, at which addresses, along which edges.

Each version names the digest of the one before it, so that a history cannot be rewritten, and ends by itself, so
that a node cut off from news notices. A member leaves, or changes a key, by the next version; nothing else revokes.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from veilwalk.core import validate
from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError, ProtocolError
from veilwalk.node.members._history import check_dates, check_first_link, check_follows
from veilwalk.node.members._manifest import Manifest
from veilwalk.node.members._member import MAX_EPOCH, Member, member_from_dict, parse_suite
from veilwalk.node.members._signed import (
    canonical_json,
    check_fields,
    check_format,
    decode_hex,
    parse_canonical,
    read_bounded,
    read_signed,
    sign_file,
)
from veilwalk.node.sealing import DIGEST_BYTES, RUN_ID_BYTES, SealContext, Suite, need_length

if TYPE_CHECKING:
    from veilwalk.graphs import Graph

_FORMAT = "veilwalk-roster-2"
_KIND = "roster"
# Two hybrid keys each for some 10,000 members.
_FILE_LIMIT = 64 * 1024 * 1024
_MAX_TIME = 253402300800  # the year 10000
_NUMBERS = ("created", "epoch", "expires", "seals_from", "version")
_FIELDS = (*_NUMBERS, "edges", "format", "nodes", "prev_digest", "run", "suite")


@dataclass(frozen=True, kw_only=True, eq=False)
class Roster:
    """One version of the roster. Node ``i`` of :meth:`graph` is ``members[i]``: they stand in order of their ids.

    Args:
        network: 16 bytes, fresh for each network; it stays through all versions. Runs name it in their manifests.
        suite: How messages are sealed.
        version: 1 for the first, then one more each time.
        epoch: The epoch messages are sealed in; members have keys for it and for the next.
        created: Seconds since 1970; not accepted earlier.
        expires: Seconds since 1970; not accepted from then on.
        prev_digest: Digest of the version before, None for the first.
        members: Sorted by id.
        edges: Pairs of ids, the smaller first, sorted.
        seals_from: Seconds since 1970 from when messages are sealed in ``epoch``; until then in the one before, which
            members then have keys for as well. All change over at one time, whenever this file reaches them.
    """

    network: bytes
    suite: Suite
    version: int
    epoch: int
    created: int
    expires: int
    prev_digest: bytes | None
    members: tuple[Member, ...]
    edges: tuple[tuple[str, str], ...]
    seals_from: int = 0

    def __post_init__(self) -> None:
        need_length(RUN_ID_BYTES, network=self.network)
        validate.integer(**{name: getattr(self, name) for name in _NUMBERS})
        validate.at_least(1, version=self.version)
        validate.at_least(0, epoch=self.epoch, created=self.created, seals_from=self.seals_from)
        if self.epoch >= MAX_EPOCH - 1 or self.version >= MAX_EPOCH:
            raise InvalidParameterError("epoch and version", (self.epoch, self.version), f"below {MAX_EPOCH - 1}")
        if not self.created < self.expires < _MAX_TIME:
            raise InvalidParameterError("expires", self.expires, f"after created ({self.created})")
        if self.rolls_over and not (self.epoch and self.seals_from < self.expires):
            need = "before expires, and not after created in epoch 0"
            raise InvalidParameterError("seals_from", self.seals_from, need)
        check_first_link(self.version, self.prev_digest)
        self._check_members()
        self._check_edges()

    def _check_members(self) -> None:
        ids = [member.id for member in self.members]
        if ids != sorted(set(ids)):
            raise InvalidParameterError("nodes", "their ids", "sorted, each once")
        if len({member.tls_spki_sha256 for member in self.members}) != len(ids):
            raise InvalidParameterError("nodes", "their TLS keys", "different")
        keys = [key for member in self.members for key in member.kem.values()]
        if len(set(keys)) != len(keys):
            raise InvalidParameterError("nodes", "their sealing keys", "different")
        for member in self.members:
            if sorted(member.kem) != list(self.key_epochs):
                need = f"those of epochs {' and '.join(map(str, self.key_epochs))}"
                raise InvalidParameterError(f"sealing keys of {member.id}", sorted(member.kem), need)

    def _check_edges(self) -> None:
        if list(self.edges) != sorted(set(self.edges)) or not all(a < b for a, b in self.edges):
            raise InvalidParameterError("edges", "pairs of ids", "sorted, each once, the smaller id first")
        unknown = {end for edge in self.edges for end in edge} - self._index.keys()
        if unknown:
            raise InvalidParameterError("edges", min(unknown)[:64], "between members")
        if not self.edges:
            raise GraphError("the roster has no edge")
        reached = self.distances(self.members[0].id)
        if len(reached) < len(self.members):
            alone = min(self._index.keys() - reached.keys())
            raise GraphError(f"the roster falls apart: no path to {alone}; must be connected")

    @property
    def rolls_over(self) -> bool:
        """Whether the epoch was still to begin when this version was made."""
        return self.seals_from > self.created

    @property
    def key_epochs(self) -> range:
        """The epochs that members have keys for: this and the next, and the one before while that is sealed in."""
        return range(self.epoch - self.rolls_over, self.epoch + 2)

    def epoch_at(self, now: float) -> int:
        """Return the epoch that messages are sealed in at ``now``."""
        return self.epoch - 1 if self.rolls_over and now < self.seals_from else self.epoch

    @cached_property
    def _index(self) -> dict[str, int]:
        return {member.id: index for index, member in enumerate(self.members)}

    @cached_property
    def _adjacent(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {member.id: [] for member in self.members}
        for a, b in self.edges:
            found[a].append(b)
            found[b].append(a)
        return found

    def graph(self) -> Graph:
        """Return the network, its nodes called by their ids."""
        from veilwalk.graphs import Graph

        edges = [(self._index[a], self._index[b]) for a, b in self.edges]
        return Graph.from_edges(len(self.members), edges, labels=self.ids)

    @cached_property
    def graph_digest(self) -> str:
        """The digest of :meth:`graph`, without loading its kernels."""
        lists = [sorted(self._index[other] for other in self._adjacent[one]) for one in self._index]
        ends = np.cumsum([0, *map(len, lists)], dtype="<i8")
        numbers = np.array([number for one in lists for number in one], dtype="<i8")
        return hashlib.sha256(b"veilwalk-graph-1" + ends.tobytes() + numbers.tobytes()).hexdigest()

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, in the order of the graph's nodes."""
        return tuple(self._index)

    def index(self, node_id: str) -> int:
        """Return the node of the graph that ``node_id`` is."""
        if node_id not in self._index:
            raise InvalidParameterError("node", node_id, f"a member of roster version {self.version}")
        return self._index[node_id]

    def member(self, node_id: str) -> Member:
        """Return the member named ``node_id``."""
        return self.members[self.index(node_id)]

    def neighbours(self, node_id: str) -> tuple[str, ...]:
        """Return the ids that share an edge with ``node_id``, sorted."""
        self.index(node_id)
        return tuple(sorted(self._adjacent[node_id]))

    def distances(self, node_id: str) -> dict[str, int]:
        """Return how many hops each member is from ``node_id``, nearest first, itself with 0.

        By hand rather than with a Graph, whose kernels take a second to load: a node must start quickly.
        """
        found, ahead = {node_id: 0}, [node_id]
        for one in ahead:
            for other in self._adjacent[one]:
                if other not in found:
                    found[other] = found[one] + 1
                    ahead.append(other)
        return found

    def kem_key(self, node_id: str, epoch: int) -> bytes:
        """Return the public key that messages of ``epoch`` to ``node_id`` are sealed to."""
        keys = self.member(node_id).kem
        if epoch not in keys:
            raise InvalidParameterError("epoch", epoch, f"one of {sorted(keys)}")
        return keys[epoch]

    def peer_of_certificate(self, spki_sha256: bytes) -> str | None:
        """Return the id of the member whose TLS key has that digest, None if there is none."""
        return self._by_spki.get(spki_sha256)

    @cached_property
    def _by_spki(self) -> dict[bytes, str]:
        return {member.tls_spki_sha256: member.id for member in self.members}

    def trust_anchors(self, ids: Iterable[str]) -> str:
        """Return the certificates of ``ids`` in PEM, for ``SSLContext.load_verify_locations(cadata=...)``."""
        return "".join(ssl.DER_cert_to_PEM_cert(self.member(node_id).certificate) for node_id in ids)

    def seal_context(self, manifest: Manifest, *, epoch: int | None = None) -> SealContext:
        """Return the context of the run's messages in ``epoch``; unless given, the one that is sealed in now."""
        if (manifest.network, manifest.suite) != (self.network, self.suite):
            raise ProtocolError("the manifest and the roster are of different networks or suites")
        return SealContext(
            run_id=manifest.run_id,
            suite=self.suite,
            epoch=self.epoch_at(time.time()) if epoch is None else epoch,
            bucket_bytes=manifest.bucket_bytes,
            recipients=manifest.recipients,
        )

    @cached_property
    def data(self) -> bytes:
        """The roster as canonical JSON."""
        content: dict[str, Any] = {
            "created": self.created,
            "edges": [list(edge) for edge in self.edges],
            "epoch": self.epoch,
            "expires": self.expires,
            "format": _FORMAT,
            "nodes": [member.to_dict() for member in self.members],
            "prev_digest": None if self.prev_digest is None else self.prev_digest.hex(),
            # Called so when a network had one run.
            "run": self.network.hex(),
            "seals_from": self.seals_from,
            "suite": int(self.suite),
            "version": self.version,
        }
        return canonical_json(content)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.data).digest()


def parse_roster(data: bytes, name: str) -> Roster:
    """Return the roster in ``data``, checked in itself; who signed it and when it holds is :func:`load_roster`'s."""
    found = parse_canonical(data, name)
    check_format(found, _FORMAT, name)
    content = check_fields(found, _FIELDS, name)
    for field in _NUMBERS:
        if type(content[field]) is not int:
            raise InputFileError(f"{name}: {field} must be a whole number")
    for field in ("edges", "nodes"):
        if not isinstance(content[field], list):
            raise InputFileError(f"{name}: {field} must be a list")
    suite = parse_suite(content["suite"], name)
    prev = content["prev_digest"]
    try:
        return Roster(
            network=decode_hex(content["run"], RUN_ID_BYTES, f"{name}: run"),
            suite=suite,
            prev_digest=None if prev is None else decode_hex(prev, DIGEST_BYTES, f"{name}: prev_digest"),
            members=tuple(member_from_dict(entry, suite, name) for entry in content["nodes"]),
            edges=tuple(_edge(entry, name) for entry in content["edges"]),
            **{field: content[field] for field in _NUMBERS},
        )
    except (InvalidParameterError, GraphError) as error:
        raise InputFileError(f"{name}: {error}") from None


def load_roster(path: Path, root_public_key: Ed25519PublicKey, now: float, current: Roster | None = None) -> Roster:
    """Return the roster at ``path`` if it may be used at ``now`` by a node that holds ``current``.

    Raises:
        CryptoError: The signature is not the root's.
        ProtocolError: Expired, not yet valid, older than ``current``, or not its successor: a fork or a gap.
        InputFileError: Missing, too large, or malformed.
    """
    roster = read_signed_roster(path, root_public_key)
    check_succession(roster, current, str(path))
    check_time(roster, now, str(path))
    return roster


def read_signed_roster(path: Path, root_public_key: Ed25519PublicKey) -> Roster:
    """Return the roster at ``path`` once its signature is checked, whatever its date: what a node held before."""
    return parse_roster(read_signed(path, _KIND, root_public_key, _FILE_LIMIT), str(path))


def read_roster_draft(path: Path) -> Roster:
    """Return the roster at ``path``, signed or not: for the root's keeper, never for a node."""
    return parse_roster(read_bounded(path, _FILE_LIMIT), str(path))


def check_time(roster: Roster, now: float, name: str) -> None:
    """Refuse a roster that has expired, or that comes from the future by more than clocks differ."""
    check_dates(roster.version, now, created=roster.created, expires=roster.expires, name=name)


def check_succession(roster: Roster, current: Roster | None, name: str) -> None:
    """Refuse a roster that does not follow ``current``; the same one again is accepted."""
    if current is not None and roster.network != current.network:
        raise ProtocolError(f"{name}: of another network")
    check_follows(roster, current, name)
    if current is not None and not current.epoch <= roster.epoch <= current.epoch + 1:
        raise ProtocolError(f"{name}: epoch {roster.epoch} does not follow {current.epoch}")


def sign_roster(path: Path, roster: Roster, root_key: Ed25519PrivateKey) -> None:
    """Write the roster and its signature."""
    sign_file(path, _KIND, roster.data, root_key)


def _edge(entry: object, name: str) -> tuple[str, str]:
    match entry:
        case [str(a), str(b)]:
            return a, b
    raise InputFileError(f"{name}: an edge must be a pair of ids")
