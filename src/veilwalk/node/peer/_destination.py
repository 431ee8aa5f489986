"""Checks a message that opens here, trains its model, and seals it for those that may open it next.

Three steps, because training takes long and storage must not wait for it: :meth:`Destination.read_arrival` reads what
is needed, :meth:`Destination.work` computes, and :class:`veilwalk.node.peer._custody.Custody` writes the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from veilwalk.core.errors import CryptoError
from veilwalk.node.members import decode_params, encode_params, final_tag
from veilwalk.node.peer._ends import (
    CountLimits,
    OwnModel,
    is_near,
    join_signatures,
    sign_end,
    valid_signatures,
)
from veilwalk.node.peer._routing import draw_evenly
from veilwalk.node.peer._trainer import TrainingJob, try_decode
from veilwalk.node.sealing import Header, OpenedHeader, open_body, seal
from veilwalk.node.spool import (
    STEP,
    DamageError,
    Register,
    Row,
    SeenWalk,
    SignedEnd,
    Spool,
    StoredModel,
    UpdateOutcome,
    hit,
    of_lane,
)

if TYPE_CHECKING:
    from veilwalk.node.members import Roster
    from veilwalk.node.peer._assemble import NodeParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An opened message, with what this node knows of the walks in its lane."""

    row: Row
    opened: OpenedHeader
    lane: int
    message: bytes
    walks: Mapping[bytes, SeenWalk]
    own: OwnModel
    own_tag: bytes
    final: SignedEnd | None
    end: SignedEnd | None
    round: int
    undone: tuple[bytes, ...]
    state: bytes
    step: int

    @property
    def body(self) -> bytes | None:
        """The body of the message; None where it is not what was sealed."""
        try:
            return open_body(self.opened, self.message)
        except CryptoError:
            return None


