"""Values that pass between a node's custody and the rest of the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from veilwalk.node.sealing import Header
from veilwalk.node.spool._tables import Row


class Verdict(Enum):
    """The fate of an offered message."""

    HELD = "here, and not used"
    TAKEN = "taken"
    AGAIN = "taken before"
    BUSY = "this node takes nothing new"
    DAMAGED = "not the bytes that were announced"
    REFUSED = "not of this run and epoch"
    UNKNOWN = "not here"


@dataclass(frozen=True, slots=True)
class Taken:
    """A verdict, and the message where it is now in custody, with how long it is to wait besides its dwell.

    ``crowded_out`` is the message that had to go for it.
    """

    verdict: Verdict
    row: Row | None = None
    for_us: bool = False
    wait_s: float = 0.0
    crowded_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEnd:
    """The end of a lane: a model that members sign, until enough have.

    Attributes:
        lane: Of which of the run's walks it is.
        model: The model, encoded; empty where it was taken here and is damaged.
        digest: Its SHA-256.
        iteration: Updates that it has had.
        signatures: Those known here, one after the other.
        is_final: Whether they are enough.
    """

    lane: int
    model: bytes
    digest: bytes
    iteration: int
    signatures: bytes = b""
    is_final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """The result of an opened message at its node, written all or nothing.

    Attributes:
        header: What the opened message's header said; None where nothing came of it, so that its id is remembered for
            a while only.
        epoch: Its epoch, for as long as which the id must be remembered.
        message: The model sealed for the next destination; None where the walk ends here.
        model: This node's newest model, encoded; None where the message changes nothing about that.
        iteration: Updates that one has had.
        learner_state: What the learner keeps here; None where no update was made.
        counts: Tallies to add to.
        step: How far this node's update moved the model (Euclidean norm); None where none was made.
        lost: Updates that this node knows to be lost by it.
        lane: Of which of the run's walks it is.
        end: The end of the lane, where there is news of it.
        farewells: The end of the lane sealed for each neighbour that is to have it now, by name.
    """

    header: Header | None = None
    epoch: int = 0
    message: bytes | None = None
    model: bytes | None = None
    iteration: int = 0
    learner_state: Mapping[str, bytes] | None = None
    counts: tuple[str, ...] = ()
    step: float | None = None
    lost: int = 0
    lane: int = 0
    end: SignedEnd | None = None
    farewells: Mapping[str, bytes] = field(default_factory=dict)
