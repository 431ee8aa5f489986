"""A small network of real nodes in virtual time, what happens to it, and whether it came through."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.campaigns.forgetful_disk import NEVER, ForgetfulDisk, PowerCutError
from tests.campaigns.virtual_network import network_parts
from tests.campaigns.virtual_time import Life, VirtualLoop
from veilwalk.node.peer import Node
from veilwalk.node.spool import Row, Spool

_TROUBLE_S = 2.0
_PATIENCE_S = 60.0
_MORE_UPDATES = 4


class SimulatedDisk(ForgetfulDisk):
    """A disk of this world: its end is its node's."""

    #: Called when the power goes, or the process is killed, at a step of the disk.
    on_cut: Any = None
    dead = False

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0 or self.dead:
            first, self.dead = not self.dead, True
            if first and self.on_cut is not None:
                self.on_cut()
            raise PowerCutError

    def after_kill(self) -> SimulatedDisk:
        """Return the disk as the next process finds it: all that was committed, and the same start of the machine."""
        self.dead = True
        files = {name: file.content for name, file in self._names.items()}
        found = SimulatedDisk(self._dice, image=self._images[-1], files=files)
        # What was not safe is not safe yet.
        found._images = list(self._images)
        for name, file in found._names.items():
            file.safe = self._names[name].safe
            if self._safe_names.get(name) is not self._names[name]:
                del found._safe_names[name]
        found.boot = self.boot
        self.close()
        return found


@dataclass(eq=False)
class _Place:
    """A member: whoever runs there now, and what it has on disk."""

    name: str
    disk: SimulatedDisk
    node: Node | None = None
    life: Life | None = None
    task: asyncio.Task[None] | None = None
    power: bool = False