class Destination:
    """Trains models that arrive here, and seals them for the next."""

    def __init__(self, parts: NodeParts, *, hop_s: Callable[[], float | None]) -> None:
        self.trainer = parts.task
        self._manifest, self._rules, self._draws = parts.membership.manifest, parts.rules, parts.draws
        #: For whom it seals, and in whose name; both may change with the roster.
        self.law, self.keys = parts.law.row(parts.membership.roster, parts.keys.id), parts.keys
        #: What a walk may say of itself.
        self.limits = CountLimits(parts.rules.hops_per_update, hop_s)

    # Reading, in the storage thread.

    def read_arrival(self, spool: Spool, row: Row, opened: OpenedHeader) -> Arrival:
        """Return an opened message with what is known of its lane."""
        lane = self._rules.lane_of(opened.header.walk_tag)
        with spool.transaction(durable=False) as register:
            stored = register.model("checkpoint", lane)
            # Of a lane that ended long ago, or never here, the walk's newest end is what others have to know.
            newest = max(lane, (register.round - 1) * self._rules.walks + self._rules.walk_of(lane))
            return Arrival(
                row=row,
                opened=opened,
                lane=lane,
                message=spool.read(row),
                # Walks of other lanes carry other models: neither is ahead of the other, nor behind it.
                walks={tag: walk for tag, walk in register.walks().items() if self._rules.walks == 1 or tag[0] == lane},
                own=self._own_model(spool, register, lane),
                own_tag=b"" if stored is None else stored.tag,
                final=self._read_end(spool, register, newest, "final"),
                end=self._read_end(spool, register, lane, "end"),
                round=register.round,
                undone=register.undone_ends(lane),
                state=read_model(spool, register, register.model("state")) or b"",
                # Where a disk was lost nobody knows how many, so that all of them count as made.
                step=max(register.tally("updates"), self._rules.most_updates * bool(register.tally("disks_lost"))),
            )

    def read_end(self, spool: Spool, lane: int) -> tuple[SignedEnd | None, OwnModel]:
        """Return the end of a lane that is being signed, if there is one, and this node's own model."""
        with spool.transaction(durable=False) as register:
            return self._read_end(spool, register, lane, "end"), self._own_model(spool, register, lane)

    def new_walk(self, spool: Spool, roster: Roster, lane: int, *, first: bool) -> bytes | None:
        """Return a message that starts a walk from this node's last model of a lane, or from that it begins with.

        None if there is nothing to start: the lane is finished, or its first walk was made here before.
        """
        if lane not in self._rules.lanes:
            return None
        with spool.transaction(durable=False) as register:
            # The first walks are made in the order of their lanes.
            was_started = lane >= self._rules.walks or register.tally("started") > lane
            if register.model("final", lane) is not None or (first and was_started):
                return None
            own = self._own_model(spool, register, lane)
        own = self._average(own, lane)
        body, iteration = own.model, 0 if own.model is None else own.iteration
        if iteration < self._rules.begin(lane):
            return None
        tag = self._rules.new_tag(lane)
        about = Header(update_id=b"", walk_tag=tag, iteration=iteration, body_length=0, made_at=iteration)
        return self._seal(roster, about, self.trainer.first() if body is None else body)

    def farewells(self, spool: Spool, roster: Roster, peer: str) -> dict[int, bytes]:
        """Return what is finished, by lane, sealed for a neighbour that seems not to have it, and has none waiting."""
        messages: dict[int, bytes] = {}
        # To seal takes long, and a neighbour may come with a new disk as often as it likes.
        waiting = {row.end_lane for row in spool.tables.messages(peer=peer)}
        oldest = (spool.tables.round - 1) * self._rules.walks
        for lane in set(spool.tables.lanes("final")) - waiting:
            with spool.transaction(durable=False) as register:
                final = self._read_end(spool, register, lane, "final") if lane >= oldest else None
            message = self._tell(final, roster, peer).get(peer)
            if message is not None:
                messages[lane] = message
        return messages

    def _own_model(self, spool: Spool, register: Register, lane: int) -> OwnModel:
        """Return this node's own model of a lane; or of an earlier one, and the ends that this one begins with."""
        walks, begin = self._rules.walks, self._rules.begin(lane)
        step = register.mark(of_lane(STEP, self._rules.walk_of(lane)))
        lanes = range(lane, -1, -walks)
        stored = next(filter(None, (register.model("checkpoint", number) for number in lanes)), None)
        model = read_model(spool, register, stored)
        # However many updates it has had, it counts for less than all: a later manifest may ask for fewer.
        iteration = 0 if stored is None else min(stored.iteration, self._rules.share(lane) - 1)
        first = lane // walks * walks if begin and iteration <= begin else 0
        finals = [register.model("final", number) for number in range(max(first - walks, 0), first)]
        ends = [read_model(spool, register, final) for final in finals]
        return OwnModel(
            model=model,
            iteration=iteration,
            step=0.0 if step is None else float(step),
            ends=tuple(filter(None, ends)) if all(ends) else (),
        )

    def _average(self, own: OwnModel, lane: int) -> OwnModel:
        """Return what this node would go on with in a lane: where its model is no newer, the mean of the last ends."""
        if not own.ends:
            return own
        from veilwalk.learning import average_params

        mean = average_params([decode_params(self._manifest, end) for end in own.ends])
        return replace(own, model=encode_params(self._manifest, mean), iteration=self._rules.begin(lane))

    def _read_end(self, spool: Spool, register: Register, lane: int, kind: str) -> SignedEnd | None:
        stored = register.model(kind, lane)
        model = read_model(spool, register, stored)
        if stored is None or (model is None and kind == "end"):
            return None
        return SignedEnd(
            lane=lane,
            model=model or b"",
            digest=stored.digest,
            iteration=stored.iteration,
            signatures=stored.signatures,
            is_final=kind == "final",
        )

    # Computing, in the training thread.

    def work(self, arrival: Arrival, roster: Roster) -> UpdateOutcome:
        """Return what becomes of an arrival."""
        header = arrival.opened.header
        if not self._rules.allow(header, body_bytes=self._manifest.body_bytes):
            return UpdateOutcome(counts=("set_aside",))
        if header.final:
            return self._weigh_end(arrival, roster)
        arrival = replace(arrival, own=self._average(arrival.own, arrival.lane))
        return self._end_walk(arrival, roster) or self._go_on(arrival, roster)

    def _go_on(self, arrival: Arrival, roster: Roster) -> UpdateOutcome:
        """Return how a walk goes on: by an update of its model, of this node's own, or as it came."""
        count, own, walk = arrival.opened.header.iteration, arrival.own, self._rules.walk_of(arrival.lane)
        if own.ends and count == self._rules.begin(arrival.lane):
            # Nobody makes an average of its own: it is that of the ends, whatever came.
            return self._train(arrival, roster, own.model)
        if self.limits.is_possible(count, own.iteration, walk):
            return self._train(arrival, roster, arrival.body)
        if self.limits.has_turn(walk):
            # This node knows better: the model is a liar's, and its own goes on.
            return self._train(arrival, roster, None)
        return self._pass_on(arrival, roster)

    def _end_walk(self, arrival: Arrival, roster: Roster) -> UpdateOutcome | None:
        """Return how a walk ends here; None where it goes on."""
        header, final = arrival.opened.header, arrival.final
        if final is not None:
            # Somebody does not know yet: the neighbour that brought it, or one behind it.
            lost = header.iteration - header.made_at
            return UpdateOutcome(
                counts=("retired",),
                lost=lost,
                farewells=self._tell(final, roster, arrival.row.came_from),
                lane=final.lane,
            )
        end, own = arrival.end, arrival.own
        if end is not None and end.model == own.model and own.iteration > header.iteration:
            # This node's own model is the end that is being signed: it has had all updates, and not one more.
            return UpdateOutcome(counts=("retired",), lost=header.iteration - header.made_at, lane=arrival.lane)
        if is_fork(header, arrival.walks):
            return UpdateOutcome(counts=("forks",))
        ahead = walks_ahead(header, arrival.walks)
        return UpdateOutcome(counts=("retired",), lost=updates_lost(header, ahead)) if ahead else None

    def _pass_on(self, arrival: Arrival, roster: Roster) -> UpdateOutcome:
        """Return a model as it came, sealed anew: this node cannot tell whether its count is possible.

        It learns nothing from it, and an honest walk loses nothing.
        """
        header, body = arrival.opened.header, arrival.body
        if body is None or try_decode(self._manifest, body) is None:
            return UpdateOutcome(counts=("refused",))
        return UpdateOutcome(
            header=header,
            epoch=arrival.opened.context.epoch,
            message=self._seal(roster, header, body),
            counts=("passed_on",),
            lane=arrival.lane,
        )

    def _train(self, arrival: Arrival, roster: Roster, body: bytes | None) -> UpdateOutcome:
        header, own, begin = arrival.opened.header, arrival.own, self._rules.begin(arrival.lane)
        hit("train.opened")
        # Where another walk brought a better model here before, this one goes on with it.
        merges = own.model is not None and own.iteration > header.iteration and arrival.own_tag != header.walk_tag
        iteration = own.iteration if merges else header.iteration
        outcome = self.trainer.update(
            TrainingJob(
                received=own.model if merges else body,
                own=own.model,
                iteration=iteration,
                step=arrival.step,
                state=arrival.state,
                lane=arrival.lane,
                own_iteration=own.iteration,
                is_blank=self._draws_blank(),
            )
        )
        hit("train.updated")
        if outcome.own and own.model is None and begin:
            # The run's first model has no place after a meeting.
            return self._pass_on(arrival, roster)
        if outcome.own and not merges:
            # The walk that brought it ends here, and one of this node's own model begins: no older than it is, so that
            # whoever holds a newer one goes on with that.
            iteration = max(begin, 0 if own.model is None else own.iteration)
            header = replace(header, walk_tag=self._rules.new_tag(arrival.lane), iteration=iteration, made_at=iteration)
        made_at = iteration if merges else header.made_at
        # Without an update there is nothing to count: the model goes on as it came.
        iteration += outcome.state is not None
        self.limits.on_turn(iteration, own.iteration, self._rules.walk_of(arrival.lane))
        about = replace(header, iteration=iteration, made_at=made_at)
        done = iteration >= self._rules.share(arrival.lane) or outcome.reached
        end: SignedEnd | None = None
        if done and (arrival.end is None or arrival.end.iteration <= iteration):
            digest = hashlib.sha256(outcome.model).digest()
            end = SignedEnd(lane=arrival.lane, model=outcome.model, digest=digest, iteration=iteration)
        return UpdateOutcome(
            message=None if done else self._seal(roster, about, outcome.model),
            model=outcome.model,
            header=replace(header, made_at=made_at),
            epoch=arrival.opened.context.epoch,
            iteration=iteration,
            learner_state=outcome.state,
            counts=(*outcome.counts, *(["merged"] if merges else [])),
            step=outcome.moved,
            lost=header.iteration - header.made_at if merges else 0,
            lane=arrival.lane,
            end=end,
        )

    def _draws_blank(self) -> bool:
        """Return whether a model goes on untrained, so that fewer can tell who trains next."""
        chance = self._rules.train_probability
        return chance < 1 and self._draws.unit() >= chance

    def _weigh_end(self, arrival: Arrival, roster: Roster) -> UpdateOutcome:
        """Return what becomes of an end that a neighbour tells of."""
        header, lane, body = arrival.opened.header, arrival.lane, arrival.body or b""
        size = self._manifest.body_bytes
        model, entries = body[:size], body[size:]
        digest = hashlib.sha256(model).digest()
        if digest in arrival.undone or try_decode(self._manifest, model) is None:
            return UpdateOutcome(counts=("refused",))
        noted, final, place = arrival.end, arrival.final, (header.iteration, digest)
        if noted is not None and place == (noted.iteration, noted.digest):
            entries += noted.signatures
        claimed = SignedEnd(lane=lane, model=model, digest=digest, iteration=header.iteration, signatures=entries)
        end = self.sign(claimed, roster)
        # One that is taken stays, but for more updates; of two that enough have signed all keep the same.
        if final is not None and not (end.is_final and place > (final.iteration, final.digest)):
            behind = not end.is_final or place != (final.iteration, final.digest)
            return UpdateOutcome(
                counts=("duplicates",),
                farewells=self._tell(final, roster, arrival.row.came_from) if behind else {},
                lane=final.lane,
            )
        if not end.is_final:
            approval = self._approves(end, arrival.own)
            if approval is False or lane >= (arrival.round + 2) * self._rules.walks:
                return UpdateOutcome(counts=("unbelieved",))
            if noted is not None:
                before = self.sign(noted, roster)
                weight = bool(self._approves(before, arrival.own)), len(before.signatures)
                if (bool(approval), len(end.signatures), *place) <= (*weight, before.iteration, before.digest):
                    return UpdateOutcome(counts=("duplicates",))
        return UpdateOutcome(
            header=header,
            epoch=arrival.opened.context.epoch,
            lane=lane,
            end=end,
            # Of one that is not final the others hear at a random moment.
            farewells=self.seal_end(end, roster) if end.is_final else {},
        )

    def _approves(self, end: SignedEnd, own: OwnModel) -> bool | None:
        """Return whether an end is possible by what this node knows; None where it never trained, and knows nothing.

        One that reaches the run's target is what the run asks for. Else it has all updates, as far as this node can
        tell, and is near its own last model.
        """
        if self.trainer.reaches_target(end.model):
            return True
        if end.iteration < self._rules.share(end.lane):
            return False
        own = self._average(own, end.lane)
        if own.model is None:
            return None
        if not self.limits.is_possible(end.iteration, own.iteration, self._rules.walk_of(end.lane)):
            return False
        # How far a walk goes from the last mean does not know who made no step of it.
        is_unknown = own.ends and not own.step
        return is_near(self._manifest, own, end.model, end.iteration) or (None if is_unknown else False)

    def sign(self, end: SignedEnd, roster: Roster, own: OwnModel | None = None) -> SignedEnd:
        """Return the end of a lane with the signatures that count; this node signs if its ``own`` model approves.

        An end that was taken, and lacks signatures since keys were changed, it signs in any case.
        """
        # Of fewer members than that, all.
        run, most = self._manifest.run_id, min(self._rules.signatures, len(roster.ids))
        valid = valid_signatures(roster, run, end)
        lacks = end.is_final and len(valid) < most
        if lacks or (own is not None and self._approves(end, own)):
            valid[self.keys.id] = sign_end(self.keys, run, end)
        signatures = join_signatures(valid, self._rules.signatures)
        return replace(end, signatures=signatures, is_final=end.is_final or len(valid) >= most)

    def seal_end(self, end: SignedEnd, roster: Roster, peers: Iterable[str] | None = None) -> dict[str, bytes]:
        """Return the end of a lane sealed for ``peers``, or for each neighbour, who does the same: so all get it."""
        context = roster.seal_context(self._manifest)
        neighbours = roster.neighbours(self.keys.id)
        return {
            peer: seal(
                context,
                [roster.kem_key(peer, context.epoch)],
                walk_tag=final_tag(end.lane),
                iteration=end.iteration,
                body=end.model + end.signatures,
                final=True,
            )
            for peer in neighbours
            if peers is None or peer in peers
        }

    def _tell(self, final: SignedEnd | None, roster: Roster, peer: str | None) -> dict[str, bytes]:
        """Return what is finished, sealed for a neighbour that has shown that it lacks it."""
        if final is None or not final.model or peer is None:
            return {}
        return self.seal_end(self.sign(final, roster), roster, [peer])

    def _seal(self, roster: Roster, about: Header, body: bytes) -> bytes:
        context = roster.seal_context(self._manifest)
        if roster.is_overlay:
            keys = draw_evenly(self._draws, roster.foreign_keys(context.epoch), context.recipients)
        else:
            goals = self.law.choose(self._draws, context.recipients)
            keys = [roster.kem_key(goal, context.epoch) for goal in goals]
        return seal(context, keys, walk_tag=about.walk_tag, iteration=about.iteration, made_at=about.made_at, body=body)


