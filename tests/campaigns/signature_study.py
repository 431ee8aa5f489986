"""Measures what signatures under an end tell a member about who made the last update: real nodes in virtual time.

Short runs of ten members end, and every member is an observer. It guesses the maker of the last update by the neighbour
that brought the end first, by a member drawn from the signers of the first signed end that it saw, or by one drawn from
the signers of the end that it took. Beside them stands the guess at random among all others.

    python -m tests.campaigns.signature_study --seeds 60
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import os
import sys
from collections import defaultdict
from dataclasses import replace
from typing import Any

from tests.campaigns.bad_neighbours import BadWorld, shipped_plan
from tests.campaigns.schedules import closed_world, world_open
from tests.campaigns.virtual_network import members_of
from veilwalk.node.members import SIGNATURE_BYTES
from veilwalk.node.spool import Row, UpdateOutcome

UPDATES, RECIPIENTS = 20, 4
_LONGEST_S = 120.0
_SPKI_BYTES = 32


class EndWorld(BadWorld):
    """A short run whose members note each end that comes."""

    def __init__(self, seed: int) -> None:
        plan = shipped_plan(None, RECIPIENTS)
        plan = replace(plan, spec=plan.spec.change(updates=UPDATES))
        super().__init__("clean", seed, plan)
        self.roster = members_of(plan.graph)[1]
        self.maker = ""
        #: By observer: who brought each end, and who had signed it then.
        self.ends: defaultdict[str, list[tuple[str, frozenset[str]]]] = defaultdict(list)

    def start(self, name: str) -> None:
        """Start a node that notes its ends."""
        super().start(name)
        node = self.places[name].node
        assert node is not None
        custody = node.scheduler.custody
        commit = custody.replace

        def note(row: Row, outcome: UpdateOutcome) -> Any:
            if outcome.end is not None and outcome.model is not None:
                self.maker = self.maker or name
            elif outcome.end is not None:
                self.ends[name].append((row.came_from or "", self._signers(outcome.end.signatures)))
            return commit(row, outcome)

        custody.replace = note  # type: ignore[method-assign]

    def _signers(self, signatures: bytes) -> frozenset[str]:
        starts = range(0, len(signatures), SIGNATURE_BYTES)
        keys = (signatures[start : start + _SPKI_BYTES] for start in starts)
        return frozenset(self.roster.peer_of_certificate(key) or "" for key in keys)

    async def play(self) -> None:
        """Run until every member but the maker has an end that is taken, or time is up."""
        for name in self.places:
            self.start(name)
        needed, ends = min(place.node.manifest.rules.signatures for place in self.places.values() if place.node), 0
        while self.loop.now < _LONGEST_S and ends < len(self.places) - 1:
            await asyncio.sleep(0.5)
            ends = sum(any(len(signers) >= needed for _, signers in seen) for seen in self.ends.values())


def observe(seed: int) -> list[tuple[float, ...]]:
    """Return, for every observer of a run, how likely each of its three guesses is right."""
    members_of(shipped_plan(None, RECIPIENTS).graph)
    with closed_world(seed):
        world = EndWorld(seed)
        with world_open(world):
            world.loop.run_until_complete(world.play())
        chances: list[tuple[float, ...]] = []
        for name, ends in world.ends.items():
            signed = [signers - {name} for _, signers in ends if signers - {name}]
            if name != world.maker and signed:
                first, last = signed[0], signed[-1]
                by_first, by_last = ((world.maker in signers) / len(signers) for signers in (first, last))
                chances.append((float(ends[0][0] == world.maker), by_first, by_last))
        del world
        gc.collect()
        return chances


def main() -> None:
    """Print the three chances beside the one by guessing, with 95 % intervals over runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is chance too.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    runs = [chances for seed in range(options.seeds) if (chances := observe(seed))]
    names = (
        "the neighbour that brought it first",
        "the signers of the first signed end",
        "the signers of the last end",
    )
    for place, name in enumerate(names):
        means = [sum(chances[place] for chances in run) / len(run) for run in runs]
        mean = sum(means) / len(means)
        spread = math.sqrt(sum((value - mean) ** 2 for value in means) / max(1, len(means) - 1) / len(means))
        print(f"{name}: {mean:.1%} +- {1.96 * spread:.1%}, {len(runs)} runs; at random {1 / 9:.1%}", flush=True)


if __name__ == "__main__":
    main()
