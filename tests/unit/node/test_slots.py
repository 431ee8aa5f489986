"""The slots of a message: each recipient finds its own, and nobody sees whose they are, or whether anybody's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.helpers.sealing import read_slot, split_slots

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import CLEAR_BYTES
from veilwalk.node.sealing import Opener, _kem, _slots
from veilwalk.node.sealing._context import SealContext
from veilwalk.node.sealing._envelope import open_body, open_header, seal
from veilwalk.node.sealing._kem import KemPrivateKey, Suite, kem_private_key, kem_public_bytes, new_kem_secret

PRIME = 2**255 - 19
RARE = 1e-9


def make_context(recipients: int, suite: Suite = Suite.X25519) -> SealContext:
    return SealContext(
        run_id=b"r" * 16,
        suite=suite,
        epoch=3,
        bucket_bytes=16 * 1024,
        recipients=recipients,
    )


def make_keys(count: int, suite: Suite = Suite.X25519) -> tuple[list[bytes], list[KemPrivateKey]]:
    secrets = [new_kem_secret(suite) for _ in range(count)]
    return [kem_public_bytes(suite, one) for one in secrets], [kem_private_key(suite, one) for one in secrets]


def sealed(context: SealContext, publics: list[bytes]) -> bytes:
    return seal(context, publics, walk_tag=bytes(8), iteration=1, body=b"model")


def place_of(context: SealContext, private: KemPrivateKey, message: bytes) -> int:
    """The slot that opens with a key; the header is not needed for that."""
    slots = split_slots(context, message)
    (place,) = [place for place, slot in enumerate(slots) if read_slot(context, private, message, slot) is not None]
    return place


# ---- who opens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize(("recipients", "real"), [(1, 1), (2, 1), (2, 2), (16, 16), (16, 3)])
def test_every_recipient_opens_and_nobody_else(suite: Suite, recipients: int, real: int) -> None:
    """All read the same, whichever is first; the length is the run's, however many slots are somebody's."""
    context = make_context(recipients, suite)
    publics, privates = make_keys(real + 1, suite)
    message = sealed(context, publics[:real])
    assert len(message) == context.message_bytes
    opened = [open_header(context, private, message) for private in privates]
    assert opened[-1] is None
    assert len({found.key for found in opened[:-1] if found is not None}) == 1
    for found in opened[:-1]:
        assert found is not None
        assert open_body(found, message) == b"model"


@settings(max_examples=25, deadline=None)
@given(recipients=st.integers(1, 12), data=st.data())
def test_any_number_of_recipients(recipients: int, data: Any) -> None:
    """From one to as many as there are slots."""
    context = make_context(recipients)
    publics, privates = make_keys(data.draw(st.integers(1, recipients)))
    message = sealed(context, publics)
    assert all(open_header(context, private, message) is not None for private in privates)
    assert len({place_of(context, private, message) for private in privates}) == len(privates)


@settings(max_examples=200, deadline=None)
@given(message=st.binary(max_size=2000))
def test_garbage_is_refused_without_an_error(message: bytes) -> None:
    """Any bytes behind the right start, among them keys of hints that are no points, or of low order."""
    context, (_, privates) = make_context(4), make_keys(1)
    assert open_header(context, privates[0], (context.clear + message).ljust(context.message_bytes, b"\0")) is None


def test_a_slot_that_shows_the_hint_of_another_is_tried_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte fits one in 256 others: all slots may show it, and the own one opens all the same."""
    monkeypatch.setattr(_slots, "_slot_key", lambda *_: bytes(32))
    context, (publics, privates) = make_context(5, Suite.HYBRID), make_keys(6, Suite.HYBRID)
    message = sealed(context, publics[:5])
    assert all(open_header(context, private, message) is not None for private in privates[:5])
    assert open_header(context, privates[5], message) is None


def test_a_relay_tries_few_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """About K in 256 of the messages have a slot to try, and not every message all K."""
    tried: list[int] = []
    context, (publics, _), (_, others) = (
        make_context(16, Suite.HYBRID),
        make_keys(16, Suite.HYBRID),
        make_keys(150, Suite.HYBRID),
    )
    message = sealed(context, publics)
    monkeypatch.setattr(_slots, "HYBRID_HPKE", Counting(tried))
    assert all(open_header(context, other, message) is None for other in others)
    # The mean is 150 * 16 / 256 = 9.4; plain trials would be 2400.
    assert len(tried) < 40


def test_a_format_of_before_is_not_taken() -> None:
    """Its first byte says so: neither kept nor tried."""
    context, (publics, privates) = make_context(1), make_keys(1)
    message = sealed(context, publics)
    opener = Opener([(context, privates[0])], accepted=[context])
    assert opener.is_current(message)
    before = b"\2" + message[1:]
    assert not opener.is_current(before)
    assert opener.open(before) is None


@pytest.mark.parametrize("count", [0, 3])
def test_more_recipients_than_slots_are_refused(count: int) -> None:
    with pytest.raises(InvalidParameterError, match=rf"^public_keys = '{count} keys': must be 1 to 2, none twice$"):
        sealed(make_context(2), make_keys(count)[0])


def test_nobody_has_two_slots() -> None:
    publics, _ = make_keys(1)
    with pytest.raises(InvalidParameterError, match="none twice"):
        sealed(make_context(2), publics * 2)


# ---- what slots give away ----------------------------------------------------------------------------------------


