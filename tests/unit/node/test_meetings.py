"""Walks that meet: what a walk does between two meetings is a lane, which begins with the mean of all ends before."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from tests.campaigns import power_loss, schedules
from tests.campaigns.forgetful_disk import ForgetfulDisk, PowerCutError
from tests.helpers.manifests import make_test_manifest, settled_spec
from tests.helpers.members import greet, hand_in, message_for, offer
from tests.unit.node.conftest import FolderReader
from tests.unit.node.test_lanes import final_of, model

from veilwalk.core.errors import InvalidParameterError, ProtocolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.cluster._manifest import count_signatures
from veilwalk.node.peer import NextHop
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._destination import Destination
from veilwalk.node.peer._status import node_status, unfinish_node
from veilwalk.node.sealing import Header
from veilwalk.node.spool import SignedEnd, Spool, UpdateOutcome

Make = Callable[..., Any]
#: Two walks of 12 updates, which meet twice.
RULES = RunRules(walk=SIMPLE, updates=24, late_hops=1e9, walks=2, meet=4, hop_s=0.005)
LATE = replace(RULES, late_hops=300, starve_hops=600)
FIRST, SECOND, THIRD = (bytes([lane]) + b"walk-a1" for lane in (0, 2, 4))
CHORDS = ((0, 2), (1, 3), (2, 4))


def ended(net: Any, *names: str) -> bool:
    states = [net.folder / f"state-{name}" for name in names or net.names]
    return all(node_status(state).finished and not node_status(state).in_custody for state in states)


def round_of(net: Any, name: str) -> int:
    with FolderReader(net.folder / f"state-{name}") as register:
        return register.round


def end_at(net: Any, lane: int, counts: list[float], iteration: int, by: str = "n0") -> bytes:
    """The end of a lane with so many updates, sealed for n1."""
    return final_of(net, lane, by, counts, iteration=iteration)


# ---- rules ----------------------------------------------------------------------------------------------------------


def test_a_lane_is_a_walk_between_two_meetings() -> None:
    rules = replace(RULES, updates=21)
    assert (list(rules.lanes), rules.rounds) == ([0, 1, 2, 3, 4, 5], 3)
    assert [(rules.walk_of(lane), rules.begin(lane), rules.share(lane)) for lane in rules.lanes] == [
        *((0, 0, 4), (1, 0, 4)),
        *((0, 4, 8), (1, 4, 8)),
        *((0, 8, 11), (1, 8, 10)),
    ]
    dwells = replace(rules, dwell_s=0.1, hops_per_update=10)
    assert dwells.seconds == replace(dwells, meet=0).seconds == pytest.approx(11)


@pytest.mark.parametrize(
    ("case", "allowed"),
    [
        ({"walk_tag": SECOND, "iteration": 4}, True),
        ({"walk_tag": SECOND, "iteration": 7}, True),
        ({"walk_tag": SECOND, "iteration": 3}, False),
        ({"walk_tag": SECOND, "iteration": 8}, False),
        ({"walk_tag": FIRST, "iteration": 4}, False),
        ({"walk_tag": b"\6walk-a1", "iteration": 12}, False),
        ({"walk_tag": b"\2" + bytes(7), "iteration": 8, "final": True}, True),
        ({"walk_tag": b"\2" + bytes(7), "iteration": 12, "final": True}, False),
    ],
)
def test_a_header_says_what_its_lane_allows(case: dict[str, Any], allowed: bool) -> None:
    assert RULES.allow(Header(update_id=bytes(16), body_length=8, **case), body_bytes=8) is allowed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"target": 0.9}, "^meet = 4: "),
        ({"updates": 10_000}, "^meet = 4: must be at least 40"),
        ({"updates": 17}, "^updates = 17: must be a multiple of walks"),
    ],
)
def test_what_no_walk_can_do_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidParameterError, match=says):
        replace(RULES, **change)
    assert len(replace(RULES, updates=10_000, meet=40).lanes) <= 256


@pytest.mark.parametrize(("members", "least", "needed"), [(20, 20, 3), (300, 48, 31)])
def test_walks_meet_when_enough_have_trained_to_sign(members: int, least: int, needed: int) -> None:
    """And no more often than every 20 updates: the line says how often they may."""
    spec = settled_spec(updates=2000, walks=4)
    with pytest.raises(InvalidParameterError, match=f"^meet = {least - 1}: must be at least {least} among {members}"):
        count_signatures(members, spec.change(meet=least - 1))
    assert count_signatures(members, spec.change(meet=least)) == needed
    # Walks that end before they would meet.
    assert count_signatures(members, spec.change(updates=40, meet=19)) == count_signatures(
        members, spec.change(updates=40)
    )


def test_a_manifest_keeps_its_meetings() -> None:
    """Walks on their way are numbered by them."""
    manifest = make_test_manifest(spec={"walks": 2, "updates": 800, "meet": 20})
    assert manifest.rules.meet == 20
    with pytest.raises(ProtocolError, match="meet"):
        manifest.change(spec=manifest.spec.change(meet=40))


def total(net: Any, name: str) -> list[float]:
    """What a node counts in the ends of both walks together: the updates of every node."""
    return np.add(model(net, name, "final", 4)[1], model(net, name, "final", 5)[1]).tolist()  # type: ignore[no-any-return]


# ---- runs -----------------------------------------------------------------------------------------------------------


def test_walks_meet_and_no_update_is_lost_or_doubled(network: Make) -> None:
    """Of two walks the sum of all ends is that of all updates, for a mean takes nothing away from it."""

    async def main() -> Any:
        net = network(4, rules=RULES)
        await net.start()
        await net.until(lambda: ended(net))
        await net.stop()
        return net

    net = asyncio.run(main())
    made = [net.tally("updates", name) for name in net.names]
    for name in net.names:
        assert (model(net, name, "final", 4)[0], model(net, name, "final", 5)[0], sum(made)) == (12, 12, 24)
        assert total(net, name) == made
        status = node_status(net.folder / f"state-{name}")
        assert (status.walks, len(status.ends)) == ((12, 12), 2)
        # What is over long ago is gone.
        with FolderReader(net.folder / f"state-{name}") as register:
            assert register.lanes("final") == [2, 3, 4, 5]
            assert set(register.lanes("checkpoint", "end")) <= {2, 3, 4, 5}
    assert (net.tally("started"), net.tally("created"), net.tally("merged"), net.tally("forks")) == (6, 0, 0, 0)


def test_who_made_the_last_update_starts_the_walk_once_however_often_it_stops(
    network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it has started it, and after."""
    starting = asyncio.Event()
    start = Destination.new_walk

    def held_back(self: Any, spool: Any, roster: Any, lane: int, *, first: bool) -> Any:
        return start(self, spool, roster, lane, first=first) if first or starting.is_set() else None

    monkeypatch.setattr(Destination, "new_walk", held_back)

    async def main() -> Any:
        net = network(4, rules=RULES)
        await net.start()
        await net.until(lambda: all(round_of(net, name) == 1 for name in net.names))
        await asyncio.sleep(0.6)
        assert net.tally("started") == 2
        await net.stop()
        starting.set()
        await net.start()
        await net.until(lambda: net.tally("started") == 4)
        await net.stop()
        await net.start()
        await net.until(lambda: ended(net))
        await net.stop()
        return net

    net = asyncio.run(main())
    made = [net.tally("updates", name) for name in net.names]
    assert total(net, "n1") == made
    assert sum(made) == 24
    assert (net.tally("started"), net.tally("created"), net.tally("merged"), net.tally("retired")) == (6, 0, 0, 0)


