"""Whatever a peer sends, the parser answers with frames or a refusal, in bounded memory."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.helpers.wire import feed

from veilwalk.core.errors import ProtocolError
from veilwalk.node.link._wire import (
    PROTOCOL,
    TRANSITIONS,
    Ack,
    Frame,
    Go,
    Hello,
    Offer,
    Ping,
    Refusal,
    Role,
    Wire,
    encode,
)

LENGTH = 64
numbers = st.integers(0, 2**63 - 1)
keys = st.binary(min_size=16, max_size=16)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(
        Hello,
        st.integers(PROTOCOL, 255),
        st.integers(0, 255),
        numbers,
        st.binary(min_size=32, max_size=32),
        numbers,
        st.binary(min_size=32, max_size=32),
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=8, max_size=8),
    ),
    st.builds(Offer, keys, st.just(LENGTH), st.binary(min_size=32, max_size=32)),
    st.builds(Ack, keys),
    st.builds(Refusal, keys, st.integers(0, 255)),
    st.just(Ping()),
    st.builds(Go, keys),
)
roles: st.SearchStrategy[Role] = st.sampled_from(["dialer", "listener"])


@given(roles, st.binary(max_size=400))
def test_any_bytes_give_frames_or_a_refusal(role: Role, data: bytes) -> None:
    """No other exception, and never more memory than one message."""
    wire = Wire(role, message_bytes=LENGTH)
    with contextlib.suppress(ProtocolError):
        feed(wire, data)
    assert len(wire.body) in {0, LENGTH}


@given(st.lists(st.one_of(frames.map(encode), st.binary(max_size=80)), max_size=12))
def test_half_right_conversations_end_in_a_refusal_too(parts: list[bytes]) -> None:
    """Frames mixed with noise, at a listener that has been greeted."""
    wire = Wire("listener", message_bytes=LENGTH)
    hello = Hello(PROTOCOL, PROTOCOL, 1, bytes(32), 1, bytes(32), bytes(16), bytes(8))
    feed(wire, encode(hello))
    wire.send(hello)
    with contextlib.suppress(ProtocolError):
        feed(wire, b"".join(parts))
    assert len(wire.body) in {0, LENGTH}


@given(frames, st.lists(st.integers(1, 50), min_size=1))
def test_pieces_make_no_difference(frame: Frame, cuts: list[int]) -> None:
    """However the bytes are cut, the frame is the same."""
    sender = next(role for (role, _, kind) in TRANSITIONS if kind is type(frame))
    state = next(state for (role, state, kind) in TRANSITIONS if kind is type(frame) and role == sender)
    receiver = Wire("listener" if sender == "dialer" else "dialer", message_bytes=LENGTH)
    receiver.state = state
    if isinstance(frame, Ack | Refusal):
        receiver._expected = frame.key
    data = encode(frame) + (bytes(LENGTH) if isinstance(frame, Offer) else b"")
    found: list[Frame] = []
    index = 0
    while data:
        size = cuts[index % len(cuts)]
        found += feed(receiver, data[:size])
        data, index = data[size:], index + 1
    assert found == [frame]


class Conversation(RuleBasedStateMachine):
    """Two ends that send whatever frames come to mind: what one may send, the other takes, and both agree after."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[Role, Wire] = {
            "dialer": Wire("dialer", message_bytes=LENGTH),
            "listener": Wire("listener", message_bytes=LENGTH),
        }
        self.offered = bytes(16)

    @rule(sender=roles, frame=frames)
    def say(self, sender: Role, frame: Frame) -> None:
        """Send a frame, if this end may."""
        receiver: Role = "listener" if sender == "dialer" else "dialer"
        if isinstance(frame, Ack | Refusal):
            frame = type(frame)(self.offered, *([frame.code] if isinstance(frame, Refusal) else []))
        try:
            data = self.ends[sender].send(frame)
        except ProtocolError:
            return
        if isinstance(frame, Offer | Go):
            self.offered = frame.key
        body = bytes(LENGTH) if isinstance(frame, Offer) else b""
        assert feed(self.ends[receiver], data + body) == [frame]

    @invariant()
    def both_agree(self) -> None:
        """Both ends are in one state."""
        assert self.ends["dialer"].state is self.ends["listener"].state


TestConversation = Conversation.TestCase
