"""The run manifest: what a model looks like on the wire, and what all members agree to run. The root signs it."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from veilwalk.core import validate
from veilwalk.core.errors import InputFileError, InvalidParameterError, ProtocolError, VeilwalkError
from veilwalk.core.payload import array_bytes, check_payload
from veilwalk.node.members._history import check_dates, check_first_link, check_follows
from veilwalk.node.members._law_rule import LawRule
from veilwalk.node.members._member import MAX_EPOCH, parse_suite
from veilwalk.node.members._rules import walks_in
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
from veilwalk.node.sealing import (
    DIGEST_BYTES,
    RUN_ID_BYTES,
    Suite,
    bucket_code,
    bucket_for,
    check_recipients,
    need_length,
)

if TYPE_CHECKING:
    # Types only: learning takes long to import, and a node must start quickly.
    from veilwalk.learning import Params

DTYPES = ("<f2", "<f4", "<f8", "<i4", "<i8")
"""What arrays may hold, always little-endian."""

_FORMAT = "veilwalk-manifest-2"
#: What no later version of a manifest may change: messages under way, and models on disk, would fit no more.
FIXED = ("run_id", "network", "suite", "arrays", "payload", "recipients", "seed")
_KIND = "manifest"
_FILE_LIMIT = 4 * 1024 * 1024
_MAX_ARRAYS = 10_000
_MAX_DIMENSIONS = 8
_MAX_SIZE = 2**31
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}", re.ASCII)
_TEXT = re.compile(r"[ -~]{0,400}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """Name, shape and type of one array of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidParameterError("name", self.name[:80], "1 to 200 letters, digits, _ . / -")
        if self.dtype not in DTYPES:
            raise InvalidParameterError("dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        for size in self.shape:
            validate.integer(shape=size)
        if len(self.shape) > _MAX_DIMENSIONS or not all(0 < size < _MAX_SIZE for size in self.shape):
            raise InvalidParameterError("shape", self.shape, f"at most {_MAX_DIMENSIONS} positive sizes")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One run: its id, the arrays of its model in the order they travel, and what everybody runs.

    Args:
        run_id: 16 bytes, fresh for each run.
        network: Whose members run it, by the id in their roster; the run's own id unless given.
        arrays: The model; fixes the order, shape and type of every array.
        payload: How their numbers travel (:mod:`veilwalk.core.payload`).
        suite: How messages are sealed.
        norm_bound: The largest Euclidean norm of a model that is accepted.
        learner: The learner and its settings, as its own text.
        walk: The walk and the other rules all members follow, as their own text.
        law: The destination law as a rule (:class:`LawRule`), by which it follows every change of the roster; empty
            where it is a file.
        law_digest: SHA-256 of the file of the destination law (hexadecimal); empty where it is a rule.
        graph_digest: The digest of the graph that law and rules were designed for.
        recipients: For how many members a message is sealed, the first of whom opens it.
        test_digest: SHA-256 of the public test set (hexadecimal); empty where the run has none.
        seed: Seed of the learner's own draws (start, batches). Walks draw from the OS source.
        version: 1 for the first, then one more each time.
        prev_digest: Digest of the version before, None for the first.
        expires: Seconds since 1970 from when it is not accepted any more; None for never.
    """

    run_id: bytes
    arrays: tuple[ArraySpec, ...]
    suite: Suite
    norm_bound: float
    learner: str
    walk: str
    graph_digest: str
    seed: int
    payload: str = "fp32"
    law: str = ""
    law_digest: str = ""
    network: bytes = b""
    recipients: int = 1
    test_digest: str = ""
    version: int = 1
    prev_digest: bytes | None = None
    expires: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", self.network or self.run_id)
        need_length(RUN_ID_BYTES, run_id=self.run_id, network=self.network)
        if not 1 <= len(self.arrays) <= _MAX_ARRAYS or len({spec.name for spec in self.arrays}) != len(self.arrays):
            raise InvalidParameterError("arrays", f"{len(self.arrays)} arrays", f"1 to {_MAX_ARRAYS}, no name twice")
        check_payload(self.payload)
        validate.more_than(0, norm_bound=self.norm_bound)
        validate.finite(norm_bound=self.norm_bound)
        validate.integer(seed=self.seed)
        validate.at_least(0, seed=self.seed)
        check_recipients(self.recipients)
        for name in ("learner", "walk"):
            if not _TEXT.fullmatch(getattr(self, name)):
                raise InvalidParameterError(name, getattr(self, name)[:80], "at most 400 printable ASCII characters")
        if bool(self.law) == bool(self.law_digest):
            raise InvalidParameterError("law", self.law, "a rule, or a file named by law_digest, and not both")
        if self.law:
            LawRule.of(self.law)
        for name in ("law_digest", "graph_digest", "test_digest"):
            if getattr(self, name) or name == "graph_digest":
                decode_hex(getattr(self, name), DIGEST_BYTES, name)
        validate.integer(version=self.version, expires=self.expires or 0)
        validate.at_least(1, version=self.version)
        if self.version >= MAX_EPOCH:
            raise InvalidParameterError("version", self.version, f"below {MAX_EPOCH}")
        check_first_link(self.version, self.prev_digest)
        bucket_for(self.body_bytes)

    @cached_property
    def body_bytes(self) -> int:
        """Length of an encoded model."""
        return sum(array_bytes(self.payload, spec.shape, spec.dtype) for spec in self.arrays)

    @cached_property
    def bucket_bytes(self) -> int:
        """What every body of the run is padded to: the smallest bucket that holds the model."""
        return bucket_for(self.body_bytes)

    def to_bytes(self) -> bytes:
        """Return the manifest as canonical JSON."""
        arrays = [{"dtype": spec.dtype, "name": spec.name, "shape": list(spec.shape)} for spec in self.arrays]
        return canonical_json(
            {
                "arrays": arrays,
                "bucket": bucket_code(self.bucket_bytes),
                "expires": self.expires,
                "format": _FORMAT,
                "graph_digest": self.graph_digest,
                "law": self.law,
                "law_digest": self.law_digest,
                "learner": self.learner,
                **({} if self.network == self.run_id else {"network": self.network.hex()}),
                "norm_bound": float(self.norm_bound),
                **({} if self.payload == "fp32" else {"payload": self.payload}),
                "prev_digest": None if self.prev_digest is None else self.prev_digest.hex(),
                "recipients": int(self.recipients),
                "run": self.run_id.hex(),
                "seed": int(self.seed),
                "suite": int(self.suite),
                "test_digest": self.test_digest,
                "version": int(self.version),
                "walk": self.walk,
            }
        )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.to_bytes()).digest()


_FIELDS = (
    *("arrays", "bucket", "expires", "format", "graph_digest", "law", "law_digest", "learner"),
    *("norm_bound", "prev_digest", "recipients", "run", "seed", "suite", "test_digest", "version", "walk"),
)
_TEXTS = ("graph_digest", "law", "law_digest", "learner", "payload", "test_digest", "walk")
#: What was not there from the beginning is left out where it says what was so then.
_LATER = {"network": "", "payload": "fp32"}


def array_specs(params: Params) -> tuple[ArraySpec, ...]:
    """Return the specs of ``params`` in their order; types of the other byte order are named by their value."""
    return tuple(
        ArraySpec(name=name, shape=tuple(array.shape), dtype=array.dtype.newbyteorder("<").str)
        for name, array in params.items()
    )


def parse_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in ``data``, checked; its signature is :func:`load_manifest`'s business."""
    found = parse_canonical(data, name)
    check_format(found, _FORMAT, name)
    content = check_fields(_LATER | found, (*_LATER, *_FIELDS), name)
    if content["network"] == content["run"]:
        raise InputFileError(f"{name}: network: must be left out where it is the run's own")
    if found.get("payload") == _LATER["payload"]:
        raise InputFileError(f"{name}: payload: must be left out where it is {_LATER['payload']}")
    try:
        manifest = Manifest(
            run_id=decode_hex(content["run"], RUN_ID_BYTES, "run"),
            network=decode_hex(content["network"] or content["run"], RUN_ID_BYTES, "network"),
            arrays=tuple(_array_spec(entry, name) for entry in _typed(content, "arrays", list)),
            suite=parse_suite(content["suite"], name),
            norm_bound=_typed(content, "norm_bound", float),
            seed=_typed(content, "seed", int),
            recipients=_typed(content, "recipients", int),
            version=_typed(content, "version", int),
            prev_digest=None
            if content["prev_digest"] is None
            else decode_hex(content["prev_digest"], DIGEST_BYTES, "prev_digest"),
            expires=None if content["expires"] is None else _typed(content, "expires", int),
            **{field: _typed(content, field, str) for field in _TEXTS},
        )
    except InputFileError:
        raise
    except VeilwalkError as error:
        raise InputFileError(f"{name}: {error}") from None
    if manifest.to_bytes() != data:
        raise InputFileError(f"{name}: the bucket is not the one of this model")
    return manifest


def sign_manifest(path: Path, manifest: Manifest, root_key: Ed25519PrivateKey) -> None:
    """Write the manifest and its signature."""
    sign_file(path, _KIND, manifest.to_bytes(), root_key)


def load_manifest(
    path: Path, root_public_key: Ed25519PublicKey, now: float | None = None, current: Manifest | None = None
) -> Manifest:
    """Return the manifest at ``path`` if it may be used at ``now`` by a node that holds ``current``.

    Raises:
        CryptoError: The signature is not the root's.
        ProtocolError: Expired, older than ``current``, not its successor, or with another model than it.
        InputFileError: Missing, too large, or malformed.
    """
    manifest = read_signed_manifest(path, root_public_key)
    check_manifest_follows(manifest, current, str(path))
    check_manifest_time(manifest, time.time() if now is None else now, str(path))
    return manifest


def read_signed_manifest(path: Path, root_public_key: Ed25519PublicKey) -> Manifest:
    """Return the manifest at ``path`` once its signature is checked, whatever its date: what a node held before."""
    return parse_manifest(read_signed(path, _KIND, root_public_key, _FILE_LIMIT), str(path))


def read_manifest_draft(path: Path) -> Manifest:
    """Return the manifest at ``path``, signed or not: for the root's keeper, and of what a node has checked before."""
    return parse_manifest(read_bounded(path, _FILE_LIMIT), str(path))


def check_manifest_follows(manifest: Manifest, current: Manifest | None, name: str) -> None:
    """Refuse a manifest that does not follow ``current``, or changes what messages under way must fit."""
    if current is not None and manifest.run_id != current.run_id:
        raise ProtocolError(f"{name}: of another run than the one before: a new run begins with an empty state folder")
    check_follows(manifest, current, name)
    for field in FIXED if current is not None else ():
        if getattr(manifest, field) != getattr(current, field):
            raise ProtocolError(f"{name}: version {manifest.version} has other {field}: that needs a new run")
    if current is not None and walks_in(manifest.walk) != walks_in(current.walk):
        raise ProtocolError(f"{name}: version {manifest.version} has other walks: that needs a new run")


def check_manifest_time(manifest: Manifest, now: float, name: str) -> None:
    """Refuse a manifest that has expired."""
    check_dates(manifest.version, now, created=0, expires=manifest.expires, name=name)


def changed_manifest(previous: Manifest, **changes: Any) -> Manifest:
    """Return the version after ``previous`` with some fields changed; what no version may change is refused."""
    manifest = replace(previous, **changes, version=previous.version + 1, prev_digest=previous.digest)
    check_manifest_follows(manifest, previous, "manifest")
    return manifest


def _array_spec(content: object, name: str) -> ArraySpec:
    fields = check_fields(content, ("dtype", "name", "shape"), f"{name}: arrays")
    shape = _typed(fields, "shape", list)
    return ArraySpec(name=_typed(fields, "name", str), shape=tuple(shape), dtype=_typed(fields, "dtype", str))


def _typed(content: Mapping[str, Any], field: str, kind: type) -> Any:
    value = content[field]
    # Exactly that type: JSON's true is no number here.
    if type(value) is not kind:
        raise InputFileError(f"{field}: must be a {kind.__name__}")
    return value
