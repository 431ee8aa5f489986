"""Measures what one bad member of ten costs the rest: real nodes in virtual time, with the rules and limits as shipped.

The network has ten members of degree 4; its rules are those that ``cluster up`` settles for it. One member is a tarpit
(it answers OFFER after 4.6 s and GO after 9.4 s, within all limits), a black hole (it takes every message and drops
it), a decoy (it drops every message and hands on garbage instead), a mute (it never answers GO) or a flooder (it hands
on garbage as fast as it is taken). The rate is the growth of the newest model, from the start; clean, nobody is bad.

    python -m tests.campaigns.bad_neighbours --seconds 300 --walks 1 4
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tests.campaigns.chaos_attackers import _garbage, _make_garbage, _size_of_any
from tests.campaigns.schedules import closed_world, world_open
from tests.campaigns.virtual_network import members_of, rule_parts
from tests.campaigns.virtual_time import VirtualLoop
from tests.campaigns.virtual_world import SimulatedDisk, World, _Place
from veilwalk.node.cluster import ClusterPlan, node_ids, set_up_cluster
from veilwalk.node.members import RunRules
from veilwalk.node.peer import Node
from veilwalk.node.spool import Taken
from veilwalk.training import CLUSTER

NETWORK = "rrg:10:4:seed=1"
DWELL_S = 0.05
_BAD = 5
# As in FINDINGS 5: each within the limits.
_OFFER_S, _GO_S = 4.6, 9.4


@lru_cache
def shipped_plan(walks: int | None = None, recipients: int | None = None, *, network: str = NETWORK) -> ClusterPlan:
    """Return what a cluster of the network runs; its own number of walks, or of recipients, for None."""
    changes: dict[str, Any] = {} if walks is None else {"walks": walks}
    if recipients is not None:
        changes |= {"recipients": recipients, "law": "far:2"}
    spec = CLUSTER.defaults.change(graph=network, updates=100_000, dwell_s=DWELL_S, **changes)
    return set_up_cluster(spec).plan()


def drag(node: Node) -> None:
    """Answer late, and within all limits."""
    scheduler = node.scheduler
    hold, take = scheduler.hold, scheduler.take

    async def hold_late(*values: Any) -> Any:
        await asyncio.sleep(_OFFER_S)
        return await hold(*values)

    async def take_late(*values: Any) -> Any:
        await asyncio.sleep(_GO_S)
        return await take(*values)

    scheduler.hold, scheduler.take = hold_late, take_late  # type: ignore[method-assign, assignment]


def swallow(node: Node, *, leaves_garbage: bool = False) -> None:
    """Drop every message that is taken, and hand on garbage in its place where it is asked for."""
    custody = node.scheduler.custody
    take = custody.take

    def take_and_drop(peer: str, key: bytes) -> Taken:
        taken = take(peer, key)
        if taken.row is None:
            return taken
        size = len(custody.spool.read(taken.row))
        custody.drop(taken.row.id, "swallowed")
        row = custody.create(_garbage(custody, size), "garbage") if leaves_garbage else None
        return Taken(taken.verdict, row)

    custody.take = take_and_drop  # type: ignore[method-assign]


def mislead(node: Node) -> None:
    """Drop every message, and hand on garbage in its place."""
    swallow(node, leaves_garbage=True)


def mute(node: Node) -> None:
    """Never answer GO."""

    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    node.scheduler.take = never  # type: ignore[method-assign, assignment]


async def flood(node: Node) -> None:
    """Hand every neighbour garbage as fast as it takes it."""
    scheduler = node.scheduler
    while not (size := await scheduler.store(_size_of_any, scheduler.custody)):
        await asyncio.sleep(0.02)
    while True:
        node.wake(await scheduler.store(_make_garbage, scheduler.custody, size))
        await asyncio.sleep(0.003)


#: What a bad member does when it starts; a flooder works besides.
KINDS: dict[str, Callable[[Node], Any] | None] = {
    "clean": None,
    "tarpit": drag,
    "black hole": swallow,
    "decoy": mislead,
    "mute": mute,
    "flooder": flood,
}


class BadWorld(World):
    """Ten nodes of which one may be bad."""

    def __init__(self, kind: str, seed: int, plan: ClusterPlan) -> None:
        self.dice = random.Random(seed)  # noqa: S311  a simulation
        self.loop = VirtualLoop(self.dice)
        rules, recipients = RunRules.from_spec(plan.spec, plan.figures), plan.spec.scheme.recipients or 1
        self._walks = rules.walks
        self._parts = rule_parts(self.dice, plan.graph, rules, law=plan.law, recipients=recipients, limits=plan.limits)
        self.places = {name: _Place(name, SimulatedDisk(self.dice)) for name in self._parts}
        self.crashes = 0
        self.failed: list[str] = []
        self._dead: list[Any] = []
        self._corrupt = KINDS[kind]
        self._bad = node_ids(plan.graph.n_nodes)[_BAD]

    def start(self, name: str) -> None:
        """Start a node; the bad one is made bad."""
        super().start(name)
        place = self.places[name]
        if name == self._bad and self._corrupt is not None:
            assert place.node is not None
            assert place.life is not None
            work = self._corrupt(place.node)
            if work is not None:
                self._flooding = self.loop.create_task(work, context=place.life.context())

    async def measure(self, seconds: float) -> tuple[int, int, int]:
        """Return the updates in the newest models after half the time and after all of it, and the walks made."""
        for name in self.places:
            self.start(name)
        halves = []
        for _ in range(2):
            await asyncio.sleep(seconds / 2)
            halves.append(sum(int(self._newest(lane).sum()) for lane in range(self._walks)))
        created = sum(
            place.disk.database.execute("SELECT coalesce(sum(value), 0) FROM tally WHERE name = 'created'").fetchone()[
                0
            ]
            for place in self.places.values()
        )
        return halves[0], halves[1], created


def measure(kind: str, seed: int, plan: ClusterPlan, *, seconds: float) -> tuple[int, int, int]:
    """Return what :meth:`BadWorld.measure` does, in a world that is closed to chance."""
    # Made before chance is shut out.
    members_of(plan.graph)
    with closed_world(seed):
        world = BadWorld(kind, seed, plan)
        with world_open(world):
            made = world.loop.run_until_complete(world.measure(seconds))
        del world
        gc.collect()
        return made


def main() -> None:
    """Print the rates with one bad member beside the clean ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="virtual seconds of each world")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--walks", type=int, nargs="*", default=[None], help="walks at once; as shipped unless given")
    parser.add_argument("--recipients", type=int, help="for how many a model is sealed; as shipped unless given")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is chance too.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    for walks in options.walks:
        plan = shipped_plan(walks, options.recipients)
        rules = RunRules.from_spec(plan.spec, plan.figures)
        print(
            f"{NETWORK}, dwell {DWELL_S} s, {rules.walks} walks, late {rules.late_s:g} s, starve {rules.starve_s:g} s"
        )
        clean = 0.0
        for kind in options.kinds:
            counts = [measure(kind, seed, plan, seconds=options.seconds) for seed in range(options.seeds)]
            first, last, made = (sum(column) / len(counts) for column in zip(*counts, strict=True))
            clean = clean or last
            print(
                f"{kind:>10}: {last / options.seconds:6.2f} updates/s, {last / clean:4.0%} of the first row; in the "
                f"second half {2 * (last - first) / options.seconds:6.2f}; walks made {made:g}",
                flush=True,
            )


if __name__ == "__main__":
    main()
