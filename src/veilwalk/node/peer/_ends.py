"""Whether a finished model that somebody sends is believed.

Any member can seal any model for any other, and call it the finished one; relays carry it there unread. So a finished
model has a voucher: a member that holds it and signs so with its TLS key. A node believes one that is near what it
knows itself, or that as many of its neighbours vouch for as one liar cannot be. Where neither comes about, because its
neighbours wait like itself, it asks by walks of its own, as every node does that sees none: who finished ends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from veilwalk.core.errors import ProtocolError
from veilwalk.node.members import Manifest, NodeKeys, Roster, decode_params, params_distance, params_norm

#: So many neighbours vouching for one model are believed; the only neighbour of a leaf is.
VOUCHERS = 2

_LABEL = b"veilwalk/2 finished"
_SPKI_BYTES = 32
#: A claim that a neighbour vouches for is believed when so many walks made since, one after the other, came to nothing.
ASKS = 3

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


def vouch(keys: NodeKeys, run_id: bytes, iteration: int, digest: bytes) -> bytes:
    """Return this node's word that the model of that SHA-256 is the finished one."""
    return keys.member.tls_spki_sha256 + keys.tls_key.sign(_statement(run_id, iteration, digest))


def voucher(roster: Roster, word: bytes, iteration: int, digest: bytes) -> str | None:
    """Return whose word it is; None where it is no member's, or was not given for this model."""
    member = roster.peer_of_certificate(word[:_SPKI_BYTES])
    if member is None:
        return None
    key = x509.load_der_x509_certificate(roster.member(member).certificate).public_key()
    if not isinstance(key, Ed25519PublicKey):
        return None
    try:
        key.verify(word[_SPKI_BYTES:], _statement(roster.run_id, iteration, digest))
    except InvalidSignature:
        return None
    return member


def is_vouched(
    roster: Roster, me: str, claims: Mapping[str, tuple[bytes, int]], *, by: str, digest: bytes, iteration: int
) -> bool:
    """Return whether enough neighbours vouch for a model: those of ``claims``, and the one that it came ``by``."""
    neighbours = set(roster.neighbours(me))
    agree = {peer for peer, claim in claims.items() if claim == (digest, iteration)} | {by}
    return len(agree & neighbours) >= min(VOUCHERS, len(neighbours))


def is_near(manifest: Manifest, known: Known, model: bytes, iteration: int, members: int) -> bool:
    """Return whether a model is about what this node's own would be by now.

    Not many updates later: so many as pass between two turns of a node. And not far from it: by half its norm, or by
    twice as many steps as long as this node's last, for in the beginning all of them lead the same way. Who forges an
    end within that moves the model no further than it could have by updates of its own.
    """
    if known.model is None or abs(iteration - known.iteration) > _NEAR_ROUNDS * members:
        return False
    try:
        own = decode_params(manifest, known.model)
    except ProtocolError:
        return False
    far = max(params_norm(own) / 2, 2 * known.step * abs(iteration - known.iteration))
    return params_distance(decode_params(manifest, model), own) <= far


def _statement(run_id: bytes, iteration: int, digest: bytes) -> bytes:
    return _LABEL + run_id + iteration.to_bytes(4, "big") + digest
