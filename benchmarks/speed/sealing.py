"""Sealing and opening against the cipher alone, one-shot HPKE, NaCl boxes and homomorphic addition.

Run ``python -m benchmarks.speed.sealing`` with the ``bench`` extra installed. Contenders take turns in one process, on
buffers that are reused where their interface allows; each line gives the median of the rounds, and the median
[min-max] of the per-round ratio to the first line, raw AES-256-GCM. Goals: sealing 100 MiB within 2 x of it; a relay
that finds none of 16 slots its own does so within 0.25 ms at any size. A peer that cannot be imported is reported as
missing.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.speed._harness import Contender, in_turns, peer, spread
from veilwalk.core.geometry import CLEAR_BYTES, EPHEMERAL_BYTES
from veilwalk.node.sealing import (
    Header,
    KemPrivateKey,
    SealContext,
    Suite,
    bucket_for,
    kem_private_key,
    kem_public_bytes,
    new_kem_secret,
    open_body,
    seal,
)
from veilwalk.node.sealing._envelope import open_header, seal_into
from veilwalk.node.sealing._kem import HYBRID_HPKE, kem_public_key

KIB, MIB = 1024, 1024 * 1024
SIZES = {"64 KiB": 64 * KIB, "1 MiB": MIB, "10 MiB": 10 * MIB, "100 MiB": 100 * MIB}
GOAL = 2.0
RECIPIENTS, REJECT_GOAL_MS = 16, 0.25
# Ciphertexts of CKKS are 8 to 20 times the size: beyond this they need gigabytes and minutes.
CKKS_MOST = 10 * MIB


@dataclass(frozen=True, slots=True)
class Party:
    """A recipient of one suite, with the context of its messages."""

    context: SealContext
    public: bytes
    private: KemPrivateKey

    @classmethod
    def of(cls, suite: Suite, size: int, recipients: int = 1) -> Party:
        """Return a fresh recipient for bodies of ``size``."""
        secret = new_kem_secret(suite)
        context = SealContext(
            run_id=bytes(16),
            suite=suite,
            epoch=0,
            bucket_bytes=bucket_for(size),
            recipients=recipients,
        )
        return cls(context, kem_public_bytes(suite, secret), kem_private_key(suite, secret))


def header_for(body: bytes) -> Header:
    """Return a header for ``body``."""
    return Header(update_id=os.urandom(16), walk_tag=bytes(8), iteration=0, body_length=len(body))


def seal_contenders(body: bytes) -> dict[str, Contender]:
    """Return the ways to seal ``body``."""
    cipher, out = AESGCM(os.urandom(32)), bytearray(len(body) + 16)
    found: dict[str, Contender] = {"raw AES-256-GCM": lambda: cipher.encrypt_into(os.urandom(12), body, None, out)}
    for suite in Suite:
        party = Party.of(suite, len(body))
        found[f"veilwalk, {suite.name}, into a buffer"] = _into_buffer(party, body)
    several = Party.of(Suite.HYBRID, len(body), RECIPIENTS)
    found[f"veilwalk, HYBRID, {RECIPIENTS} slots, into a buffer"] = _into_buffer(several, body)
    found["veilwalk, HYBRID, fresh bytes"] = lambda: seal(
        party.context, [party.public], walk_tag=bytes(8), iteration=0, body=body
    )
    key = kem_public_key(Suite.HYBRID, party.public)
    found["one-shot HPKE, HYBRID"] = lambda: HYBRID_HPKE.encrypt(body, key, info=b"info")
    if (nacl := peer("nacl.public")) is not None:
        found["NaCl SealedBox"] = lambda: nacl.SealedBox(nacl.PrivateKey.generate().public_key).encrypt(body)
    return found


def open_contenders(body: bytes) -> dict[str, Contender]:
    """Return the ways to open what holds ``body``."""
    cipher, out, nonce = AESGCM(os.urandom(32)), bytearray(len(body)), bytes(12)
    box = cipher.encrypt(nonce, body, None)
    found: dict[str, Contender] = {"raw AES-256-GCM": lambda: cipher.decrypt_into(nonce, box, None, out)}
    for suite in Suite:
        party = Party.of(suite, len(body))
        found[f"veilwalk, {suite.name}"] = _opening(party, body)
    one_shot = HYBRID_HPKE.encrypt(body, kem_public_key(Suite.HYBRID, party.public), info=b"info")
    found["one-shot HPKE, HYBRID"] = lambda: HYBRID_HPKE.decrypt(one_shot, party.private.whole, info=b"info")
    if (nacl := peer("nacl.public")) is not None:
        private = nacl.PrivateKey.generate()
        sealed = nacl.SealedBox(private.public_key).encrypt(body)
        found["NaCl SealedBox"] = lambda: nacl.SealedBox(private).decrypt(sealed)
    return found


def failing_contenders(body: bytes) -> dict[str, Contender]:
    """Return what a relay does to each message: try to open it, and fail."""
    found: dict[str, Contender] = {}
    for suite in Suite:
        party, other = Party.of(suite, len(body)), Party.of(suite, len(body))
        message = seal(party.context, [party.public], walk_tag=bytes(8), iteration=0, body=body)
        found[f"veilwalk, {suite.name}"] = _failing(party.context, other.private, message)
        several = Party.of(suite, len(body), RECIPIENTS)
        message = seal(several.context, [several.public], walk_tag=bytes(8), iteration=0, body=body)
        found[_slots_of(suite)] = _failing_anybody(several.context, suite, message)
    found[f"veilwalk, HYBRID, {RECIPIENTS} slots, plain trials"] = _trying_all(several, other.private, message)
    one_shot = HYBRID_HPKE.encrypt(body, kem_public_key(Suite.HYBRID, party.public), info=b"info")
    refuse = HYBRID_HPKE.decrypt
    found["one-shot HPKE, HYBRID"] = lambda: _refused(
        lambda: refuse(one_shot, other.private.whole, info=b"info"), InvalidTag
    )
    if (nacl := peer("nacl.public")) is not None:
        sealed = nacl.SealedBox(nacl.PrivateKey.generate().public_key).encrypt(body)
        box, error = nacl.SealedBox(nacl.PrivateKey.generate()), importlib.import_module("nacl.exceptions").CryptoError
        found["NaCl SealedBox"] = lambda: _refused(lambda: box.decrypt(sealed), error)
    return found


def sum_contenders(body: bytes) -> dict[str, Contender]:
    """Return seal + open beside what CKKS needs to add one vector of the same size: encrypt, add, decrypt."""
    party = Party.of(Suite.HYBRID, len(body))

    message = bytearray(party.context.message_bytes)

    def ours() -> None:
        seal_into(party.context, [party.public], header_for(body), body, message)
        header = open_header(party.context, party.private, message)
        if header is not None:
            open_body(header, message)

    found: dict[str, Contender] = {"veilwalk, HYBRID, seal + open": ours}
    if (tenseal := peer("tenseal")) is not None and len(body) <= CKKS_MOST:
        context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 60])
        context.global_scale = 2**40
        slots = 4096
        vectors = np.random.default_rng(0).normal(size=(-(-len(body) // 4 // slots), slots))
        found["TenSEAL CKKS 8192 [60, 60], encrypt + add + decrypt"] = lambda: _ckks_addition(tenseal, context, vectors)
    return found


@dataclass(frozen=True, slots=True)
class Timing:
    """A contender's median time, and its median ratio to the first."""

    milliseconds: float
    ratio: float


