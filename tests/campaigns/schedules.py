"""The protocol in a world of its own: real nodes with virtual clock, network and disks, thousands of schedules by seed.

Everything of a node runs here but TLS and threads: node, desk, links, custody, sealing, training. A seed decides what
the network delays, who is killed at which step of the disk or at which moment, whose power fails and what the disk then
forgets, who pauses, which links are cut or fall silent. Then all is healed, and it must hold: every committed update is
in the newest model once, as many messages are under way as there are walks, no node has ended, and the walk goes on.
The same seed gives the same trace.

    python -m tests.campaigns.schedules --seeds 100000          (goes on where it was interrupted)
    python -m tests.campaigns.schedules --seeds 200 --mutants   (in how many seeds each mutant is caught)
    python -m tests.campaigns.schedules --replay 4711
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import gc
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from tests.campaigns import chaos_mutants
from tests.campaigns.forgetful_disk import ForgetfulDisk
from tests.campaigns.virtual_network import members
from tests.campaigns.virtual_time import VirtualLoop
from tests.campaigns.virtual_world import SimulatedDisk, World
from veilwalk.node.peer._custody import Custody, Event
from veilwalk.node.spool import Register, Spool

#: Nodes that are wrong about what may be lost or doubled: the campaign's own, and four more.
MUTANTS = (
    "ack-before-commit",
    "unpinned-hop",
    "use-before-given",
    "no-dedup+use-before-given",
    "reroutes-given",
    "forgets-keys",
    "forgets-power-cuts",
    "unsynced-commits",
)


@dataclass
class Outcome:
    """What a seed came to."""

    seed: int
    faults: list[str] = field(default_factory=list)
    trace: str = ""
    crashes: int = 0
    updates: int = 0
    meetings: int = 0


def play(seed: int, *, walks: int = 1, meet: int = 0) -> Outcome:
    """Play one seed to its end and judge it."""
    with closed_world(seed):
        return _play(seed, walks, meet)


def _play(seed: int, walks: int, meet: int) -> Outcome:
    world = World(seed, walks=walks, meet=meet)
    with world_open(world):
        try:
            world.loop.run_until_complete(world.live())
            return Outcome(
                seed, world.faults(), world.loop.trace, world.crashes, sum(world.committed()), world.meetings
            )
        except Exception as error:  # noqa: BLE001  whatever it is, it has a seed
            return Outcome(seed, [*world.failed, f"{type(error).__name__}: {error}"], world.loop.trace)


@contextmanager
def world_open(world: World) -> Iterator[None]:
    """Make a world's loop the current one meanwhile, and close the world."""
    asyncio.events.set_event_loop(world.loop)
    try:
        yield
    finally:
        asyncio.events.set_event_loop(None)
        world.close()


