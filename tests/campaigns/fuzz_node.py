# ruff: noqa: SIM105  a plain try is quicker, ten million times
"""Fuzz what a node reads from others: frames, sealed messages, rosters, manifests, models.

    python -m tests.campaigns.fuzz_node wire -runs=10000000
    python -m tests.campaigns.fuzz_node header -max_total_time=60

Coverage-guided (atheris, libFuzzer): its options follow the target. Anything but our own refusals ends the run.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import numpy as np

with atheris.instrument_imports(include=["veilwalk.node"]):
    from tests.helpers.wire import feed
    from veilwalk.node.link import _wire
    from veilwalk.node.members import _encoding, _keys, _manifest, _roster, canonical_json
    from veilwalk.node.sealing import _context, _envelope, _kem

from tests.helpers.manifests import make_test_manifest
from veilwalk.core.errors import CryptoError, InputFileError, ProtocolError

LENGTH = 96
_HELLO = _wire.Hello(_wire.PROTOCOL, _wire.PROTOCOL, 1, bytes(32), 1, bytes(32), bytes(16), bytes(8))


def wire(data: bytes) -> None:
    """Bytes at either end of a conversation, greeted or not; the first byte says which."""
    role: _wire.Role = "dialer" if data[:1] < b"\x80" else "listener"
    end = _wire.Wire(role, message_bytes=LENGTH)
    if data[:1] and data[0] & 1:
        if role == "listener":
            feed(end, _wire.encode(_HELLO))
            end.send(_HELLO)
        else:
            end.send(_HELLO)
            feed(end, _wire.encode(_HELLO))
            end.send(_wire.Offer(bytes(16), LENGTH, bytes(32)))
    try:
        feed(end, data[1:])
    except ProtocolError:
        pass
    if len(end.body) > LENGTH:
        raise AssertionError("more memory than one message")


_SUITE = _kem.Suite.X25519
_KEY = _kem.kem_private_key(_SUITE, bytes(range(32)))
_CONTEXTS = [
    _context.SealContext(
        run_id=bytes(16),
        suite=_SUITE,
        epoch=0,
        bucket_bytes=16 * 1024,
        recipients=recipients,
    )
    for recipients in (1, 5)
]
_MESSAGES = [
    _envelope.seal(
        context, [_kem.kem_public_bytes(_SUITE, bytes(range(32)))], walk_tag=bytes(8), iteration=1, body=b"model"
    )
    for context in _CONTEXTS
]


def header(data: bytes) -> None:
    """A message, for one or for several, with bytes overwritten somewhere: it opens as it was, or not at all."""
    if len(data) < 3:
        return
    context, original = _CONTEXTS[data[0] & 1], _MESSAGES[data[0] & 1]
    at = int.from_bytes(data[:2], "big") // 2 % len(original)
    message = bytearray(original)
    message[at : at + len(data) - 2] = data[2:]
    opened = _envelope.open_header(context, _KEY, message)
    if opened is None:
        return
    try:
        body = _envelope.open_body(opened, message)
    except CryptoError:
        return
    if body != b"model":
        raise AssertionError("a changed message opened")


_MANIFEST = make_test_manifest(
    {"a": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.int64)}, suite=_SUITE, norm_bound=100.0
)


def _members() -> tuple[_roster.Member, ...]:
    """Two members, made once; what is in their keys does not matter here."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(
            _keys.new_node_keys(Path(folder) / name, node_id=name, address="127.0.0.1:7100", suite=_SUITE).member
            for name in ("a", "b")
        )


_ROSTER = _roster.Roster(
    network=bytes(16),
    suite=_SUITE,
    version=1,
    epoch=0,
    created=0,
    expires=10,
    prev_digest=None,
    members=_members(),
    edges=(("a", "b"),),
    seals_from=0,
    period_s=5,
)
_TEMPLATES = {"roster": json.loads(_ROSTER.data), "manifest": json.loads(_MANIFEST.data)}


def _mutated(name: str, data: bytes) -> bytes:
    """A document in canonical form with some of its values replaced: past the parser, into the checks."""
    source = atheris.FuzzedDataProvider(data)
    content = copy.deepcopy(_TEMPLATES[name])
    for _ in range(source.ConsumeIntInRange(0, 3)):
        place: Any = content
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = source.PickValueInList(keys)
            if isinstance(place[key], dict | list) and source.ConsumeBool():
                place = place[key]
                continue
            place[key] = _value(source)
            break
    return canonical_json(content)


def _value(source: Any) -> Any:
    make = source.PickValueInList(
        [
            lambda: source.ConsumeInt(8),
            lambda: source.ConsumeUnicodeNoSurrogates(40),
            lambda: None,
            lambda: [source.ConsumeUnicodeNoSurrogates(8), source.ConsumeInt(2)],
            lambda: {source.ConsumeUnicodeNoSurrogates(8): source.ConsumeInt(2)},
            lambda: float(source.ConsumeInt(8)),
            source.ConsumeBool,
        ]
    )
    return make()


def roster(data: bytes) -> None:
    """Bytes as a roster: as they are, and as changes to a good one."""
    for text in (data, _mutated("roster", data)):
        try:
            _roster.Roster.parse(text, "roster")
        except (InputFileError, CryptoError):
            pass


def manifest(data: bytes) -> None:
    """Bytes as a manifest: as they are, and as changes to a good one."""
    for text in (data, _mutated("manifest", data)):
        try:
            _manifest.Manifest.parse(text, "manifest")
        except InputFileError:
            pass


def model(data: bytes) -> None:
    """Any bytes as a model."""
    try:
        _encoding.decode_params(_MANIFEST, data)
    except ProtocolError:
        pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    "wire": wire,
    "header": header,
    "roster": roster,
    "manifest": manifest,
    "model": model,
}


def main() -> None:
    """Fuzz the target named first."""
    name = sys.argv.pop(1)
    target = TARGETS[name]
    atheris.instrument_func(target)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