@pytest.mark.parametrize("case", ["its own", "another end", "begun"])
def test_a_walk_is_started_by_whose_end_was_taken_unless_it_walks_already(network: Make, case: str) -> None:
    """And at a random moment: the first message after a meeting must not name its maker."""

    async def main() -> Any:
        net = network(4, starts=False, rules=RULES)
        await net.start("n1")
        desk = net.nodes["n1"].scheduler
        desk._announcing_s = desk._signing_s = 1e6
        await hand_in(net, "n1", message_for(net, "n1", counts=[3.0, 0, 0, 0], iteration=3, walk_tag=FIRST))
        await net.until(lambda: net.tally("updates") == 1)
        taken = [3.0, 1, 0, 0] if case != "another end" else [2.0, 1, 1, 0]
        await hand_in(net, "n1", end_at(net, 0, taken, 4))
        await hand_in(net, "n1", end_at(net, 1, [4.0, 0, 0, 0], 4))
        await net.until(lambda: round_of(net, "n1") == 1)
        if case == "begun":
            await hand_in(net, "n1", message_for(net, "n1", counts=[3.0] * 4, iteration=5, walk_tag=SECOND))
            await net.until(lambda: net.tally("updates") == 2)
        await asyncio.sleep(0.6)
        assert net.tally("started") == 0
        desk._starts_at.clear()
        desk._signing_s = 0.0
        await asyncio.sleep(0.6)
        await net.stop()
        return net.tally("started")

    assert asyncio.run(main()) == (case == "its own")


