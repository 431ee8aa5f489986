"""Keeps every message that a node took and has not handed on. Each method is one step that a crash cannot halve.

Where a message can be, and what takes it from there, is a table (:data:`TRANSITIONS`). A message has its key before it
is given, and is offered under that; a receiver holds it, uses it only when it is given, and has it on disk before it
says so. So a crash anywhere repeats a step, which the receiver knows by the key. What was not given may go another way;
what was given may be used already, and waits for the answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from veilwalk.node.peer._ends import merge_signatures
from veilwalk.node.peer._routing import NextHop, OsDraws
from veilwalk.node.peer._watches import Visits
from veilwalk.node.sealing import Bytes, Header, OpenedHeader, Opener
from veilwalk.node.spool import (
    KEYS_REMEMBERED,
    STEP,
    DamageError,
    Register,
    Row,
    SignedEnd,
    Spool,
    Stored,
    Taken,
    UpdateOutcome,
    Verdict,
    hit,
    of_lane,
)

# Remembered in memory, and only so many: a member can have any number of them given up, without any training.
_GIVEN_UP = 4096
# A neighbour forgets the key of a message after so many others: no power cut may bring that many back.
_MOST_UNSYNCED = KEYS_REMEMBERED // 2


class Place(Enum):
    """Where a message is."""

    HELD = "held"
    WAITING = "waiting"
    OPENING = "opening"
    PINNED = "pinned"
    GIVEN = "given"


class Event(Enum):
    """What happens to a message."""

    OFFER = "a neighbour offers it"
    FORGET = "another offer takes its place, or its epoch ends"
    TAKE = "the neighbour gives it, and it opens for others"
    OPEN = "the neighbour gives it, and it opens here"
    CREATE = "a walk is made here"
    ANNOUNCE = "an end is told to one neighbour"
    PASS = "it was opened before"  # noqa: S105  no password
    TRAIN = "its update takes its place"
    PIN = "its dwell is over, and a next hop is drawn"
    REROUTE = "that neighbour is silent, and another is drawn"
    GIVE = "this node lets it go no other way"
    DENY = "that neighbour says that it has not taken it"
    LEAVE = "that neighbour leaves the roster"
    DELIVER = "that neighbour says that it has taken it"
    DROP = "it ends here"


#: (place, event) -> place; None stands for nowhere. Everything that it does not list is a fault of this node.
TRANSITIONS: dict[tuple[Place | None, Event], Place | None] = {
    (None, Event.OFFER): Place.HELD,
    (Place.HELD, Event.FORGET): None,
    (Place.HELD, Event.TAKE): Place.WAITING,
    (Place.HELD, Event.OPEN): Place.OPENING,
    (None, Event.CREATE): Place.WAITING,
    (None, Event.ANNOUNCE): Place.PINNED,
    (Place.OPENING, Event.PASS): Place.WAITING,
    (Place.OPENING, Event.TRAIN): Place.WAITING,
    (Place.OPENING, Event.DROP): None,
    (Place.WAITING, Event.PIN): Place.PINNED,
    (Place.WAITING, Event.DROP): None,
    (Place.PINNED, Event.REROUTE): Place.PINNED,
    (Place.PINNED, Event.GIVE): Place.GIVEN,
    (Place.PINNED, Event.LEAVE): Place.PINNED,
    (Place.PINNED, Event.DROP): None,
    (Place.GIVEN, Event.DENY): Place.PINNED,
    (Place.GIVEN, Event.DELIVER): None,
    (Place.GIVEN, Event.LEAVE): Place.PINNED,
    (Place.GIVEN, Event.DROP): None,
}


def next_place(place: Place | None, event: Event) -> Place | None:
    """Return where ``event`` takes a message; refuse what the table does not list."""
    if (place, event) not in TRANSITIONS:
        raise RuntimeError(f"a message in custody at {place}: {event} cannot happen there")
    return TRANSITIONS[place, event]


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that is here, and still the neighbour's: in no table, so nothing can open it or pass it on."""

    key: bytes
    body: Bytes
    stored: Stored