class World:
    """Some nodes and everything that happens to them."""

    #: Walks meet after so many updates of each; 0: never.
    _meet = 0

    def __init__(self, seed: int, *, walks: int = 1, meet: int = 0) -> None:
        self.dice = random.Random(seed)  # noqa: S311  a simulation
        self.loop = VirtualLoop(self.dice)
        self._walks, self._meet = walks, meet
        self._parts = network_parts(seed, self.dice, walks=walks, meet=meet)
        self.places = {name: _Place(name, SimulatedDisk(self.dice)) for name in self._parts}
        self.crashes = 0
        self.failed: list[str] = []
        self._dead: list[Any] = []

    async def live(self) -> None:
        """Start, suffer, heal, and go on until it is clear that all is well, or not."""
        for name in self.places:
            self.start(name)
        ends = self.loop.now + _TROUBLE_S
        while self.loop.now < ends:
            await asyncio.sleep(self.dice.expovariate(1 / 0.1))
            self.trouble()
        self.heal()
        target = sum(self.committed()) + _MORE_UPDATES
        ends = self.loop.now + _PATIENCE_S
        while self.loop.now < ends and sum(self.committed()) < target and not self.failed:
            await asyncio.sleep(0.1)
        if sum(self.committed()) < target:
            self.failed.append(f"{_PATIENCE_S:g} s after all was healed the walk stands still")

    def start(self, name: str) -> None:
        """Start a node on its disk; it may die while it does so."""
        place = self.places[name]
        place.life = life = Life(name, self._parts[name].keys.member.certificate)
        place.disk.on_cut = lambda: self._ended(name, life)
        self.loop.note("starts", name)
        context = life.context()
        try:
            parts = self._parts[name]
            place.node = context.run(Node, replace(parts, disk=place.disk))
            place.task = self.loop.create_task(place.node.run(asyncio.Event()), context=context)
        except PowerCutError:
            place.node = None
            return
        place.task.add_done_callback(lambda task: self._ended_by_itself(name, task))

    def trouble(self) -> None:
        """Do something to somebody."""
        names, dice = list(self.places), self.dice
        kind = dice.choices(
            ["kill", "kill at a step", "power", "power at a step", "dark", "pause", "cut", "silence"],
            [2, 4, 2, 4, 0.4, 1.5, 2, 2],
        )[0]
        victims = names if kind == "dark" else [dice.choice(names)]
        self.loop.note(kind, victims)
        for name in victims:
            place = self.places[name]
            if kind in {"cut", "silence"}:
                self._disturb(name, dice.choice([other for other in names if other != name]), kind)
            elif place.life is None or not place.life.alive:
                continue
            elif kind == "pause":
                place.life.paused = True
                self.loop.call_later(dice.uniform(0.05, 1.5), self.loop.resume, place.life)
            elif kind in {"kill at a step", "power at a step"}:
                place.power = kind.startswith("power")
                place.disk.steps_left = dice.randrange(40)
            else:
                place.power = kind != "kill"
                self._ended(name, place.life)

    def heal(self) -> None:
        """End all trouble."""
        self.loop.note("healed")
        for pair in list(self.loop.silent):
            self.loop.heal(pair)
        for name, place in self.places.items():
            place.disk.steps_left = NEVER
            if place.life is not None and place.life.paused:
                self.loop.resume(place.life)
            if place.life is None or not place.life.alive:
                self._restart(name)

    def committed(self) -> list[int]:
        """Return how many updates each node has made, by its own books."""
        return [
            place.disk.database.execute("SELECT coalesce(sum(value), 0) FROM tally WHERE name = 'updates'").fetchone()[
                0
            ]
            if place.node is not None
            else 0
            for place in self.places.values()
        ]

    @property
    def meetings(self) -> int:
        """How often all walks met."""
        return max(_spool(place).tables.round for place in self.places.values())

    def faults(self) -> list[str]:
        """Return what is wrong: updates lost or doubled, messages gone or copied, nodes that ended or stand still."""
        spools = [_spool(place) for place in self.places.values()]
        first = self.meetings * self._walks
        present = range(first, first + self._walks)
        newest = sum(map(self._newest, present), np.zeros(len(self.places)))
        under_way = 0
        for place, spool in zip(self.places.values(), spools, strict=True):
            for row in spool.tables.messages():
                taken = row.peer is not None and _spool(self.places[row.peer]).tables.has_taken(
                    place.name, row.key or b""
                )
                under_way += not taken and not _is_end(place, row)
        # Walks that wait for a meeting are in no message.
        ended = first + len({lane for spool in spools for lane in spool.tables.lanes("end", "final")} & set(present))
        walks = sum(spool.tables.tally("started") for spool in spools) - ended
        found = list(self.failed)
        if newest.tolist() != self.committed():
            found.append(f"newest model {newest.tolist()}, nodes committed {self.committed()}")
        if under_way != walks or (walks != self._walks and not self._meet):
            found.append(f"{under_way} messages on their way, and {walks} walks")
        return found

    def _newest(self, lane: int) -> npt.NDArray[Any]:
        """Return the newest model of a lane: how many updates of each node it has; at first those of the last mean."""
        before = range(lane // self._walks * self._walks - self._walks, lane // self._walks * self._walks)
        newest: npt.NDArray[Any] = np.zeros(len(self.places))
        if before.start >= 0:
            newest = sum(map(self._newest, before), newest) / self._walks
        for spool in map(_spool, self.places.values()):
            for kind in ("checkpoint", "final"):
                model = spool.tables.model(kind, lane)
                if model is not None:
                    numbers = np.float64 if self._meet else np.int64
                    newest = max(newest, np.frombuffer(spool.read(model), numbers)[: len(newest)], key=np.sum)
        return newest

    def close(self) -> None:
        """Forget all of it."""
        for place in self.places.values():
            self._bury(place)
        self.loop.close()
        self._dead.clear()

    def _disturb(self, one: str, other: str, kind: str) -> None:
        pair = frozenset((one, other))
        if kind == "silence":
            self.loop.silent.add(pair)
            self.loop.call_later(self.dice.uniform(0.05, 2.0), self.loop.heal, pair)
            return
        life = self.places[one].life
        for transport in [] if life is None else life.transports:
            if transport.there.here.name == other:
                transport.abort()

    def _ended(self, name: str, life: Life) -> None:
        """End a process where it stands."""
        if not life.alive:
            return
        place = self.places[name]
        life.alive, place.disk.dead = False, True
        self.crashes += 1
        self.loop.note("ends", name, place.power)
        after_s = self.dice.uniform(0.02, 1.0)
        for transport in life.transports:
            # A process that is killed hangs up; of one without power the others hear when it is back.
            transport.gone(after_s if place.power else 0.0)
        self._outside(after_s, self._restart, name)

    def _restart(self, name: str) -> None:
        place = self.places[name]
        if place.life is not None and place.life.alive:
            return
        self._bury(place)
        place.disk = _found(place)
        self.start(name)

    def _bury(self, place: _Place) -> None:
        # What a dead process has left is kept until the world ends: to throw it away would run what it never came to.
        self._dead.append((place.node, place.task, place.life))

    def _outside(self, after_s: float, work: Any, *values: Any) -> None:
        Life(" ").context().run(self.loop.call_later, after_s, work, *values)

    def _ended_by_itself(self, name: str, task: asyncio.Task[None]) -> None:
        life = self.places[name].life
        if life is not None and life.alive and not task.cancelled():
            self.failed.append(f"{name} ended by itself: {task.exception()!r}")


def _spool(place: _Place) -> Spool:
    assert place.node is not None
    return place.node.scheduler.custody.spool


def _is_end(place: _Place, row: Row) -> bool:
    """Return whether a message is no walk, but tells of an end."""
    assert place.node is not None
    opened = place.node.scheduler.custody.opener.open(_spool(place).read(row)) if row.peer is None else None
    return row.end_lane is not None or (opened is not None and opened.header.final)


def _found(place: _Place) -> SimulatedDisk:
    """Return the disk as whoever starts there next finds it."""
    if not place.power:
        return place.disk.after_kill()
    disk = place.disk.after_cut()
    assert isinstance(disk, SimulatedDisk)
    return disk
