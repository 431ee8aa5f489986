"""Power cuts at every step of the disk, in a simulated cluster: what was not synced may be gone, whole or in part.

The nodes' own custody runs here, on a disk that forgets; only network, sealing and training are stand-ins. One message
counts the updates of every node, as in the campaign, so that any loss or doubling shows. It is sealed for several, the
first of whom opens it, so that a copy would be a second walk. Neighbours fall silent, and messages go another way.

    python -m tests.campaigns.power_loss --cuts 100000
"""

from __future__ import annotations

import argparse
import hashlib
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tests.campaigns.forgetful_disk import NEVER, ForgetfulDisk, FullDisk, PowerCutError
from veilwalk.core.errors import ProtocolError, SpoolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node.peer import NextHop, OsDraws
from veilwalk.node.peer._custody import Custody, Place
from veilwalk.node.sealing import Bytes
from veilwalk.node.spool import Row, Spool, UpdateOutcome, Verdict

if TYPE_CHECKING:
    from veilwalk.node.sealing import Opener


# A cut comes after some hundred at most, while anything moves.
_MOST_ACTS = 20_000


@dataclass(frozen=True, slots=True)
class _Header:
    update_id: bytes
    walk_tag: bytes
    iteration: int
    counts: tuple[int, ...]
    made_at: int = 0


@dataclass(frozen=True, slots=True)
class _Opened:
    header: _Header


class _Opener:
    """Opens messages that name this node; nothing here is secret."""

    def __init__(self, name: str) -> None:
        self._name = name

    def is_current(self, message: Bytes) -> bool:
        """Return whether the message is of this run."""
        del message
        return True

    def open(self, message: Bytes) -> _Opened | None:
        """Return the header if the message names this node."""
        goals, update_id, *counts = bytes(message).split(b" ")
        if self._name not in goals.decode().split(","):
            return None
        numbers = tuple(int(count) for count in counts)
        return _Opened(_Header(update_id, b"walk", sum(numbers), numbers))


@dataclass(slots=True)
class _Node:
    name: str
    disk: ForgetfulDisk
    custody: Custody


class World:
    """Some nodes in a ring with chords, one message, and a power supply that fails."""

    def __init__(
        self,
        seed: int,
        *,
        n_nodes: int = 5,
        recipients: int = 1,
        inline_bytes: int = 0,
        disk: Any = None,
    ) -> None:
        self.dice = random.Random(seed)  # noqa: S311  a simulation
        self._inline_bytes, self._recipients = inline_bytes, recipients
        self._disk = disk or ForgetfulDisk
        self.names = [f"n{index}" for index in range(n_nodes)]
        self.cuts, self.refused = 0, 0
        self.nodes: dict[str, _Node] = {}
        for name in self.names:
            self.nodes[name] = self._boot(name, self._disk(self.dice))
        first = self.nodes["n0"]
        first.custody.create(b"n2 first " + b" ".join([b"0"] * n_nodes), "started")

    def _boot(self, name: str, disk: ForgetfulDisk) -> _Node:
        index = self.names.index(name)
        near = {(index + step) % len(self.names) for step in (1, -1, 2)} - {index}
        custody = Custody(
            Spool(disk, inline_bytes=self._inline_bytes),
            opener=cast("Opener", _Opener(name)),
            next_hop=NextHop(walk=SIMPLE, neighbours=tuple(sorted(self.names[other] for other in near))),
            draws=SeededDraws(self.dice),
            quota=4,
        )
        node = _Node(name, disk, custody)
        custody.recover()
        return node

    def run(self, cuts: int) -> None:
        """Work until the power has failed so many times."""
        target = self.cuts + cuts
        while self.cuts < target:
            victims = self.names if self.dice.random() < 0.05 else [self.dice.choice(self.names)]
            for name in victims:
                disk = self.nodes[name].disk
                disk.steps_left = self.dice.randrange(60)
                if isinstance(disk, FullDisk):
                    disk.sound, disk.failing = self.dice.randrange(30), self.dice.randrange(1, 20)
            if not self._work_until_cut():
                # Nothing is on its way any more.
                return

    def settle(self, updates: int) -> None:
        """Work in peace until so many more updates are made, or it is clear that they will not be."""
        for node in self.nodes.values():
            node.disk.steps_left = NEVER
            if isinstance(node.disk, FullDisk):
                node.disk.failing = 0
        target = sum(self.committed()) + updates
        for _ in range(2000 * updates):
            self._act(self.dice.choice(self.names))
            if sum(self.committed()) >= target:
                return

    def committed(self) -> list[int]:
        """Return how many updates each node has made, by its own books."""
        return [self.nodes[name].custody.statistics()[0].get("updates", 0) for name in self.names]

    def faults(self) -> list[str]:
        """Return what is wrong: updates lost or doubled, messages gone or copied, damage passed on."""
        found = []
        newest = [0] * len(self.names)
        live: dict[bytes, int] = {}
        for node in self.nodes.values():
            with node.custody.spool.transaction(durable=False) as register:
                rows, model = register.messages(), register.model("checkpoint")
            try:
                counts = [] if model is None else [int(count) for count in node.custody.spool.read(model).split(b" ")]
                newest = max(newest, counts, key=sum)
            except SpoolError as error:
                found.append(f"the model of {node.name}: {error}")
            found += [f"{node.name} has {len(left)} files that nobody needs" for left in [_orphans(node)] if left]
            for row in rows:
                with self.nodes[row.peer or node.name].custody.spool.transaction(durable=False) as register:
                    handed_over = row.peer is not None and register.has_taken(node.name, row.key or b"")
                if not handed_over:
                    live[row.digest] = live.get(row.digest, 0) + 1
        if newest != self.committed():
            found.append(f"newest model {newest}, nodes committed {self.committed()}")
        if sum(live.values()) != 1:
            found.append(f"{sum(live.values())} messages on their way")
        return found

    def _work_until_cut(self) -> bool:
        for _ in range(_MOST_ACTS):
            name = self.dice.choice(self.names)
            try:
                self._act(name)
            except SpoolError:
                # As in a node: nothing has happened, and the same is done again.
                self.refused += 1
            except PowerCutError:
                for victim in self.names:
                    node = self.nodes[victim]
                    if node.disk.steps_left < 0:
                        self._revive(victim)
                return True
        return False

    def _revive(self, name: str) -> None:
        self.cuts += 1
        disk = self.nodes[name].disk.after_cut()
        # The power may go again while the node starts.
        while self.dice.random() < 0.2:
            disk.steps_left = self.dice.randrange(12)
            try:
                self._boot(name, disk)
            except PowerCutError:
                self.cuts += 1
                disk = disk.after_cut()
        disk.steps_left = NEVER
        self.nodes[name] = self._boot(name, disk)

    def _act(self, name: str) -> None:
        node = self.nodes[name]
        for number in _at(node, Place.OPENING):
            self._train(node, number)
            return
        for number in _at(node, Place.WAITING):
            node.custody.pin(number)
        for peer in node.custody.next_hop.neighbours:
            outgoing = node.custody.outgoing(peer)
            if outgoing is None:
                continue
            if self.dice.random() < 0.1:
                # A neighbour that seems silent, for long enough.
                node.custody.reroute(peer, avoid=frozenset({peer}))
            else:
                self._hand_over(node, peer, *outgoing)

    def _hand_over(self, node: _Node, peer: str, row: Row, body: bytes) -> None:
        """Every answer may be lost on the way."""
        other, key = self.nodes[peer].custody, row.key or b""
        if not row.given:
            held = other.hold(node.name, key, row.digest, body)
            if held not in {Verdict.HELD, Verdict.AGAIN} or self.dice.random() < 0.1:
                return
            node.custody.give(peer, key)
            if self.dice.random() < 0.1:
                return
        taken = other.take(node.name, key)
        if self.dice.random() < 0.1:
            return
        if taken.verdict is Verdict.UNKNOWN:
            node.custody.deny(peer, key)
        else:
            node.custody.deliver(peer, key)

    def _train(self, node: _Node, number: int) -> None:
        found = node.custody.examine(number)
        if found is None or found[1] is None:
            return
        header: Any = found[1].header
        counts = list(header.counts)
        counts[self.names.index(node.name)] += 1
        model = b" ".join(str(count).encode() for count in counts)
        goals = self.dice.sample([other for other in self.names if other != node.name], self._recipients)
        update_id = hashlib.sha256(model).hexdigest()[:16].encode()
        done = UpdateOutcome(
            message=b" ".join((",".join(goals).encode(), update_id, model)),
            model=model,
            header=header,
            epoch=0,
            iteration=sum(counts),
            learner_state=b"",
            counts=("updates",),
        )
        node.custody.replace(found[0], done)


