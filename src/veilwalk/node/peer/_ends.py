"""Whether a finished model that somebody sends is believed.

Any member can seal any model for any other, and call it the finished one; relays carry it there unread. So a finished
model has a voucher: a member that holds it and signs so with its TLS key. A node believes one that is near what it
knows itself, or that as many members vouch for as one liar cannot be, each brought by another neighbour. A node that
knows too little to judge passes the first word of every member on. Where nothing comes about, because all around it
wait, it asks by walks of its own, as every node does that sees none: who finished ends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from veilwalk.core.errors import ProtocolError
from veilwalk.node.members import Manifest, NodeKeys, Roster, decode_params, params_distance, params_norm
from veilwalk.node.spool import Claim

#: So many neighbours vouching for one model are believed; the only neighbour of a leaf is.
VOUCHERS = 2

_LABEL = b"veilwalk/2 finished"
_SPKI_BYTES = 32
#: A claim is believed when so many walks made since, one after the other, came to nothing, and as many vouch for it as
#: one liar cannot be, who might have swallowed those walks. After a few updates nobody else may have trained.
ASKS = 3
_FEW_UPDATES = 10

#: A node takes so many ends of a lane, each better than the one before, and hands each to all neighbours: an honest run
#: has a few, for its walks merge, and anybody can make a next one that is as good by its digest.
MOST_ENDS = 16

# A node trains once in as many updates as there are members, about: who has not for five times as many (one in 150)
# leaves it to its neighbours to know.
_NEAR_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a node knows of the run's model.

    Attributes:
        model: Its newest, encoded; None where it has none.
        iteration: Updates that one has had.
        step: How far this node's last update moved the model.
    """

    model: bytes | None
    iteration: int
    step: float


def vouch(keys: NodeKeys, run_id: bytes, iteration: int, digest: bytes, *, lane: int = 0) -> bytes:
    """Return this node's word that the model of that SHA-256 is the finished one of a lane."""
    return keys.member.tls_spki_sha256 + keys.tls_key.sign(_statement(run_id, iteration, digest, lane))


def voucher(roster: Roster, run_id: bytes, word: bytes, iteration: int, digest: bytes, *, lane: int = 0) -> str | None:
    """Return whose word it is; None where it is no member's, or was not given for this model."""
    member = roster.peer_of_certificate(word[:_SPKI_BYTES])
    if member is None:
        return None
    key = x509.load_der_x509_certificate(roster.member(member).certificate).public_key()
    if not isinstance(key, Ed25519PublicKey):
        return None
    try:
        key.verify(word[_SPKI_BYTES:], _statement(run_id, iteration, digest, lane))
    except InvalidSignature:
        return None
    return member


def is_vouched(roster: Roster, me: str, claims: Iterable[Claim], newest: Claim) -> bool:
    """Return whether enough members vouch for a model, those of ``claims`` and the newest, each by another neighbour.

    The word of a leaf's only neighbour is enough; what others say, which comes by that one, takes two of them.
    """
    neighbours = roster.neighbours(me)
    enough = min(VOUCHERS, len(neighbours))
    agree = [newest]
    # What somebody said who has been left out since counts no more.
    agree += [
        claim for claim in claims if _same_end(claim, newest) and claim.by != newest.by and claim.by in roster.ids
    ]
    known = sum(claim.by in neighbours for claim in agree)
    return known >= enough or (len(agree) >= VOUCHERS and len({claim.brought_by for claim in agree}) >= enough)


def is_overdue(roster: Roster, claims: Iterable[Claim], end: tuple[bytes, int], *, asked: int) -> bool:
    """Return whether an end, by digest and updates, is believed because ``asked`` walks came to nothing."""
    vouchers = sum((claim.digest, claim.iteration) == end and claim.by in roster.ids for claim in claims)
    return asked >= ASKS and vouchers >= (1 if end[1] <= _FEW_UPDATES else VOUCHERS)


def is_fresh(known: Known, iteration: int, members: int) -> bool:
    """Return whether a node knows enough to judge an end by itself: its own model is as new as one turn leaves it."""
    return known.model is not None and abs(iteration - known.iteration) <= _NEAR_ROUNDS * members


def is_near(manifest: Manifest, known: Known, model: bytes, iteration: int, members: int) -> bool:
    """Return whether a model is about what this node's own would be by now.

    Not many updates later: so many as pass between two turns of a node. And not far from it: by half its norm, or by
    twice as many steps as long as this node's last, for in the beginning all of them lead the same way. Who forges an
    end within that moves the model no further than it could have by updates of its own.
    """
    if known.model is None or not is_fresh(known, iteration, members):
        return False
    try:
        own = decode_params(manifest, known.model)
    except ProtocolError:
        return False
    far = max(params_norm(own) / 2, 2 * known.step * abs(iteration - known.iteration))
    return params_distance(decode_params(manifest, model), own) <= far


def _same_end(one: Claim, other: Claim) -> bool:
    return (one.digest, one.iteration) == (other.digest, other.iteration)


def _statement(run_id: bytes, iteration: int, digest: bytes, lane: int) -> bytes:
    # A word about one lane is none about another; the first's is that of a run with one walk.
    return _LABEL + run_id + iteration.to_bytes(4, "big") + digest + (bytes([lane]) if lane else b"")
