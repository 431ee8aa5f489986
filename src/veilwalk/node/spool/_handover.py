"""What passes between a node's custody and the rest of the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from veilwalk.node.sealing import Header
from veilwalk.node.spool._tables import Row


class Verdict(Enum):
    """What became of an offered message."""

    HELD = "here, and not used"
    TAKEN = "taken"
    AGAIN = "taken before"
    BUSY = "too many from this neighbour are here already"
    DAMAGED = "not the bytes that were announced"
    REFUSED = "not of this run and epoch"
    UNKNOWN = "not here"


@dataclass(frozen=True, slots=True)
class Taken:
    """A verdict, and the message where it is now in custody, with how long it is to wait besides its dwell.

    ``body`` has its bytes where it is being offered already; ``crowded_out`` is the message that had to go for it.
    """

    verdict: Verdict
    row: Row | None = None
    for_us: bool = False
    wait_s: float = 0.0
    body: bytes | None = None
    crowded_out: int | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is next on a link: a message with its bytes, or, without one, a number to cancel.

    ``given`` says that the neighbour was told so before and may be using it already.
    """

    seq: int
    row: Row | None
    body: bytes
    given: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What an update leaves behind at its node, all or nothing.

    Attributes:
        message: The model sealed for the next destination; None when the run is finished.
        model: The model, encoded.
        header: What the opened message's header said.
        epoch: Its epoch, for as long as which the id must be remembered.
        iteration: Updates the model has had, this one included.
        learner_state: What the learner keeps here; None where no update was made.
        counts: Tallies to add to.
        farewells: The finished model sealed for each neighbour, by name.
        step: How far this node's update moved the model (Euclidean norm); None where none was made.
        lost: Updates that this node knows to be lost by it.
        lane: Of which of the run's walks it is.
    """

    message: bytes | None
    model: bytes
    header: Header
    epoch: int
    iteration: int
    learner_state: Mapping[str, bytes] | None = None
    counts: tuple[str, ...] = ()
    farewells: Mapping[str, bytes] = field(default_factory=dict)
    step: float | None = None
    lost: int = 0
    lane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An end of the run that a member vouches for, and this node does not believe yet.

    Attributes:
        by: Who vouches for it.
        digest: SHA-256 of the model.
        iteration: Updates that it has had.
        brought_by: Which neighbour it came from: that member itself where it is one.
    """

    by: str
    digest: bytes
    iteration: int
    brought_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A message that ends here.

    Attributes:
        count: The tally of messages that ended for that reason.
        lost: Updates that are lost with it, as far as this node can tell.
        farewells: As of :class:`Progress`.
        claim: What it said about the end of the run.
        claimed: The model that it said so of.
        lane: Of which of the run's walks it is.
    """

    count: str
    lost: int = 0
    farewells: Mapping[str, bytes] = field(default_factory=dict)
    claim: Claim | None = None
    claimed: bytes = b""
    lane: int = 0