def _at(node: _Node, place: Place) -> list[int]:
    custody = node.custody
    return [row.id for row in custody.spool.tables.messages() if row.peer is None and custody.place_of(row) is place]


def _orphans(node: _Node) -> set[str]:
    spool = node.custody.spool
    with spool.transaction() as register:
        needed = register.files()
    held = {held.stored.file for held in node.custody.held.values()}
    return set(node.disk.names()) - needed - held - set(spool._free)


class SeededDraws(OsDraws):
    """Seeded draws, so that a fault can be played again."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def below(self, count: int) -> int:
        """Return a whole number below ``count``."""
        return self._dice.randrange(count)

    def unit(self) -> float:
        """Return a number from 0 to 1."""
        return self._dice.random()


def campaign(
    *, cuts: int, seed: int, cuts_per_world: int = 200, disk: Any = None, until_fault: bool = False
) -> tuple[int, list[str]]:
    """Cut the power so many times in fresh worlds; return how often it was, and every fault with its world's seed.

    With ``until_fault`` the first world that has one is the last.
    """
    done, world_seed = 0, seed
    faults: list[str] = []
    while done < cuts and not (until_fault and faults):
        world = World(
            world_seed,
            recipients=(1, 3)[world_seed // 4 % 2],
            inline_bytes=(0, 1 << 20)[world_seed % 2],
            disk=disk,
        )
        try:
            world.run(min(cuts_per_world, cuts - done))
            world.settle(5)
            found = world.faults()
        except ProtocolError as error:
            found = [str(error)]
        done += world.cuts
        faults += [f"seed {world_seed}: {fault}" for fault in found]
        world_seed += 1
    return done, faults


def main() -> None:
    """Run the campaign and print what it found."""
    parser = argparse.ArgumentParser(description="Power cuts at every step of a simulated disk.")
    parser.add_argument("--cuts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="disks are also full, or fail, for some steps")
    options = parser.parse_args()
    start = time.perf_counter()
    done, faults = campaign(cuts=options.cuts, seed=options.seed, disk=FullDisk if options.full else None)
    print(f"{done} power cuts from seed {options.seed} in {time.perf_counter() - start:.0f} s: {len(faults)} faults")
    for fault in faults[:20]:
        print(fault)


if __name__ == "__main__":
    main()