def test_a_start_that_was_lost_is_made_again_from_the_mean(network: Make) -> None:
    """Whoever made the last update is gone with its disk: the others go on without it."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, rules=LATE, recipients=3)
        lost: list[int] = []
        await net.start()
        for name in net.names:
            swallow_starts(net.nodes[name], lost)
        await net.until(lambda: ended(net), timeout_s=100)
        await net.stop()
        return net, lost

    def swallow_starts(node: Any, lost: list[int]) -> None:
        async def lose() -> None:
            lost.extend(await node.scheduler.store(node.scheduler.custody.spool.tables.lanes_to_start))

        node.scheduler.start_after_meeting = lose

    net, lost = asyncio.run(main())
    assert lost
    assert net.tally("started") == 2
    assert net.tally("created") >= 4
    for lane in (4, 5):
        assert len({str(model(net, name, "final", lane)) for name in net.names}) == 1


@pytest.mark.parametrize("with_disk", [True, False])
def test_who_was_away_while_walks_met_goes_on(network: Make, with_disk: bool) -> None:
    """Its neighbours keep the ends of two rounds for it, and no more; to a new disk they say the newest."""

    async def main() -> Any:
        # With it a walk may be away, or a start; the others make it again.
        net = network(5, chords=CHORDS, rules=replace(LATE, updates=64), recipients=3)
        await net.start()
        await net.until(lambda: net.tally("updates") > 4)
        await net.stop("n3")
        others = [name for name in net.names if name != "n3"]
        await net.until(lambda: all(round_of(net, name) >= 5 for name in others))
        waiting = [row.end_lane for row in net.look("n2")["messages"] if row.peer == "n3" and row.end_lane is not None]
        assert waiting
        assert len({lane // 2 for lane in waiting}) <= 3
        if not with_disk:
            shutil.rmtree(net.folder / "state-n3")
        await net.start("n3")
        await net.until(lambda: ended(net))
        await net.stop()
        return net

    net = asyncio.run(main())
    for lane in (14, 15):
        assert len({str(model(net, name, "final", lane)) for name in net.names}) == 1


# ---- crashes --------------------------------------------------------------------------------------------------------


def custody_on(disk: Any, inline_bytes: int) -> Any:
    """A node's custody of two walks that meet twice."""
    custody = Custody(
        Spool(disk, inline_bytes=inline_bytes),
        opener=cast("Any", power_loss._Opener("n0")),
        next_hop=NextHop(walk=SIMPLE, neighbours=("n1", "n2")),
        draws=power_loss.SeededDraws(random.Random(1)),  # noqa: S311
        quota=4,
    )
    custody.recover()
    custody.spool.note_walks(2, 3)
    return custody


def cut_everywhere(prepare: Callable[[Any], Any], act: Callable[[Any, Any], None], judge: Callable[[Any], None]) -> int:
    """Cut the power at every step of an act, and judge what is on disk then; return how many steps there are."""
    steps = 0
    for seed in range(16):
        for steps in itertools.count():
            disk = ForgetfulDisk(random.Random(seed))  # noqa: S311
            custody = custody_on(disk, seed % 2 * 1000)
            prepared = prepare(custody)
            disk.steps_left = steps
            try:
                act(custody, prepared)
                is_cut = False
            except PowerCutError:
                is_cut = True
            judge(custody_on(disk.after_cut(), seed % 2 * 1000))
            if not is_cut:
                break
    return steps