def compare(title: str, contenders: Mapping[str, Contender], rounds: int, calls: int = 1) -> dict[str, Timing]:
    """Time the contenders in turns after one turn to warm up; print the table and return it."""
    print(f"\n{title}, {rounds} rounds")
    for run in contenders.values():
        run()
    times = in_turns(contenders, rounds, calls=calls)
    first = next(iter(times.values()))
    for name, seconds in times.items():
        shown = spread(seconds / first, ".2f")
        print(f"  {name:52s} {np.median(seconds) * 1e3:11.3f} ms   {shown} x the first")
    return {
        name: Timing(1e3 * float(np.median(seconds)), float(np.median(seconds / first)))
        for name, seconds in times.items()
    }


def main() -> None:
    """Run the comparisons and say whether the goal is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each comparison")
    parser.add_argument("--ckks-rounds", type=int, default=1, help="rounds of the comparison with CKKS; 0 for none")
    arguments = parser.parse_args()
    for name in ("nacl.public", "tenseal"):
        if peer(name) is None:
            print(f"MISSING: {name} is not installed, not compared")
    rejected: dict[str, float] = {}
    for label, size in SIZES.items():
        body, calls = os.urandom(size), max(1, 4 * MIB // size)
        ratios = compare(f"seal {label}", seal_contenders(body), arguments.rounds, calls)
        compare(f"open {label}", open_contenders(body), arguments.rounds, calls)
        refusals = compare(f"fail to open {label}", failing_contenders(body), arguments.rounds, calls)
        rejected |= {f"{suite.name}, {label}": refusals[_slots_of(suite)].milliseconds for suite in Suite}
        if arguments.ckks_rounds:
            compare(f"one addition, float32 vector of {label}", sum_contenders(body), arguments.ckks_rounds)
    reached = ratios["veilwalk, HYBRID, into a buffer"].ratio
    verdict = "met" if reached <= GOAL else "MISSED"
    print(f"\ngoal: sealing 100 MiB within {GOAL} x of raw AES-256-GCM: {reached:.2f} x, {verdict}")
    slowest = max(rejected, key=lambda name: rejected[name])
    verdict = "met" if rejected[slowest] <= REJECT_GOAL_MS else "MISSED"
    what = f"no slot of {RECIPIENTS} one's own, found within {REJECT_GOAL_MS} ms at any size"
    print(f"goal: {what}: {rejected[slowest]:.3f} ms at most ({slowest}), {verdict}")


def _into_buffer(party: Party, body: bytes) -> Contender:
    out = bytearray(party.context.message_bytes)
    return lambda: seal_into(party.context, [party.public], header_for(body), body, out)


def _opening(party: Party, body: bytes) -> Contender:
    message = seal(party.context, [party.public], walk_tag=bytes(8), iteration=0, body=body)

    def run() -> object:
        header = open_header(party.context, party.private, message)
        return header and open_body(header, message)

    return run


def _failing(context: SealContext, private: KemPrivateKey, message: bytes) -> Contender:
    return lambda: open_header(context, private, message)


def _slots_of(suite: Suite) -> str:
    return f"veilwalk, {suite.name}, {RECIPIENTS} slots"


def _failing_anybody(context: SealContext, suite: Suite, message: bytes) -> Contender:
    """A hint fits a stranger now and then, who then tries a slot: so everybody has a turn."""
    strangers = itertools.cycle([kem_private_key(suite, new_kem_secret(suite)) for _ in range(256)])
    return lambda: open_header(context, next(strangers), message)


def _trying_all(party: Party, stranger: KemPrivateKey, message: bytes) -> Contender:
    """What a relay would do without hints."""
    context, geometry = party.context, party.context.geometry
    view, first = memoryview(message), CLEAR_BYTES + EPHEMERAL_BYTES + 1
    size = geometry.slot_bytes - 1
    slots = [view[at : at + size] for at in range(first, geometry.front_bytes, geometry.slot_bytes)]

    def run() -> None:
        for slot in slots:
            _refused(partial(HYBRID_HPKE.decrypt, slot, stranger.whole, info=context.info), InvalidTag)

    return run


def _refused(run: Contender, error: type[Exception]) -> None:
    try:
        run()
    except error:
        return
    raise AssertionError("a box opened under the wrong key")


def _ckks_addition(tenseal: Any, context: Any, vectors: np.ndarray[Any, Any]) -> None:
    for vector in vectors:
        one = tenseal.ckks_vector(context, vector)
        (one + one).decrypt()


if __name__ == "__main__":
    main()
