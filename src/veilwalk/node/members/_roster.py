"""The roster: who belongs to a network, with which keys, at which addresses, along which edges.

On a secret overlay it shows less: names, TLS keys, and for each period a shuffled list of keys without names. What a
member needs beside, its :class:`OwnRow`, is sealed for it: :meth:`Roster.open_row` reads it.

Each version ends by itself, so that a node cut off from news notices. A member leaves, or changes a key, by the next
version; nothing else revokes.
A member joins with a *card*, which its TLS key signs.
"""

from __future__ import annotations

import copy
import hashlib
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from veilwalk.core import validate
from veilwalk.core.config import decode
from veilwalk.core.errors import (
    ConfigError,
    CryptoError,
    GraphError,
    InputFileError,
    InvalidParameterError,
    ProtocolError,
)
from veilwalk.node.members._manifest import Manifest
from veilwalk.node.members._signed import (
    MAX_EPOCH,
    SignedDocument,
    check_text,
    parse_canonical,
    read_record,
    write_record,
)
from veilwalk.node.sealing import (
    RUN_ID_BYTES,
    KemPrivateKey,
    SealContext,
    Suite,
    check_kem_public_key,
    need_length,
    open_for_member,
)

if TYPE_CHECKING:
    from veilwalk.graphs import Graph

CARD_LIMIT = 128 * 1024
_CARD_FORMAT = "veilwalk-card-2"
_CARD_KIND = b"veilwalk card signature 1\0"
_CERTIFICATE_LIMIT = 1024
#: A card has keys for so many periods at most, and so has a roster.
MOST_EPOCHS = 64
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_ADDRESS = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):([1-9][0-9]{0,4})", re.ASCII)
_MAX_TIME = 253402300800  # the year 10000


# ---- members -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Member:
    """One node of the roster.

    Args:
        id: Its name.
        address: ``host:port``; empty in the roster of an overlay.
        certificate: What its links show.
        kem: By period, the public key that messages of that period are sealed to; none in the roster of an overlay.
        roster_key: The public key that its rows of rosters are sealed to; on cards.
    """

    id: str
    address: str
    certificate: bytes
    kem: Mapping[int, bytes]
    roster_key: bytes = b""

    def __post_init__(self) -> None:
        check_node_id(self.id)
        if self.address:
            check_address(self.address, self.id)
        if len(self.kem) > MOST_EPOCHS or not all(0 <= epoch < MAX_EPOCH for epoch in self.kem):
            raise InputFileError(f"kem of {self.id}: must hold the keys of at most {MOST_EPOCHS} epochs")
        _check_certificate(self.certificate, self.id)
        object.__setattr__(self, "kem", MappingProxyType(dict(self.kem)))

    @property
    def host(self) -> str:
        """The host part of the address, without brackets."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of the address."""
        return int(self.address.rpartition(":")[2])

    @cached_property
    def tls_spki_sha256(self) -> bytes:
        """SHA-256 of the TLS public key: what a peer is pinned to."""
        return spki_sha256(self.certificate)

    @property
    def fingerprint(self) -> str:
        """The pin in hexadecimal, as people compare it."""
        return self.tls_spki_sha256.hex()

    def check_keys(self, suite: Suite) -> None:
        """Refuse sealing keys that are not of ``suite``, or that nothing can be sealed to."""
        for epoch, key in self.kem.items():
            need_length(suite.public_key_bytes, **{f"kem_{epoch}_of_{self.id}": key})
            try:
                check_kem_public_key(suite, key)
            except CryptoError:
                # Every walk would end with whoever draws this member.
                raise InputFileError(f"kem key of {self.id}: must be one that messages can be sealed to") from None


def check_node_id(name: str) -> None:
    """Refuse what cannot name a node: names stand in certificates and in paths."""
    if not _ID.fullmatch(name):
        raise InputFileError(f"member id {name[:64]!r}: must be 1 to 63 of a-z 0-9 . _ - and begin with a-z 0-9")


def check_address(address: str, name: str) -> None:
    """Refuse what is no address of a member."""
    match = _ADDRESS.fullmatch(address)
    if not match or int(match[2]) > 65535:
        raise InputFileError(f"address {address[:80]!r} of {name}: must be host:port")


