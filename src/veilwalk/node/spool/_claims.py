"""Finished models that members vouch for, and this node does not believe."""

from __future__ import annotations

from veilwalk.node.spool._handover import Claim
from veilwalk.node.spool._register import Register
from veilwalk.node.spool._tables import ENDS, UNDONE, of_lane

_DIGEST_BYTES = 32


def claims(register: Register, lane: int = 0) -> dict[str, Claim]:
    """Return which finished model of a lane each member vouches for."""
    found = {}
    for stored, digest, iteration, brought_by in register.execute("SELECT * FROM claim"):
        # No member's id has a space.
        peer = stored.partition(" ")[0]
        if stored == of_lane(peer, lane):
            found[peer] = Claim(by=peer, digest=bytes(digest), iteration=int(iteration), brought_by=brought_by)
    return found


def add_claim(register: Register, claim: Claim, *, lane: int = 0) -> None:
    """Note what a member vouches for, in the place of what it vouched for before."""
    values = (of_lane(claim.by, lane), claim.digest, claim.iteration, claim.brought_by)
    register.execute("INSERT OR REPLACE INTO claim VALUES (?, ?, ?, ?)", *values)


def forget_claims(register: Register, lane: int = 0) -> None:
    """Forget what members vouched for in a lane."""
    for peer in claims(register, lane):
        register.execute("DELETE FROM claim WHERE peer = ?", of_lane(peer, lane))
    register.drop_model(of_lane("claimed", lane))


def undone_ends(register: Register, lane: int = 0) -> tuple[bytes, ...]:
    """Return the digests of the finished models of a lane that the operator has undone."""
    noted = register.mark(of_lane(UNDONE, lane)) or b""
    return tuple(noted[start : start + _DIGEST_BYTES] for start in range(0, len(noted), _DIGEST_BYTES))


def undo_end(register: Register, digest: bytes, lane: int = 0) -> None:
    """Let the finished model of a lane go, never to be believed again, with what members vouched for."""
    register.set_mark(of_lane(UNDONE, lane), b"".join((*undone_ends(register, lane), digest)))
    register.set_mark(of_lane(ENDS, lane), b"0")
    register.drop_model(of_lane("final", lane))
    forget_claims(register, lane)