def test_no_crash_starts_a_walk_twice_or_never() -> None:
    """The message is on disk, or the note that it is to be made."""

    def meet(custody: Any) -> None:
        with custody.spool.transaction() as register:
            for lane in (0, 1):
                stored = custody.spool.store(b"model %d" % lane, plain=True)
                register.set_model("final", stored, lane=lane, tag=b"", iteration=4)
                register.set_start(lane, (stored.digest if lane == 0 else bytes(32)) + b"n1")

    def start(custody: Any, _: Any) -> None:
        custody.create(b"n1 update 0 0", "started", lane=2, came_from="n1")

    def judge(custody: Any) -> None:
        found = [row.came_from for row in custody.spool.tables.messages()]
        assert (found, custody.spool.tables.lanes_to_start()) in (([], {2: "n1"}), (["n1"], {}))

    assert cut_everywhere(meet, start, judge) >= 2


def test_no_crash_parts_an_end_from_the_note_of_who_starts() -> None:
    digest = hashlib.sha256(b"model").digest()

    def arrive(custody: Any) -> Any:
        with custody.spool.transaction() as register:
            return register.add_message(custody.spool.store(b"n0 update 3 0"), came_from="n1")

    def finish(custody: Any, row: Any) -> None:
        header = cast("Any", power_loss._Header(b"update", b"walk", 3, ()))
        end = SignedEnd(lane=0, model=b"model", digest=digest, iteration=4)
        custody.replace(row, UpdateOutcome(header=header, model=b"model", iteration=4, counts=("updates",), end=end))

    def judge(custody: Any) -> None:
        tables = custody.spool.tables
        here = (len(tables.messages()), tables.tally("updates"), tables.lanes("end"), tables.mark("starts"))
        assert here in ((1, 0, [], None), (0, 1, [0], digest + b"n1"))

    assert cut_everywhere(arrive, finish, judge) >= 2


# ---- what comes -----------------------------------------------------------------------------------------------------


async def with_ends(net: Any, counts: list[list[float]], *, first: int = 0, count: int = 4) -> None:
    """Start n1 and give it the ends of a round."""
    await net.start("n1")
    for walk, one in enumerate(counts):
        await hand_in(net, "n1", end_at(net, first + walk, one, count))
    await net.until(lambda: net.tally("ends") == len(counts))


def test_nobody_makes_an_average_of_its_own(network: Make) -> None:
    """A made-up one that is sealed for a member changes nothing: it trains the mean of the ends that it holds."""

    async def main() -> Any:
        net = network(4, starts=False, rules=RULES)
        await with_ends(net, [[4.0, 0, 0, 0], [0.0, 0, 2, 2]])
        forged = message_for(net, "n1", counts=[1e3] * 4, iteration=4, walk_tag=SECOND)
        await hand_in(net, "n1", forged)
        await net.until(lambda: net.tally("updates") == 1)
        first = model(net, "n1", "checkpoint", 2)
        # Where the end of one walk is not here yet, what came goes by the usual tests.
        await hand_in(net, "n1", end_at(net, 2, [5.0, 1, 1, 1], 8))
        await net.until(lambda: net.tally("ends") == 3)
        await hand_in(net, "n1", message_for(net, "n1", counts=[3.0] * 4, iteration=8, walk_tag=THIRD))
        await net.until(lambda: net.tally("updates") == 2)
        await net.stop()
        return first, model(net, "n1", "checkpoint", 4)

    first, later = asyncio.run(main())
    assert first == (5, [2, 1, 1, 1])
    assert later == (9, [3, 4, 3, 3])


def test_before_it_has_all_ends_a_member_trains_what_came(network: Make) -> None:
    """What nobody can decode does not bring back the run's first model."""

    async def main() -> Any:
        net = network(4, starts=False, rules=RULES)
        await net.start("n1")
        await hand_in(net, "n1", message_for(net, "n1", counts=[np.nan] * 4, iteration=4, walk_tag=SECOND))
        await net.until(lambda: net.tally("refused") == 1)
        assert model(net, "n1", "checkpoint", 2) is None
        await hand_in(net, "n1", message_for(net, "n1", counts=[3.0] * 4, iteration=4, walk_tag=SECOND))
        await net.until(lambda: net.tally("updates") == 1)
        await net.stop()
        return model(net, "n1", "checkpoint", 2)

    assert asyncio.run(main()) == (5, [3, 4, 3, 3])


