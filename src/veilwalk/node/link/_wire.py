"""The frames that two neighbours exchange, and their order. No input or output happens here.

Each directed edge of the network has one connection. Its dialer hands messages over, one at a time, in two steps: it
offers one, which the listener holds and does not use, and then gives it. Up to there it may go another way; from there
on it is the listener's, which knows it by its key however often it is asked. ``TRANSITIONS`` is the whole protocol;
everything it does not list is refused. Every frame has a fixed length, so that nothing a peer sends decides how much
memory is taken: a message is as long as the run says.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import ClassVar, Literal

from veilwalk.core.errors import ProtocolError

PROTOCOL = 3
#: All that this node speaks: two neighbours use the highest that both do.
PROTOCOLS = range(PROTOCOL, PROTOCOL + 1)
# The first whose greeting is as below.
_FIRST = 3
# Versions are numbers in files and tables, whose numbers are signed.
_LARGEST = 2**63 - 1


class Nak(IntEnum):
    """Why a message was not taken."""

    BUSY = 1
    DAMAGED = 2
    STORAGE = 3
    REFUSED = 4
    UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Hello:
    """A greeting: the protocols that a node speaks, its run, roster and manifest, and the mark of its disk.

    Its layout and length are those of every protocol from 3 on, so any two can read each other's. What a later one has
    to say besides is a frame of its own, sent after both greetings, and only where the protocol that both speak has it.
    """

    layout: ClassVar[struct.Struct] = struct.Struct(">BBQ32sQ32s16s8s")

    highest: int
    lowest: int
    roster_version: int
    roster_digest: bytes
    manifest_version: int
    manifest_digest: bytes
    run: bytes
    incarnation: bytes


@dataclass(frozen=True, slots=True)
class Offer:
    """A message under its idempotency key; its bytes follow the frame."""

    layout: ClassVar[struct.Struct] = struct.Struct(">16sI32s")

    key: bytes
    length: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """To an offer: the message of that key is here whole, and held. To what is given: taken, on disk."""

    layout: ClassVar[struct.Struct] = struct.Struct(">16s")

    key: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """NAK: the message of that key was not taken; the dialer keeps it."""

    layout: ClassVar[struct.Struct] = struct.Struct(">16sB")

    key: bytes
    code: int


@dataclass(frozen=True, slots=True)
class Go:
    """The message of that key is the listener's to use; said again, to hear whether it took it."""

    layout: ClassVar[struct.Struct] = struct.Struct(">16s")

    key: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """Is anybody there? Answered with the same."""

    layout: ClassVar[struct.Struct] = struct.Struct("")


Frame = Hello | Offer | Ack | Refusal | Go | Ping
Role = Literal["dialer", "listener"]

_CODES: dict[type[Frame], int] = {Hello: 1, Offer: 2, Ack: 3, Refusal: 4, Go: 5, Ping: 6}
_KINDS = {code: kind for kind, code in _CODES.items()}


class State(Enum):
    """Where a conversation stands."""

    NEW = "new"
    GREETED = "greeted"
    IDLE = "idle"
    OFFERED = "offered"
    GIVEN = "given"
    PINGED = "pinged"


#: (who sends, state, frame) -> state. Both ends follow the same table: what one has sent, the other has received.
TRANSITIONS: dict[tuple[Role, State, type[Frame]], State] = {
    ("dialer", State.NEW, Hello): State.GREETED,
    ("listener", State.GREETED, Hello): State.IDLE,
    ("dialer", State.IDLE, Offer): State.OFFERED,
    ("listener", State.OFFERED, Ack): State.IDLE,
    ("listener", State.OFFERED, Refusal): State.IDLE,
    ("dialer", State.IDLE, Go): State.GIVEN,
    ("listener", State.GIVEN, Ack): State.IDLE,
    ("listener", State.GIVEN, Refusal): State.IDLE,
    ("dialer", State.IDLE, Ping): State.PINGED,
    ("listener", State.PINGED, Ping): State.IDLE,
}


