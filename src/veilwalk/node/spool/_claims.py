"""Finished models that neighbours vouch for, and this node does not believe."""

from __future__ import annotations

from veilwalk.node.spool._register import Register


def claims(register: Register) -> dict[str, tuple[bytes, int]]:
    """Return which finished model, by digest and iteration, each neighbour vouches for."""
    rows = register.execute("SELECT peer, digest, iteration FROM claim")
    return {peer: (bytes(digest), int(iteration)) for peer, digest, iteration in rows}


def add_claim(register: Register, peer: str, digest: bytes, iteration: int) -> None:
    """Note what a neighbour vouches for, in the place of what it vouched for before."""
    register.execute("INSERT OR REPLACE INTO claim VALUES (?, ?, ?)", peer, digest, iteration)


def forget_claims(register: Register) -> None:
    """Forget what neighbours vouched for."""
    register.execute("DELETE FROM claim")
    register.drop_model("claimed")
