"""The protocol between two neighbours, without any network."""

from __future__ import annotations

from itertools import product

import pytest
from tests.helpers.wire import feed

from veilwalk.core.errors import ProtocolError
from veilwalk.node.link._wire import (
    PROTOCOL,
    TRANSITIONS,
    Ack,
    Frame,
    Go,
    Hello,
    Nak,
    Offer,
    Ping,
    Refusal,
    Role,
    State,
    Wire,
    encode,
)

LENGTH = 1000
KEY, OTHER = b"k" * 16, b"o" * 16
HELLO = Hello(
    highest=PROTOCOL,
    lowest=PROTOCOL,
    roster_version=3,
    roster_digest=b"d" * 32,
    manifest_version=2,
    manifest_digest=b"m" * 32,
    run=b"r" * 16,
    incarnation=b"i" * 8,
)
FRAMES: list[Frame] = [
    HELLO,
    Offer(KEY, LENGTH, b"h" * 32),
    Ack(KEY),
    Refusal(KEY, Nak.BUSY),
    Ping(),
    Go(KEY),
]
ROLES: tuple[Role, ...] = ("dialer", "listener")


def pair() -> tuple[Wire, Wire]:
    return Wire("dialer", message_bytes=LENGTH), Wire("listener", message_bytes=LENGTH)


def brought_to(state: State) -> tuple[Wire, Wire]:
    """Both ends of a conversation that has come to ``state``."""
    dialer, listener = pair()
    steps: dict[State, list[tuple[Role, Frame]]] = {
        State.NEW: [],
        State.GREETED: [("dialer", HELLO)],
        State.IDLE: [("dialer", HELLO), ("listener", HELLO)],
    }
    steps[State.OFFERED] = [*steps[State.IDLE], ("dialer", FRAMES[1])]
    steps[State.GIVEN] = [*steps[State.OFFERED], ("listener", Ack(KEY)), ("dialer", Go(KEY))]
    steps[State.PINGED] = [*steps[State.IDLE], ("dialer", Ping())]
    for sender, frame in steps[state]:
        say(dialer if sender == "dialer" else listener, listener if sender == "dialer" else dialer, frame)
    assert dialer.state == listener.state == state
    return dialer, listener


def say(sender: Wire, receiver: Wire, frame: Frame) -> None:
    body = bytes(LENGTH) if isinstance(frame, Offer) else b""
    assert feed(receiver, sender.send(frame) + body) == [frame]


@pytest.mark.parametrize(("role", "state", "frame"), list(product(ROLES, State, FRAMES)), ids=str)
def test_what_the_table_lists_is_allowed_and_nothing_else(role: Role, state: State, frame: Frame) -> None:
    """Both ends agree on it: the sender cannot send, and the receiver does not take, what is not in the table."""
    dialer, listener = brought_to(state)
    sender, receiver = (dialer, listener) if role == "dialer" else (listener, dialer)
    after = TRANSITIONS.get((role, state, type(frame)))
    if after is not None:
        say(sender, receiver, frame)
        assert sender.state == receiver.state == after
        return
    with pytest.raises(ProtocolError, match="not allowed"):
        sender.send(frame)
    with pytest.raises(ProtocolError, match="not allowed"):
        feed(receiver, encode(frame))


def test_a_refused_frame_is_refused_at_its_first_byte() -> None:
    """Nothing of it needs to be read, so nothing of it can do harm."""
    _, listener = brought_to(State.IDLE)
    with pytest.raises(ProtocolError):
        feed(listener, encode(Ack(KEY))[:1])


@pytest.mark.parametrize("length", [0, LENGTH - 1, LENGTH + 1, 2**32 - 1])
def test_a_message_of_another_length_is_refused_before_memory_is_taken(length: int) -> None:
    """The run's length is the only one."""
    _, listener = brought_to(State.IDLE)
    with pytest.raises(ProtocolError, match=str(length)):
        feed(listener, encode(Offer(KEY, length, b"h" * 32)))
    assert len(listener.body) == 0


def test_an_answer_to_another_key_is_refused() -> None:
    """An acknowledgement of what was not offered would let a message go that is nowhere."""
    dialer, _ = brought_to(State.OFFERED)
    with pytest.raises(ProtocolError, match="another key"):
        feed(dialer, encode(Ack(OTHER)))


def test_an_unknown_type_is_refused() -> None:
    _, listener = brought_to(State.IDLE)
    with pytest.raises(ProtocolError, match="type 200"):
        feed(listener, b"\xc8")


def test_the_body_arrives_whatever_the_pieces() -> None:
    """Byte by byte or all at once."""
    body = bytes(range(256)) * 4
    frame = Offer(KEY, LENGTH, b"x" * 32)
    for step in (1, 7, LENGTH):
        dialer, listener = brought_to(State.IDLE)
        stream = dialer.send(frame) + body[:LENGTH]
        found = [f for start in range(0, len(stream), step) for f in feed(listener, stream[start : start + step])]
        assert found == [frame]
        assert bytes(listener.body) == body[:LENGTH]


def test_every_frame_has_one_length() -> None:
    """So that the length of what crosses a link tells its type at most."""
    for frame in FRAMES:
        assert len(encode(frame)) == 1 + frame.layout.size
    assert encode(Ack(KEY)) != encode(Ack(OTHER))