def test_whoever_brings_what_is_over_hears_of_the_newest_end(network: Make) -> None:
    """A walk of a round before, and an end of it."""

    async def main() -> Any:
        net = network(4, starts=False, rules=RULES)
        await with_ends(net, [[4.0, 2, 1, 1], [1.0, 2, 3, 2]], first=2, count=8)
        assert round_of(net, "n1") == 2
        desk = net.nodes["n1"].scheduler
        connection = await greet(net, "n0", "n1")
        told = []
        for number, message in enumerate(
            (
                message_for(net, "n1", counts=[1.0] * 4, iteration=1, walk_tag=FIRST),
                final_of(net, 1, "n0", [1.0] * 4, iteration=4),
            ),
            start=1,
        ):
            await desk.store(desk.custody.part_from, "n0")
            await offer(connection, number, message)
            await net.until(lambda: any(row.peer == "n0" for row in net.look("n1")["messages"]))
            told += [row.end_lane for row in net.look("n1")["messages"] if row.peer == "n0"]
        connection.close()
        await net.stop()
        return net, told

    net, told = asyncio.run(main())
    assert told == [2, 3]
    assert (net.tally("retired"), net.tally("duplicates"), net.tally("updates")) == (1, 1, 0)


def test_who_made_no_step_of_a_walk_says_nothing_about_how_far_it_went(network: Make) -> None:
    """It hands such an end on; one of a round that nobody can have come to, it does not."""

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(RULES, updates=32, signatures=2))
        await net.start("n1")
        for lane in (0, 1):
            await hand_in(net, "n1", final_of(net, lane, "n0 n2", [1.0] * 4, iteration=4))
        await net.until(lambda: net.tally("ends") == 2)
        await hand_in(net, "n1", end_at(net, 2, [9.0] * 4, 8))
        await net.until(lambda: model(net, "n1", "end", 2) is not None)
        assert net.tally("unbelieved") == 0
        await hand_in(net, "n1", end_at(net, 6, [9.0] * 4, 16))
        await net.until(lambda: model(net, "n1", "end", 6) is not None or net.tally("unbelieved") == 1)
        # Of a walk that it has trained it knows how far one goes.
        await hand_in(net, "n1", message_for(net, "n1", counts=[1.0] * 4, iteration=4, walk_tag=b"\3walk-a1"))
        await net.until(lambda: net.tally("updates") == 1)
        await hand_in(net, "n1", end_at(net, 3, [90.0] * 4, 8))
        await net.until(lambda: net.tally("unbelieved") == 2)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert model(net, "n1", "end", 6) is None
    assert model(net, "n1", "end", 3) is None


def test_undone_ends_leave_those_of_the_meeting_before(network: Make) -> None:
    """The walks go on from their mean."""
    made: list[tuple[int, list[float]]] = []

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(RULES, updates=16))
        await with_ends(net, [[4.0, 0, 0, 0], [0.0, 0, 2, 2]])
        for lane in (2, 3):
            await hand_in(net, "n1", end_at(net, lane, [8.0] * 4, 8))
        await net.until(lambda: ended(net, "n1") or net.tally("ends") == 4)
        await net.stop()
        state = net.folder / "state-n1"
        assert node_status(state).finished
        assert unfinish_node(state)
        assert (node_status(state).finished, node_status(state).walks, node_status(state).ends) == (False, (4, 4), ())
        assert round_of(net, "n1") == 1
        await net.start("n1")
        destination = net.nodes["n1"]._destination
        seal = destination._seal

        def sealing(roster: Any, about: Any, body: bytes) -> Any:
            made.append((about.iteration, np.frombuffer(body).tolist()))
            return seal(roster, about, body)

        destination._seal = sealing
        await net.nodes["n1"].scheduler.create(first=False)
        await net.stop()

    asyncio.run(main())
    assert made == [(4, [2, 0, 1, 1])] * 2


def test_no_schedule_loses_or_doubles_an_update_of_walks_that_meet() -> None:
    """Crashes, power cuts, pauses and silence, in virtual time."""
    outcomes = [schedules.play(seed, walks=2, meet=3) for seed in range(32)]
    assert [outcome for outcome in outcomes if outcome.faults] == []
    assert sum(outcome.meetings for outcome in outcomes) >= 10
