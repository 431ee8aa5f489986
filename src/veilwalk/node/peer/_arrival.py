"""A message that opened for this node, with all that the node knows which bears on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilwalk.core.errors import CryptoError
from veilwalk.node.peer._ends import Known
from veilwalk.node.sealing import OpenedHeader, open_body
from veilwalk.node.spool import (
    ENDS,
    STEP,
    Claim,
    DamageError,
    Register,
    Row,
    SeenWalk,
    Spool,
    StoredModel,
    claims,
    of_lane,
    undone_ends,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An opened message, with what this node knows of the walks in its lane."""

    row: Row
    opened: OpenedHeader
    lane: int
    message: bytes
    walks: Mapping[bytes, SeenWalk]
    known: Known
    known_tag: bytes
    final: StoredModel | None
    final_model: bytes | None
    claims: Mapping[str, Claim]
    undone: tuple[bytes, ...]
    ends: int
    state: Mapping[str, bytes]
    step: int

    @property
    def body(self) -> bytes | None:
        """The body of the message; None where it is not what was sealed."""
        try:
            return open_body(self.opened, self.message)
        except CryptoError:
            return None


def look_at(spool: Spool, row: Row, opened: OpenedHeader, *, lane: int, several: bool, most: int) -> Arrival:
    """Return an opened message with what is known of its lane, which is one of ``several`` or the only one.

    However many updates this node's own model has had, it counts for ``most``: a later manifest may ask for fewer.
    """
    with spool.transaction(durable=False) as register:
        stored, final = register.model(of_lane("checkpoint", lane)), register.model(of_lane("final", lane))
        step = register.mark(of_lane(STEP, lane))
        return Arrival(
            row=row,
            opened=opened,
            lane=lane,
            message=spool.read(row),
            # Walks of other lanes carry other models: neither is ahead of the other, nor behind it.
            walks={tag: walk for tag, walk in register.walks().items() if not several or tag[0] == lane},
            known=Known(
                model=read_model(spool, register, stored),
                iteration=0 if stored is None else min(stored.iteration, most),
                step=0.0 if step is None else float(step),
            ),
            known_tag=b"" if stored is None else stored.tag,
            final=final,
            final_model=read_model(spool, register, final),
            claims=claims(register, lane),
            undone=undone_ends(register, lane),
            ends=int(register.mark(of_lane(ENDS, lane)) or 0),
            state=register.learner_state(),
            step=register.tally("updates"),
        )


def read_model(spool: Spool, register: Register, stored: StoredModel | None) -> bytes | None:
    """Return a stored model; a damaged one is as good as none."""
    if stored is None:
        return None
    try:
        return spool.read(stored)
    except DamageError:
        register.count("damaged")
        return None