def spki_sha256(certificate: bytes) -> bytes:
    """Return SHA-256 of the public key in a DER certificate, as ``ssl`` hands it over after a handshake."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except _BAD_CERTIFICATE:
        raise CryptoError("a certificate was refused") from None
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


@dataclass(frozen=True, kw_only=True)
class _Card:
    """What a member sends to the root to join: public, and signed by its TLS key."""

    member: Member
    suite: Suite
    signature: bytes = b""


def make_card(member: Member, suite: Suite, tls_key: Ed25519PrivateKey) -> bytes:
    """Return the card of a member."""
    content = write_record(_Card(member=member, suite=suite), _CARD_FORMAT)
    return write_record(_Card(member=member, suite=suite, signature=tls_key.sign(_CARD_KIND + content)), _CARD_FORMAT)


def read_card(data: bytes, name: str) -> tuple[Member, Suite]:
    """Return the member on a card, once it is shown to hold its TLS key."""
    card = read_record(_Card, data, _CARD_FORMAT, name)
    check_text(write_record(card, _CARD_FORMAT), data, name)
    member, suite = card.member, card.suite
    if not member.kem or not member.address:
        raise InputFileError(f"{name}: a card needs an address and a key to seal to")
    try:
        member.check_keys(suite)
        need_length(Suite.HYBRID.public_key_bytes, roster_key=member.roster_key)
        check_kem_public_key(Suite.HYBRID, member.roster_key)
    except InvalidParameterError as error:
        raise InputFileError(f"{name}: {error}") from None
    except CryptoError:
        raise InputFileError(f"{name}: roster_key must be one that rows can be sealed to") from None
    content = write_record(_Card(member=member, suite=suite), _CARD_FORMAT)
    try:
        _public_key(member.certificate).verify(card.signature, _CARD_KIND + content)
    except InvalidSignature:
        raise CryptoError(f"{name}: not signed by the key it names") from None
    return member, suite


# What the library raises for certificates that are out of form, one way or another.
_BAD_CERTIFICATE = (
    *(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm),
    *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.InvalidVersion, x509.UnsupportedGeneralNameType),
)


def _check_certificate(certificate: bytes, name: str) -> None:
    """Refuse what this program would not have made: these certificates become trust anchors of TLS."""
    if len(certificate) > _CERTIFICATE_LIMIT:
        raise InputFileError(f"certificate of {name}: must be at most {_CERTIFICATE_LIMIT} bytes")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        parsed.verify_directly_issued_by(parsed)
        constraints = parsed.extensions.get_extension_for_class(x509.BasicConstraints).value
        fit = parsed.subject == subject and not constraints.ca and len(parsed.extensions) == 1
        fit = fit and isinstance(parsed.public_key(), Ed25519PublicKey)
    except _BAD_CERTIFICATE:
        fit = False
    if not fit:
        raise InputFileError(f"certificate of {name}: must be a self-signed Ed25519 leaf for that name")


def _public_key(certificate: bytes) -> Ed25519PublicKey:
    key = x509.load_der_x509_certificate(certificate).public_key()
    assert isinstance(key, Ed25519PublicKey)  # noqa: S101  Member refuses any other
    return key


# ---- roster --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OwnRow:
    """What one member of an overlay reads in a roster, and nobody else. Its repr names nobody.

    Args:
        addresses: Of itself and its neighbours.
        places: Of their keys in the list of each period; -1 where they have none.
        secrets: What goes into every key derivation of each period.
    """

    addresses: Mapping[str, str] = field(repr=False)
    places: Mapping[str, tuple[int, ...]] = field(repr=False)
    secrets: tuple[bytes, ...] = field(repr=False)


def row_info(network: bytes, version: int) -> bytes:
    """Return what the rows of one roster are bound to."""
    return b"veilwalk/3 row" + network + version.to_bytes(8, "big")


@dataclass(frozen=True, kw_only=True, eq=False)
class Roster(SignedDocument):
    """One version of the roster. Node ``i`` of :meth:`graph` is ``members[i]``: they stand in order of their ids.

    Args:
        network: 16 bytes, fresh for each network; it stays through all versions. Runs name it in their manifests.
        suite: How messages are sealed.
        epoch: The first period that members have keys for.
        created: Seconds since 1970; not accepted earlier.
        members: Sorted by id.
        edges: Pairs of ids, the smaller first, sorted.
        seals_from: Seconds since 1970 from when messages are sealed in period ``epoch``. All change over at one time,
            whenever this file reaches them.
        period_s: Seconds of a period; the last one lasts until the roster expires.
        degree: Links of a member of a secret overlay; 0 where the edges are published.
        keys: Of an overlay, the recipient keys of each period from ``epoch`` on, shuffled and without names.
        rows: Of an overlay, the :class:`OwnRow` of each member, sealed for it; all of one length.
    """

    kind = "roster"
    form = "veilwalk-roster-3"
    # Thirteen hybrid keys each for some 3,000 members.
    limit = 64 * 1024 * 1024

    network: bytes
    suite: Suite
    epoch: int
    created: int
    expires: int
    members: tuple[Member, ...]
    edges: tuple[tuple[str, str], ...]
    seals_from: int
    period_s: int
    degree: int = 0
    keys: tuple[tuple[bytes, ...], ...] = ()
    rows: tuple[bytes, ...] = ()

    #: The member's own part of an overlay's roster, once it is opened; by name, what it says of members.
    _row: ClassVar[OwnRow | None] = None
    _known: ClassVar[Mapping[str, Member]] = MappingProxyType({})

    def __post_init__(self) -> None:
        SignedDocument.__post_init__(self)
        need_length(RUN_ID_BYTES, network=self.network)
        validate.integer(0, epoch=self.epoch, created=self.created, seals_from=self.seals_from, expires=self.expires)
        validate.integer(1, period_s=self.period_s)
        if self.epoch >= MAX_EPOCH - 1:
            raise InvalidParameterError("epoch", self.epoch, f"below {MAX_EPOCH - 1}")
        if not self.created < self.expires < _MAX_TIME:
            raise InvalidParameterError("expires", self.expires, f"after created ({self.created})")
        if self.seals_from > self.created:
            raise InvalidParameterError("seals_from", self.seals_from, "not after created: the first period has begun")
        self._check_names()
        if self.is_overlay:
            self._check_overlay()
        else:
            self._check_members()
            self._check_edges()

    def _check_names(self) -> None:
        ids = [member.id for member in self.members]
        if ids != sorted(set(ids)):
            raise InvalidParameterError("nodes", "their ids", "sorted, each once")
        if len({member.tls_spki_sha256 for member in self.members}) != len(ids):
            raise InvalidParameterError("nodes", "their TLS keys", "different")

    def _check_members(self) -> None:
        if self.keys or self.rows:
            raise InvalidParameterError("degree", self.degree, "given with keys and rows: all of an overlay")
        keys = [key for member in self.members for key in member.kem.values()]
        if len(set(keys)) != len(keys):
            raise InvalidParameterError("nodes", "their sealing keys", "different")
        for member in self.members:
            member.check_keys(self.suite)
            if not member.kem or sorted(member.kem) != list(self.key_epochs):
                need = f"one for each period from {self.epoch} on, as many as of all others"
                raise InvalidParameterError(f"sealing keys of {member.id}", sorted(member.kem), need)
            if not member.address:
                raise InvalidParameterError(f"address of {member.id}", "", "host:port")

    def _check_overlay(self) -> None:
        validate.integer(2, degree=self.degree)
        if self.edges or any(member.address or member.kem or member.roster_key for member in self.members):
            raise InvalidParameterError("members", "edges, addresses or keys", "without them: an overlay shows none")
        if not 1 <= len(self.keys) <= MOST_EPOCHS:
            raise InvalidParameterError("keys", f"lists of {len(self.keys)} periods", f"of 1 to {MOST_EPOCHS}")
        keys = [key for keys in self.keys for key in keys]
        if len(set(keys)) != len(keys) or {len(key) for key in keys} != {self.suite.public_key_bytes}:
            raise InvalidParameterError("keys", f"{len(keys)} keys", "different, and all of the suite")
        if len(self.rows) != len(self.members) or len(set(map(len, self.rows))) != 1:
            raise InvalidParameterError("rows", f"{len(self.rows)} rows", "one for each member, all of one length")

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
    def is_overlay(self) -> bool:
        """Whether members know their own links only."""
        return self.degree > 0

    def open_row(self, node_id: str, key: KemPrivateKey) -> Roster:
        """Return the roster with what it says to one member alone; one with published edges as it is.

        Raises:
            ConfigError: The row of that member is not for this key.
        """
        if not self.is_overlay:
            return self
        info = row_info(self.network, self.version)
        try:
            plain = open_for_member(key, self.rows[self.index(node_id)], info)
        except CryptoError:
            need = f"the row of {node_id} in roster version {self.version} is not sealed for the roster key held here"
            raise ConfigError(need) from None
        row = decode(OwnRow, parse_canonical(plain.rstrip(b" "), "row"), where="row", dashes=False)
        known = {}
        for name, address in row.addresses.items():
            listed = zip(self.key_epochs, self.keys, row.places[name], strict=True)
            kem = {epoch: keys[place] for epoch, keys, place in listed if place >= 0}
            known[name] = replace(self.members[self.index(name)], address=address, kem=kem)
        opened = copy.copy(self)
        near = {name: sorted(known.keys() - {name}) if name == node_id else [] for name in known}
        for attribute, value in {"_row": row, "_known": known, "_adjacent": near}.items():
            object.__setattr__(opened, attribute, value)
        return opened

    @property
    def key_epochs(self) -> range:
        """The periods that members have keys for."""
        return range(self.epoch, self.epoch + (len(self.keys) if self.is_overlay else len(self.members[0].kem)))

    def epoch_at(self, now: float) -> int:
        """Return the period that messages are sealed in at ``now``."""
        begun = max(0, int(now - self.seals_from)) // self.period_s
        return min(self.epoch + begun, self.key_epochs[-1])

    def open_epochs(self, now: float) -> range:
        """Return the periods whose messages are opened at ``now``: this, the one before and the next.

        Clocks differ, and messages are on their way when a period begins: they must be opened all the same.
        """
        middle = self.epoch_at(now)
        return range(max(middle - 1, self.epoch), min(middle + 2, self.key_epochs[-1] + 1))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {member.id: index for index, member in enumerate(self.members)}

    @cached_property
    def _adjacent(self) -> dict[str, list[str]]:
        adjacent: dict[str, list[str]] = {member.id: [] for member in self.members}
        for a, b in self.edges:
            adjacent[a].append(b)
            adjacent[b].append(a)
        return adjacent

    def graph(self) -> Graph:
        """Return the network, its nodes called by their ids; of an overlay another one of as many members.

        Only its dealer knows an overlay, and what is worked out from a network is alike for nearly all of one size.
        """
        from veilwalk.graphs import Graph, overlay

        if self.is_overlay:
            size = len(self.members)
            return overlay(size + size * self.degree % 2, self.degree, seed=0)
        edges = [(self._index[a], self._index[b]) for a, b in self.edges]
        return Graph.from_edges(len(self.members), edges, labels=self.ids)

    @cached_property
    def graph_digest(self) -> str:
        """The digest of :meth:`graph`, without loading its kernels; of an overlay that of its size and degree."""
        if self.is_overlay:
            return hashlib.sha256(b"veilwalk-overlay-1 %d %d" % (len(self.members), self.degree)).hexdigest()
        lists = [sorted(self._index[other] for other in self._adjacent[name]) for name in self._index]
        ends = np.cumsum([0, *map(len, lists)], dtype="<i8")
        numbers = np.array([number for near in lists for number in near], dtype="<i8")
        return hashlib.sha256(b"veilwalk-graph-1" + ends.tobytes() + numbers.tobytes()).hexdigest()

    @property
    def n_arcs(self) -> int:
        """How many directed links there are; of an overlay as if nobody's neighbour had left."""
        return len(self.members) * self.degree if self.is_overlay else 2 * len(self.edges)

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
        return self._known.get(node_id) or self.members[self.index(node_id)]

    def neighbours(self, node_id: str) -> tuple[str, ...]:
        """Return the ids that share an edge with ``node_id``, sorted.

        Raises:
            ConfigError: The links are secret, and it is not the member whose row was opened.
        """
        self.index(node_id)
        if self.is_overlay and not self._adjacent.get(node_id):
            raise ConfigError(f"roster version {self.version} shows no links: they are sealed for each member")
        return tuple(sorted(self._adjacent[node_id]))

    def distances(self, node_id: str) -> dict[str, int]:
        """Return how many hops each member is from ``node_id``, nearest first, itself with 0.

        By hand rather than with a Graph, whose kernels take a second to load: a node must start quickly.
        """
        hops, ahead = {node_id: 0}, [node_id]
        for node in ahead:
            for other in self._adjacent[node]:
                if other not in hops:
                    hops[other] = hops[node] + 1
                    ahead.append(other)
        return hops

    def kem_key(self, node_id: str, epoch: int) -> bytes:
        """Return the public key that messages of ``epoch`` to ``node_id`` are sealed to."""
        keys = self.member(node_id).kem
        if epoch not in keys:
            raise InvalidParameterError("epoch", epoch, f"one of {sorted(keys)}")
        return keys[epoch]

    def foreign_keys(self, epoch: int) -> tuple[bytes, ...]:
        """Return the keys of a period without a member's own and its neighbours', in the order of the list."""
        near = {member.kem.get(epoch) for member in self._known.values()}
        return tuple(key for key in self.keys[epoch - self.epoch] if key not in near)

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
        epoch = self.epoch_at(time.time()) if epoch is None else epoch
        return SealContext(
            run_id=manifest.run_id,
            suite=self.suite,
            epoch=epoch,
            secret=b"" if self._row is None else self._row.secrets[epoch - self.epoch],
            bucket_bytes=manifest.bucket_bytes,
            recipients=manifest.recipients,
        )

    @property
    def begins(self) -> int:
        """When it was made."""
        return self.created

    def check_follows(self, current: Self | None, name: str) -> None:
        """Refuse a roster that does not follow ``current``; the same one again is accepted."""
        if current is not None and self.network != current.network:
            raise ProtocolError(f"{name}: of another network")
        SignedDocument.check_follows(self, current, name)
        if current is not None and self.degree != current.degree:
            raise ProtocolError(f"{name}: of degree {self.degree}, not {current.degree}: that needs a new network")
        if current is not None and self.epoch not in current.key_epochs:
            raise ProtocolError(f"{name}: epoch {self.epoch} does not follow {current.epoch}")