class Wire:
    """One end of a conversation.

    Reading is by request, so that bytes land where they belong without a copy: fill some of :meth:`buffer`, then say
    how much with :meth:`filled`, which returns a frame when one is complete. The bytes of an offered message are in
    :attr:`body` until the next offer.
    """

    def __init__(self, role: Role, *, message_bytes: int) -> None:
        self._role: Role = role
        self._peer: Role = "listener" if role == "dialer" else "dialer"
        self._message_bytes = message_bytes
        self._expected: bytes | None = None
        self._small = bytearray(1 + max(kind.layout.size for kind in _CODES))
        self._offer: Offer | None = None
        self._have = 0
        self._message = bytearray()
        self.state = State.NEW

    @property
    def body(self) -> memoryview:
        """The bytes of the message last offered to this end."""
        return memoryview(self._message)

    def send(self, frame: Frame) -> bytes:
        """Return the bytes of ``frame``; those of an offered message are the caller's to send after it."""
        self.state = self._require(self._role, type(frame))
        if isinstance(frame, Offer | Go):
            self._expected = frame.key
        return encode(frame)

    def buffer(self) -> memoryview:
        """Return where the next bytes from the peer go; never empty.

        At the beginning of a frame that is as much as an offer without its message has, so that short ones come whole.
        """
        if self._offer is not None:
            return memoryview(self._message)[self._have :]
        kind = _KINDS.get(self._small[0], Offer) if self._have else Offer
        return memoryview(self._small)[self._have : 1 + max(kind.layout.size, Offer.layout.size)]

    def filled(self, count: int) -> Frame | None:
        """Note that ``count`` bytes were put into :meth:`buffer`; return the frame they completed, if any.

        They may have completed another besides: :meth:`following` returns it.
        """
        self._have += count
        return self.following()

    def following(self) -> Frame | None:
        """Return the next frame that is here whole, if any."""
        if self._offer is not None:
            return self._after_message(self._offer) if self._have == self._message_bytes else None
        if not self._have:
            return None
        kind = _KINDS.get(self._small[0])
        if kind is None:
            raise ProtocolError(f"a peer sent frame type {self._small[0]}: not known")
        # Refused before its content is read: what may not be said now need not be looked at.
        self._require(self._peer, kind)
        if kind is Hello and self._have > 1 and self._small[1] < _FIRST:
            # Theirs is shorter: the rest is not worth waiting for.
            agreed_protocol(self._small[1], self._small[1])
        size = 1 + kind.layout.size
        if self._have < size:
            return None
        values = kind.layout.unpack_from(self._small, 1)
        if any(isinstance(value, int) and value > _LARGEST for value in values):
            raise ProtocolError(f"a peer sent a number in its {kind.__name__.lower()}: above 2^63 - 1")
        frame = kind(*values)
        self._have -= size
        self._small[: self._have] = self._small[size : size + self._have]
        if isinstance(frame, Offer):
            if frame.length != self._message_bytes:
                raise ProtocolError(
                    f"a peer offered {frame.length} bytes: every message of the run is longer or shorter"
                )
            self._offer, self._have = frame, 0
            if not self._message:
                self._message = bytearray(self._message_bytes)
            return None
        return self._complete(frame)

    def _after_message(self, offer: Offer) -> Frame:
        self._offer, self._have = None, 0
        return self._complete(offer)

    def _complete(self, frame: Frame) -> Frame:
        self.state = self._require(self._peer, type(frame))
        if isinstance(frame, Ack | Refusal) and frame.key != self._expected:
            raise ProtocolError("a peer answered another key than it was asked about")
        return frame

    def _require(self, sender: Role, kind: type[Frame]) -> State:
        after = TRANSITIONS.get((sender, self.state, kind))
        if after is None:
            raise ProtocolError(f"{kind.__name__.lower()} from the {sender} while {self.state.value}: not allowed")
        return after


def agreed_protocol(lowest: int, highest: int, spoken: range = PROTOCOLS) -> int:
    """Return the highest protocol that this node speaks, and a peer who speaks from ``lowest`` to ``highest``.

    Raises:
        ProtocolError: There is none.
    """
    if max(lowest, spoken[0]) <= min(highest, spoken[-1]):
        return min(highest, spoken[-1])
    who = "the peer" if highest < spoken[0] else "this node"
    old = {1: " (version 0.1)", 2: " (version 0.2)"}.get(highest, "")
    ends = ((lowest, highest), (spoken[0], spoken[-1]))
    spoken_there, spoken_here = (
        f"protocol {end}" if start == end else f"protocols {start} to {end}" for start, end in ends
    )
    raise ProtocolError(f"a peer speaks {spoken_there}{old}, this node {spoken_here}: upgrade {who}")


def encode(frame: Frame) -> bytes:
    """Return the bytes of ``frame``."""
    return bytes([_CODES[type(frame)]]) + frame.layout.pack(*[getattr(frame, name) for name in frame.__slots__])
