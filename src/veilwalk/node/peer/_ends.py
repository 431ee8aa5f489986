"""Judges what a walk, or its end, says about itself.

Any member can seal any model for any other, with any number of updates, and call it the finished one; relays carry it
there unread. So a count is judged by what this node knows itself (:class:`CountLimits`), and an end is signed by
members that find it possible: one liar, or a few, are not enough to end a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from veilwalk.node.members import (
    SIGNATURE_BYTES,
    Manifest,
    NodeKeys,
    Roster,
    decode_params,
    params_distance,
    params_norm,
)
from veilwalk.node.peer._trainer import try_decode
from veilwalk.node.spool import SignedEnd

_LABEL = b"veilwalk/3 end"
_SPKI_BYTES = 32
# A walk makes no more updates than so many at once, and in time so many times as many as it was designed to: members
# may leave, and the fewer there are the sooner one of them opens it.
_HEAD_START, _FASTEST = 30, 4.0
# Where nothing dwells: less no hop takes.
_LEAST_HOP_S = 0.001
# A run that its members cannot end is as bad as one that a few can: less often than this too few of them have trained.
_TOO_FEW = 1e-6


def signatures_needed(members: int, updates: int) -> int:
    """Return how many members must sign the end of a walk of so many updates.

    Neither two of ten nor a tenth of 300 are enough, and as many have trained by then but for one run in a million:
    updates are counted as spread over all members alike, and no two after one another as of one.
    """
    most = max(3, members // 10 + 1)
    trained = min(updates, 2)
    # By logarithms: the numbers of a large network are too large.
    while trained < min(most, updates, members) and (
        math.log(math.comb(members, trained)) + updates * math.log(trained / members) < math.log(_TOO_FEW)
    ):
        trained += 1
    return max(1, min(most, trained, members if members < 3 else members - 1))


class CountLimits:
    """How many updates a walk can have had, by this node's own turns and its own clock.

    A count may be so much above this node's own last one as the network can have made since this node's last turn; and
    all that was believed so may be no more than it can have made since the node first saw a walk. Time that this
    process did not see is not counted, so a node that was away catches up, and who sets a clock gains nothing.
    """

    def __init__(
        self, hops_per_update: float, hop_s: Callable[[], float | None], *, clock: Callable[[], float] | None = None
    ) -> None:
        self._hops_per_update = hops_per_update
        # How long a hop takes at least: None where that is not known yet.
        self._hop_s = hop_s
        self._clock = clock or time.monotonic
        self._begun: float | None = None
        self._turns: dict[int, float] = {}
        self._believed: dict[int, int] = {}

    def on_sight(self) -> None:
        """Note that a message came by: from the first one on the run counts as begun."""
        if self._begun is None:
            self._begun = self._clock()

    def has_turn(self, lane: int) -> bool:
        """Return whether this node has had a turn in a lane since it started."""
        return lane in self._turns

    def is_possible(self, count: int, own: int, lane: int) -> bool:
        """Return whether a walk can have had so many updates, where this node's own last model has had ``own``."""
        if not self._hops_per_update or self._begun is None:
            return not self._hops_per_update or count <= own + _HEAD_START
        update_s = self._hops_per_update * (self._hop_s() or _LEAST_HOP_S)
        now = self._clock()
        since_turn = _HEAD_START + _FASTEST * (now - self._turns.get(lane, self._begun)) / update_s
        in_all = _HEAD_START + _FASTEST * (now - self._begun) / update_s - self._believed.get(lane, 0)
        return count <= own + min(since_turn, in_all)

    def on_turn(self, count: int, own: int, lane: int) -> None:
        """Note that this node trained a model of so many updates, after one of ``own``."""
        self._turns[lane] = self._clock()
        self._believed[lane] = self._believed.get(lane, 0) + max(0, count - own)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A node's newest model of a walk.

    Attributes:
        model: The model, encoded; None where it has none.
        iteration: Updates that one has had.
        step: How far this node's last update moved the model; 0 where it made none.
        ends: Those of all walks at the last meeting, where this node has made no update since.
    """

    model: bytes | None
    iteration: int
    step: float
    ends: tuple[bytes, ...] = ()


def is_near(manifest: Manifest, own: OwnModel, model: bytes, iteration: int) -> bool:
    """Return whether a model may be what this node's own has become, however long ago that was.

    It may be away by half the own one's norm, or by twice as many steps as long as this node's last, for in the
    beginning all of them lead the same way. Who forges an end within that moves the model no further than it could
    have by updates of its own.
    """
    params = try_decode(manifest, own.model)
    if params is None:
        return False
    far = max(params_norm(params) / 2, 2 * own.step * abs(iteration - own.iteration))
    return params_distance(decode_params(manifest, model), params) <= far


def sign_end(keys: NodeKeys, run_id: bytes, end: SignedEnd) -> bytes:
    """Return this node's signature under the end of a lane."""
    return keys.member.tls_spki_sha256 + keys.tls_key.sign(_statement(run_id, end))


def valid_signatures(roster: Roster, run_id: bytes, end: SignedEnd) -> dict[str, bytes]:
    """Return the signatures of members under an end, by member; others count for nothing."""
    statement = _statement(run_id, end)
    valid: dict[str, bytes] = {}
    for start in range(0, len(end.signatures), SIGNATURE_BYTES):
        entry = end.signatures[start : start + SIGNATURE_BYTES]
        member = roster.peer_of_certificate(entry[:_SPKI_BYTES])
        if member is not None and member not in valid and _is_signed(roster, member, entry, statement):
            valid[member] = entry
    return valid


def join_signatures(signatures: Mapping[str, bytes], most: int) -> bytes:
    """Return signatures one after the other, at most so many, in an order that tells nothing."""
    return b"".join(sorted(signatures.values())[:most])


def merge_signatures(known: bytes, signatures: bytes) -> bytes:
    """Return signatures with those that came here while they were worked on: none must be lost."""
    both = known + signatures
    return b"".join(sorted({both[at : at + SIGNATURE_BYTES] for at in range(0, len(both), SIGNATURE_BYTES)}))


def _is_signed(roster: Roster, member: str, entry: bytes, statement: bytes) -> bool:
    key = x509.load_der_x509_certificate(roster.member(member).certificate).public_key()
    if not isinstance(key, Ed25519PublicKey):
        return False
    try:
        key.verify(entry[_SPKI_BYTES:], statement)
    except InvalidSignature:
        return False
    return True


def _statement(run_id: bytes, end: SignedEnd) -> bytes:
    return _LABEL + run_id + bytes([end.lane]) + end.iteration.to_bytes(4, "big") + end.digest