class _AtOnce:
    """A thread that has always just finished."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, work: Any, *values: Any) -> Any:
        """Do it."""
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        done.set_result(work(*values))
        return done

    def shutdown(self) -> None:
        """Nothing is left to do."""


@contextmanager
def closed_world(seed: int) -> Iterator[None]:
    """Let no clock and no chance of this machine in."""
    # Made once, with the chance of this machine, before that is shut out.
    members()
    dice = random.Random(-seed - 1)  # noqa: S311

    def now() -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    def listen(address: tuple[str, int], **_: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.listen(address)

    gc.freeze()
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    # Files as often as rows.
    defaults = {"inline_bytes": (0, 1 << 20)[seed % 2]}
    try:
        with (
            mock.patch("socket.create_server", listen),
            mock.patch("time.monotonic", now),
            mock.patch("time.sleep", mock.Mock()),
            mock.patch("os.urandom", dice.randbytes),
            mock.patch("random._urandom", dice.randbytes),
            mock.patch("veilwalk.node.spool._spool.ThreadPoolExecutor", _AtOnce),
            mock.patch.object(Spool.__init__, "__kwdefaults__", defaults),
            mock.patch("veilwalk.node.peer._node.listening_context", mock.MagicMock()),
            mock.patch("veilwalk.node.peer._node.dialing_context", mock.MagicMock()),
        ):
            yield
    finally:
        # What the dead never came to must not be heard of.
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
        sys.unraisablehook = hook


def _apply(mutant: str) -> None:
    """Make every node of this process wrong."""
    if mutant == "reroutes-given":
        Custody.reroute = lambda self, peer, *, avoid: {  # type: ignore[method-assign]
            str(row.peer) for row in self._pin_anew(peer, Event.LEAVE, avoid=avoid | {peer})
        }
    elif mutant == "forgets-keys":
        Register.has_taken = lambda *_: False  # type: ignore[method-assign]
    elif mutant == "forgets-power-cuts":
        # As if what was given were certain after a power cut, which may have undone the note of it.
        Register.note_boot = lambda *_: None  # type: ignore[method-assign]
    elif mutant == "unsynced-commits":
        SimulatedDisk.transaction = (  # type: ignore[method-assign]
            lambda self, **_: ForgetfulDisk.transaction(self, durable=False)
        )
    else:
        chaos_mutants.apply(mutant)


def caught(mutant: str, seeds: range, *, until: int | None = None) -> list[int]:
    """Return the seeds in which a mutant is caught, or the first ``until`` of them; in a process of its own."""
    with multiprocessing.get_context("fork").Pool(1, _apply, (mutant,)) as pool:
        found = (outcome.seed for outcome in pool.imap(play, seeds) if outcome.faults)
        return list(itertools.islice(found, until))


def campaign(seeds: int, record: Path, *, processes: int, walks: int = 1, meet: int = 0) -> None:
    """Play all seeds that are not in the record yet, and print what was found."""
    done: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"next": 0, "faults": {}}
    done = {"crashes": 0, "updates": 0, "meetings": 0, "seconds": 0.0, **done}
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=40) as pool:
        while done["next"] < seeds:
            begun, batch = time.perf_counter(), range(done["next"], min(seeds, done["next"] + 100))
            for outcome in pool.imap(partial(play, walks=walks, meet=meet), batch, chunksize=5):
                done["crashes"] += outcome.crashes
                done["updates"] += outcome.updates
                done["meetings"] += outcome.meetings
                if outcome.faults:
                    done["faults"][str(outcome.seed)] = outcome.faults
                    print(f"seed {outcome.seed}: {'; '.join(outcome.faults)}", flush=True)
            done["next"], done["seconds"] = batch.stop, done["seconds"] + time.perf_counter() - begun
            draft = record.with_suffix(".draft")
            draft.write_text(json.dumps(done))
            draft.replace(record)
    print(
        f"{done['next']} seeds in {done['seconds']:.0f} s: {done['crashes']} crashes, {done['updates']} updates, "
        f"{done['meetings']} meetings, {len(done['faults'])} seeds with faults"
    )


def main() -> None:
    """Run the campaign, one seed, or the mutants."""
    parser = argparse.ArgumentParser(description="Schedules of the protocol by seed, in virtual time.")
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--record", type=Path, default=Path("schedules.json"), help="what was played already")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--walks", type=int, default=1, help="so many at once; a record is of one number of them")
    parser.add_argument("--meet", type=int, default=0, help="they meet after so many updates of each; 0: never")
    parser.add_argument("--mutants", action="store_true", help="in how many seeds each mutant is caught")
    parser.add_argument("--replay", type=int, help="play this seed twice and compare")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is chance too.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606
    if options.replay is not None:
        for _ in range(2):
            print(play(options.replay, walks=options.walks, meet=options.meet))
    elif options.mutants:
        for mutant in MUTANTS:
            found = caught(mutant, range(options.seeds))
            print(f"{mutant}: caught in {len(found)} of {options.seeds} seeds, first {found[:3]}", flush=True)
    else:
        campaign(options.seeds, options.record, processes=options.processes, walks=options.walks, meet=options.meet)


if __name__ == "__main__":
    main()