def read_model(spool: Spool, register: Register, stored: StoredModel | None) -> bytes | None:
    """Return a stored model; a damaged one is as good as none."""
    if stored is None:
        return None
    try:
        return spool.read(stored)
    except DamageError:
        register.count("damaged")
        return None


def is_fork(header: Header, walks: Mapping[bytes, SeenWalk]) -> bool:
    """Return whether a walk has forked and this branch is behind: this node has opened a later state of the same walk.

    No opening takes from the iteration, so one walk never comes back with less. Somebody copied a message for several,
    and two of them opened it. The branch that is furthest on is never given up: nobody has opened anything later.
    """
    walk = walks.get(header.walk_tag)
    return walk is not None and header.iteration < walk.iteration


def walks_ahead(header: Header, walks: Mapping[bytes, SeenWalk]) -> list[SeenWalk]:
    """Return the walks that make this one too many: seen here later, alive and further on.

    It must have been seen *after* this one was first seen here; an older walk that is further on may be dead. Two
    walks never both give way: the one that does is behind the other, and stays behind it.
    """
    own = walks.get(header.walk_tag)
    if own is None:
        return []
    return [
        other
        for tag, other in walks.items()
        if tag != header.walk_tag and other.iteration > header.iteration and other.last_turn > own.first_turn
    ]


def updates_lost(header: Header, ahead: Iterable[SeenWalk]) -> int:
    """Return about how many updates are lost with a walk that gives way to others.

    Those it has had since it or the other was made, for of two walks the later one was mostly made from a model of the
    earlier. Both of a third, they parted before that, and this is too little.
    """
    parted = max((walk.made_at for walk in ahead), default=0)
    return max(header.iteration - max(header.made_at, parted), 0)