class Custody:
    """The messages of one node and the rules they follow. Used by the storage thread alone."""

    def __init__(
        self,
        spool: Spool,
        *,
        opener: Opener,
        next_hop: NextHop,
        draws: OsDraws,
        quota: int,
        visits: Visits | None = None,
        avoided: Callable[[bool], frozenset[str]] = lambda _: frozenset(),
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.spool = spool
        self.opener = opener
        self.next_hop = next_hop
        #: As a rule nothing comes too often.
        self.visits = visits or Visits(10**9, pause_s=0.0)
        self._draws = draws
        self._quota = quota
        # Neighbours that are not there or, where that counts, behaved badly: as a rule none, as in the simulator.
        self._avoided = avoided
        self._clock = clock or time.monotonic
        # By neighbour. A restart forgets them: the neighbour still has each, and offers it again.
        self.held: dict[str, HeldMessage] = {}
        # Messages that open here and wait for the training, with the ids of their updates.
        self._opening: dict[int, bytes] = {}
        # Messages that wait because they came too often, and those that are too old to go on.
        self._resting: set[int] = set()
        self._outlived: set[int] = set()
        # The ids of those that were opened and given up.
        self._given_up: deque[bytes] = deque(maxlen=_GIVEN_UP)
        # Since when a message waits for the answer to GO.
        self._given_since: dict[int, float] = {}
        self._unsynced = 0

    def follow(self, *, opener: Opener, next_hop: NextHop, allowed_visits: int) -> None:
        """Open, route and slow down as a new roster asks."""
        self.opener, self.next_hop = opener, next_hop
        for peer, held in tuple(self.held.items()):
            if not opener.is_current(held.body):
                self._forget(peer)
        self.visits.allowed = allowed_visits

    def place_of(self, row: Row) -> Place:
        """Return where a message is."""
        if row.peer is None:
            return Place.OPENING if row.id in self._opening else Place.WAITING
        return Place.GIVEN if row.given else Place.PINNED

    def _move(self, row: Row, event: Event) -> None:
        """Check that ``event`` may happen to a message where it is, and forget what was noted of it there."""
        after = next_place(self.place_of(row), event)
        if after is not Place.WAITING:
            self._resting.discard(row.id)
            self._outlived.discard(row.id)
        self._opening.pop(row.id, None)
        if after is not Place.GIVEN:
            self._given_since.pop(row.id, None)

    # Coming in.

    def greet(self, peer: str, incarnation: bytes) -> bool:
        """Note which disk a neighbour has that is about to offer messages; return whether it is a new one."""
        if self.spool.tables.is_disk_of(peer, incarnation):
            return False
        self._forget(peer)
        with self.spool.transaction() as register:
            register.greet(peer, incarnation)
        return True

    def hold(self, peer: str, key: bytes, digest: bytes, body: Bytes) -> Verdict:
        """Keep the message of that key, which a neighbour offers, without using it.

        Raises:
            SpoolError: It could not be stored.
        """
        hit("hold.received")
        if self.spool.tables.has_taken(peer, key):
            return Verdict.AGAIN
        if not self.opener.is_current(body):
            return Verdict.REFUSED
        self._forget(peer)
        try:
            # A large one is in its file, synced, before it is given: what is left to do then is quick.
            stored = self.spool.store(body, digest=digest)
        except DamageError:
            return Verdict.DAMAGED
        next_place(None, Event.OFFER)
        self.held[peer] = HeldMessage(key, body, stored)
        hit("hold.stored")
        return Verdict.HELD

    def take(self, peer: str, key: bytes) -> Taken:
        """Take the message of that key, which is held and now given; once this returns it is safe to say so.

        Raises:
            SpoolError: It could not be stored, and was not taken.
        """
        hit("take.received")
        if self.spool.tables.has_taken(peer, key):
            return Taken(Verdict.AGAIN)
        held = self.held.get(peer)
        if held is None or held.key != key:
            self._forget(peer)
            # The neighbour may send it another way then: it must be certain.
            self.spool.settle()
            return Taken(Verdict.UNKNOWN)
        # Its bytes are where the next that comes by the same connection will be.
        del self.held[peer]
        opened = self.opener.open(held.body)
        for_us = self._is_new(opened)
        next_place(Place.HELD, Event.OPEN if for_us else Event.TAKE)
        # Every visit counts, whatever it is.
        wait_s, is_last = self.visits.visit(held.stored.digest)
        wait_s = 0.0 if for_us else wait_s
        row, crowded_out = self._write(peer, held, rests=wait_s > 0)
        if wait_s:
            self._resting.add(row.id)
            if is_last:
                self._outlived.add(row.id)
        if opened is not None and for_us:
            self._opening[row.id] = opened.header.update_id
        return Taken(Verdict.TAKEN, row, for_us=for_us, wait_s=wait_s, crowded_out=crowded_out)

    def create(self, message: Bytes, count: str, *, lane: int = 0, came_from: str = "") -> Row:
        """Put a walk made here under way; in a lane after a meeting as it would have gone on, and no second time."""
        with self.spool.transaction() as register:
            register.count(count)
            next_place(None, Event.CREATE)
            if lane:
                register.set_start(lane, b"")
            return register.add_message(self.spool.store(message), came_from=came_from or None)

    def recover(self) -> list[tuple[Row, bool]]:
        """Return every message in custody, and whether it opens here; damaged ones are thrown away."""
        rows = []
        for row in self.spool.tables.messages():
            if self.drop_if_damaged(row):
                continue
            opened = self.opener.open(self.spool.read(row)) if row.peer is None else None
            for_us = self._is_new(opened)
            if opened is not None and for_us:
                self._opening[row.id] = opened.header.update_id
            rows.append((row, for_us))
        return rows

    def _write(self, peer: str, held: HeldMessage, *, rests: bool) -> tuple[Row, int | None]:
        """Take a message into custody; return it, and which had to go for it."""
        try:
            with self.spool.transaction() as register:
                register.add_taken(peer, held.key)
                register.count("taken")
                crowded_out = self._make_room(register, peer)
                if rests:
                    register.count("rested")
                row = register.add_message(held.stored, came_from=peer)
                hit("take.before_commit")
        except BaseException:
            self.spool.discard(held.stored)
            raise
        hit("take.committed")
        if crowded_out is not None:
            self._move(crowded_out, Event.DROP)
        return row, None if crowded_out is None else crowded_out.id

    def _make_room(self, register: Register, peer: str) -> Row | None:
        """Let one of a neighbour's messages go where it has brought more than it may, and return which.

        No other's is touched for it. Nobody waits for room, so none can be waited for in a circle: what nobody can open
        must not stop what somebody can. An honest network never has as many messages as one neighbour may bring. What
        came too often goes first, then any that is not for this node; the oldest of those may be at work.
        """
        brought = register.messages(came_from=peer, given=0)
        if len(brought) < self._quota:
            return None
        resting = [row for row in brought if row.id in self._resting]
        strange = [row for row in brought if row.id not in self._opening]
        options = resting or strange or brought[1:] or brought
        row = options[self._draws.below(len(options))]
        register.drop(row)
        register.count("crowded_out")
        return row

    def _is_new(self, opened: OpenedHeader | None) -> bool:
        """Return whether a message opens here for the first time.

        What was opened before, or given up, or waits for the training, goes on like what never was: a neighbour may
        bring it again to see what becomes of it.
        """
        if opened is None:
            return False
        update_id = opened.header.update_id
        if update_id in self._opening.values() or update_id in self._given_up:
            return False
        return not self.spool.tables.is_opened(update_id)

    def _forget(self, peer: str) -> None:
        """Forget what a neighbour offered."""
        held = self.held.pop(peer, None)
        if held is not None:
            next_place(Place.HELD, Event.FORGET)
            self.spool.discard(held.stored)

    # Opening.

    def examine(self, number: int) -> tuple[Row, OpenedHeader | None] | None:
        """Return a message that opens here, with its header where it is to be worked on; None if it is gone."""
        row = self.spool.tables.message(id=number)
        if row is None or row.peer is not None or self.drop_if_damaged(row):
            return None
        opened = self.opener.open(self.spool.read(row))
        if opened is None or self.spool.tables.is_opened(opened.header.update_id):
            # Its epoch ended, or it came while the first was being trained on, which had been crowded out meanwhile.
            if row.id in self._opening:
                self._move(row, Event.PASS)
            return row, None
        return row, opened

    def replace(self, row: Row, outcome: UpdateOutcome) -> Row | None:
        """Commit what became of an opened message; return the message in its place, or None."""
        hit("train.sealed")
        is_end = outcome.message is None
        if outcome.header is None and row.id in self._opening:
            self._given_up.append(self._opening[row.id])
        successor: Row | None = None
        with self.spool.transaction() as register:
            # One that was crowded out while it was worked on is gone, and its body is another message's.
            is_here = register.drop(row)
            for name in outcome.counts:
                register.count(name)
            if outcome.lost:
                register.count("discarded", outcome.lost)
            if outcome.header is not None:
                self._note_update(register, outcome, outcome.header)
            self._note_end(register, outcome)
            if outcome.end is not None and outcome.model is not None and register.rounds_of_run > 1:
                # From the next meeting the walk goes on here, and as it would have gone on now: not straight back.
                register.set_start(outcome.lane, outcome.end.digest + (row.came_from or "").encode())
            if outcome.message is not None:
                # It goes on as the message it replaces would have: not straight back where that came from.
                successor = register.add_message(self.spool.store(outcome.message), came_from=row.came_from)
            hit("finish.before_commit" if is_end else "train.before_commit")
        hit("finish.committed" if is_end else "train.committed")
        if is_here:
            self._move(row, Event.DROP if successor is None else Event.TRAIN)
        return successor

    def _note_update(self, register: Register, outcome: UpdateOutcome, header: Header) -> None:
        register.add_opened(header.update_id, outcome.epoch)
        if outcome.model is not None:
            register.add_walk(header.walk_tag, outcome.iteration, register.count("turns"), header.made_at)
            stored = self.spool.store(outcome.model, plain=True)
            register.set_model(
                "checkpoint", stored, lane=outcome.lane, tag=header.walk_tag, iteration=outcome.iteration
            )
        if outcome.learner_state is not None:
            state = self.spool.store(outcome.learner_state, plain=True)
            register.set_model("state", state, tag=b"", iteration=0)
        if outcome.step is not None:
            register.set_mark(of_lane(STEP, outcome.lane % register.walks_of_run), repr(outcome.step).encode())

    # Ends.

    def announce(self, farewells: Mapping[str, Bytes], lane: int) -> None:
        """Put the end of a lane under way to neighbours for which none waits."""
        with self.spool.transaction() as register:
            self._announce(register, farewells, lane, again=False)

    def sign_end(self, end: SignedEnd, farewells: Mapping[str, Bytes]) -> bool:
        """Note who has signed the end of a lane, tell the neighbours, and take it where enough have.

        Return whether it is still the one that is being signed here.
        """
        with self.spool.transaction() as register:
            stored = register.model("end", end.lane)
            if stored is None or stored.digest != end.digest:
                return False
            register.set_signatures("end", end.lane, merge_signatures(stored.signatures, end.signatures))
            if end.is_final:
                self._take_end(register, end.lane)
            self._announce(register, farewells, end.lane, again=True)
        return True

    def _note_end(self, register: Register, outcome: UpdateOutcome) -> None:
        end = outcome.end
        if end is None:
            self._announce(register, outcome.farewells, outcome.lane, again=False)
            return
        stored, final = self.spool.store(end.model, plain=True), register.model("final", end.lane)
        # One may have been taken since this node looked.
        place = (end.iteration, stored.digest)
        if final is not None and (not end.is_final or place <= (final.iteration, final.digest)):
            self.spool.discard(stored)
            return
        noted = register.model("end", end.lane)
        known = b"" if noted is None or noted.digest != stored.digest else noted.signatures
        signatures = merge_signatures(known, end.signatures)
        register.set_model("end", stored, lane=end.lane, tag=b"", iteration=end.iteration, signatures=signatures)
        if end.is_final:
            self._take_end(register, end.lane)
        self._announce(register, outcome.farewells, end.lane, again=True)

    def _take_end(self, register: Register, lane: int) -> None:
        register.count("ends" if register.model("final", lane) is None else "ends_changed")
        register.drop_model("final", lane)
        register.execute("UPDATE model SET kind = 'final' WHERE kind = 'end' AND lane = ?", lane)
        register.forget_rounds()

    def _announce(self, register: Register, farewells: Mapping[str, Bytes], lane: int, *, again: bool) -> None:
        walks = register.walks_of_run
        for peer, message in farewells.items():
            waiting = [row for row in register.messages(peer=peer) if row.end_lane is not None]
            announced = [row for row in waiting if row.end_lane == lane]
            if announced and not again:
                continue
            # A neighbour that was away needs the ends of the last two rounds, and none before.
            outdated = [row for row in waiting if (row.end_lane or 0) // walks < lane // walks - 1]
            for row in (*announced, *outdated):
                if not row.given:
                    self._move(row, Event.DROP)
                    register.drop(row)
            next_place(None, Event.ANNOUNCE)
            register.add_message(self.spool.store(message), came_from=None, peer=peer, end_lane=lane)

    # Going out.

    def pin(self, number: int) -> Row | None:
        """Draw the next hop of a message that waits; None if it is gone, or goes now because it is too old."""
        if number in self._outlived:
            self.drop(number, "outlived")
            return None
        with self.spool.transaction() as register:
            row = register.message(id=number)
            if row is None or row.peer is not None:
                return row
            pinned = register.pin(row, self._draw_next(row))
            hit("route.before_commit")
        hit("route.committed")
        self._move(row, Event.PIN)
        return pinned

    def outgoing(self, peer: str) -> tuple[Row, bytes] | None:
        """Return what is next on the link to ``peer``, and its bytes: what was given first, then the oldest."""
        for row in self.spool.tables.messages(peer=peer):
            try:
                return row, self.spool.read_unchecked(row)
            except DamageError:
                self.drop(row.id, "damaged")
        return None

    def waits_for(self, peer: str) -> bool:
        """Return whether anything is to be handed over to ``peer``."""
        return bool(self.spool.tables.messages(peer=peer))

    def give(self, peer: str, key: bytes) -> bool:
        """Note that a message is the neighbour's to use, before it is told so; it goes no other way from now on.

        Return whether it may be: it may have gone another way since it was offered.
        """
        row = self.spool.tables.message(peer=peer, key=key)
        if row is None:
            return False
        self._move(row, Event.GIVE)
        # After a power cut, which may undo this, everything pinned counts as given: no need to wait for the disk.
        with self.spool.transaction(durable=False) as register:
            register.set_given(row, True)  # noqa: FBT003
            hit("give.before_commit")
        hit("give.committed")
        self._given_since[row.id] = self._clock()
        return True

    def deny(self, peer: str, key: bytes) -> None:
        """Note that the neighbour said it did not take a message."""
        row = self.spool.tables.message(peer=peer, key=key)
        if row is not None:
            with self.spool.transaction(durable=False) as register:
                register.set_given(row, False)  # noqa: FBT003
            self._move(row, Event.DENY)

    def deliver(self, peer: str, key: bytes) -> None:
        """Let go of a message that ``peer`` has taken."""
        hit("send.before_delete")
        row = self.spool.tables.message(peer=peer, key=key)
        if row is not None:
            # Undone by a power cut, it is asked about once more: no need to wait for the disk, but for so many.
            self._unsynced = (self._unsynced + 1) % _MOST_UNSYNCED
            with self.spool.transaction(durable=not self._unsynced) as register:
                register.drop(row)
                register.count("hops" if row.end_lane is None else "farewells")
            self._move(row, Event.DELIVER)
        hit("send.deleted")

    def reroute(self, peer: str, *, avoid: frozenset[str]) -> set[str]:
        """Pin the messages of a silent neighbour that were not given to others; return to whom."""
        if set(self.next_hop.neighbours) <= avoid | {peer}:
            # Nobody else is there.
            return set()
        return {str(row.peer) for row in self._pin_anew(peer, Event.REROUTE, avoid=avoid | {peer})}

    def part_from(self, peer: str) -> list[Row]:
        """Send what was for a neighbour that has left for good another way; return it.

        That neighbour may have passed on what it was given: then there are two walks, which merge. Better than none.
        """
        with self.spool.transaction() as register:
            for row in register.messages(peer=peer):
                if row.end_lane is not None:
                    self._move(row, Event.DROP)
                    register.drop(row)
        return self._pin_anew(peer, Event.LEAVE, avoid=frozenset())

    def _pin_anew(self, peer: str, event: Event, *, avoid: frozenset[str]) -> list[Row]:
        places = {Place.PINNED, Place.GIVEN} if event is Event.LEAVE else {Place.PINNED}
        moved, pinned = [], []
        with self.spool.transaction() as register:
            for row in register.messages(peer=peer):
                if row.end_lane is None and self.place_of(row) in places:
                    pinned.append(register.pin(row, self._draw_next(row, avoid=avoid)))
                    moved.append(row)
                    register.count("rerouted")
        for row in moved:
            self._move(row, event)
        return pinned

    def _draw_next(self, row: Row, *, avoid: frozenset[str] = frozenset()) -> str:
        """Draw the next hop of a message; one that comes too often goes to anybody who answers, however it behaved.

        Its recipient may be behind a neighbour that everybody avoids, and what nobody can open may as well end there.
        """
        passed_by = avoid | self._avoided(not self.visits.is_frequent(row.digest))
        if passed_by.issuperset(self.next_hop.neighbours):
            # Better one that took nothing lately than the one that it waited for in vain.
            passed_by = avoid
        return self.next_hop.choose(self._draws, came_from=row.came_from, avoid=passed_by)

    # Going nowhere.

    def drop(self, number: int, count: str) -> None:
        """Let a message go for good, and count why."""
        if number in self._opening:
            self._given_up.append(self._opening[number])
        with self.spool.transaction() as register:
            row = register.message(id=number)
            if row is not None:
                register.drop(row)
                register.count(count)
        if row is not None:
            self._move(row, Event.DROP)

    def drop_if_damaged(self, row: Row) -> bool:
        """Let a message go if its bytes are not what was written; return whether it was so."""
        try:
            self.spool.read(row)
        except DamageError:
            self.drop(row.id, "damaged")
            return True
        return False

    def expire(self) -> None:
        """Let go of messages whose epoch is over, which nobody opens any more, and of what was opened then."""
        with self.spool.transaction() as register:
            register.forget_opened_before(self.opener.oldest_epoch)
        for row in self.spool.tables.messages():
            if not self.drop_if_damaged(row) and not self.opener.is_current(self.spool.read(row)):
                self.drop(row.id, "expired")

    # Looking.

    def statistics(self) -> tuple[dict[str, int], int]:
        """Return all tallies, and how many messages are in custody."""
        return self.spool.tables.tallies(), len(self.spool.tables.messages())

    def has_a_walk(self, patience_s: float) -> bool:
        """Return whether a message is here that may be a walk.

        That is no end, nor one that came too often, nor one that was given so long ago that its walk may be elsewhere.
        """
        now = self._clock()
        return any(
            row.end_lane is None
            and row.id not in self._resting
            and not (row.given and now - self._given_since.setdefault(row.id, now) > patience_s)
            for row in self.spool.tables.messages()
        )