def order_p(context: SealContext, rounds: int = 240) -> float:
    """How likely chance puts the first recipient named into these places."""
    publics, privates = make_keys(context.recipients)
    places = [place_of(context, privates[0], sealed(context, publics)) for _ in range(rounds)]
    return float(stats.chisquare(np.bincount(places, minlength=context.recipients)).pvalue)


def test_slots_stand_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is named first stands anywhere; the mutant that leaves the order as it is, is noticed."""
    assert order_p(make_context(4)) > RARE
    monkeypatch.setattr(_slots._dice, "shuffle", lambda _: None)
    assert order_p(make_context(4)) < RARE


def hints_p(rounds: int = 60) -> float:
    """How likely chance gives these hints to the same recipients."""
    context, (publics, _) = make_context(16, Suite.HYBRID), make_keys(16, Suite.HYBRID)
    hints = [slot[0] for _ in range(rounds) for slot in split_slots(context, sealed(context, publics))]
    return float(stats.chisquare(np.bincount(hints, minlength=256)).pvalue)


def test_hints_are_new_in_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant, a hint that names its recipient in clear, gives 16 values only."""
    assert hints_p() > RARE
    monkeypatch.setattr(_slots, "_slot_key", lambda *values: values[-1])
    assert hints_p() < RARE


@pytest.mark.parametrize("suite", Suite)
def test_slots_do_not_show_for_whom_they_are(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sets of recipients give bytes that look alike, place by place; the mutant leaks the set in clear."""
    context, rounds = make_context(4, suite), 60
    sets = [make_keys(4, suite)[0] for _ in range(2)]

    def p() -> float:
        fronts = [[sealed(context, publics)[: context.geometry.front_bytes] for _ in range(rounds)] for publics in sets]
        assert {front[:CLEAR_BYTES] for front in itertools.chain(*fronts)} == {context.clear}
        counts = [np.bincount(np.frombuffer(b"".join(group), np.uint8), minlength=256) for group in fronts]
        return float(stats.chi2_contingency(np.array(counts)).pvalue)

    assert p() > RARE
    sealed_slots = _slots.sealed_slots
    from veilwalk.node.sealing import _envelope

    def leaking(context: SealContext, publics: Any, key: bytes) -> bytes:
        marks = b"".join(public[-32:] for public in publics)
        return marks + sealed_slots(context, publics, key)[len(marks) :]

    monkeypatch.setattr(_envelope, "sealed_slots", leaking)
    assert p() < RARE


def on_curve(point: bytes) -> bool:
    """Whether 32 bytes are the public key of anybody: half of all numbers are on the curve, the others on its twist."""
    u = int.from_bytes(point, "little") % PRIME
    return pow(u * (u * u + 486662 * u + 1), (PRIME - 1) // 2, PRIME) in {0, 1}


def test_slots_of_nobody_look_like_others() -> None:
    """Their keys are points of the curve, as all are; random bytes, the mutant, are one only every other time."""
    context, (publics, _) = make_context(12, Suite.HYBRID), make_keys(1, Suite.HYBRID)
    slots = [slot for _ in range(5) for slot in split_slots(context, sealed(context, publics))]
    start = 1 + 1120 - 32
    points = [slot[start : start + 32] for slot in slots]
    assert all(on_curve(point) for point in points)
    assert not any(point[31] & 0x80 for point in points)
    assert all(on_curve(X25519PrivateKey.generate().public_key().public_bytes_raw()) for _ in range(20))
    dice = np.random.default_rng(1)
    assert not all(on_curve(dice.bytes(32)) for _ in range(40))


def test_one_real_slot_or_all_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of messages with one recipient and with as many as there are slots; the mutant leaves the rest empty."""
    context, rounds = make_context(8), 60
    publics, _ = make_keys(8)

    def p() -> float:
        groups = [
            b"".join(sealed(context, some)[CLEAR_BYTES : context.geometry.front_bytes] for _ in range(rounds))
            for some in (publics[:1], publics)
        ]
        counts = [np.bincount(np.frombuffer(group, np.uint8), minlength=256) for group in groups]
        return float(stats.chi2_contingency(np.array(counts)).pvalue)

    assert p() > RARE
    real = set(publics)
    original = _slots._sealed_slot

    def empty(context: SealContext, public: bytes, key: bytes, ephemeral: Any) -> bytes:
        slot = original(context, public, key, ephemeral)
        return slot if public in real else bytes(len(slot))

    monkeypatch.setattr(_slots, "_sealed_slot", empty)
    assert p() < RARE


@pytest.mark.parametrize(("recipients", "most"), [(16, 6), (300, 15)])
def test_a_member_tries_a_few_slots_however_many_show_its_byte(
    monkeypatch: pytest.MonkeyPatch, recipients: int, most: int
) -> None:
    """Who seals can put anybody's byte in front of all: at each visit the member would be at it for milliseconds."""
    context, (_, (private,)) = make_context(recipients, Suite.HYBRID), make_keys(1, Suite.HYBRID)
    monkeypatch.setattr(_slots, "_slot_key", lambda *_: bytes(32))
    message = sealed(context, make_keys(1, Suite.HYBRID)[0])
    tried: list[int] = []
    monkeypatch.setattr(_slots, "HYBRID_HPKE", Counting(tried))
    assert open_header(context, private, message) is None
    assert len(tried) == most


class Counting:
    """Notes what is tried."""

    def __init__(self, tried: list[int]) -> None:
        self._tried = tried

    def decrypt(self, *values: Any, **named: Any) -> bytes:
        """Try."""
        self._tried.append(1)
        found: bytes = _kem.HYBRID_HPKE.decrypt(*values, **named)
        return found
