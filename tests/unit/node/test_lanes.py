"""Several walks in one run: each has a model and an end of its own; the run's model is their mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.campaigns import schedules
from tests.helpers.manifests import make_test_manifest
from tests.helpers.members import end_of, greet, hand_in, message_for, offer
from tests.unit.node.conftest import FolderReader, Tally

from veilwalk.core.errors import InvalidParameterError, ProtocolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.cluster import prepare_or_resume, set_up_cluster
from veilwalk.node.link import Limits
from veilwalk.node.members import Manifest, encode_params
from veilwalk.node.peer import MembershipFiles
from veilwalk.node.peer._config import load_config
from veilwalk.node.peer._ends import sign_end
from veilwalk.node.peer._routing import OsDraws
from veilwalk.node.peer._status import node_model, node_status, unfinish_node
from veilwalk.node.peer._watches import Watches
from veilwalk.node.sealing import Header
from veilwalk.node.spool import FolderDisk, Spool, UpdateOutcome, of_lane
from veilwalk.training import CLUSTER

Make = Callable[..., Any]
TWO = RunRules(walk=SIMPLE, updates=800, late_hops=1e9, walks=2)
FIRST, SECOND = b"\0walk-a1", b"\1walk-b1"


def model(net: Any, name: str, kind: str, lane: int) -> Any:
    """What a node has on disk of a lane: updates and counts; None where there is nothing."""
    with FolderReader(net.folder / f"state-{name}") as register:
        found = register.model(kind, lane)
        return None if found is None else (found.iteration, np.frombuffer(register.inline(found)).tolist())


def final_of(
    net: Any, lane: int, by: str, counts: list[float], *, signed_for: int | None = None, iteration: int = 400
) -> bytes:
    """The end of a lane that members sign, perhaps as one of another lane, sealed for n1."""
    body, run = np.array(counts).tobytes(), net.parts["n1"].membership.manifest.run_id
    for name in by.split():
        of = lane if signed_for is None else signed_for
        body += sign_end(net.keys[name], run, end_of(np.array(counts).tobytes(), iteration, lane=of))
    signed, tag = np.frombuffer(body).tolist(), bytes([lane]) + bytes(7)
    return message_for(net, "n1", counts=signed, iteration=iteration, final=True, walk_tag=tag)


def test_walks_are_a_few() -> None:
    with pytest.raises(InvalidParameterError, match="walks"):
        replace(TWO, walks=65)


def test_no_walk_is_without_updates() -> None:
    with pytest.raises(InvalidParameterError, match="walks"):
        replace(TWO, updates=3, walks=4)


def test_lanes_share_the_updates() -> None:
    rules = replace(TWO, updates=20, walks=3)
    assert [rules.share(lane) for lane in rules.lanes] == [7, 7, 6]
    assert replace(TWO, walks=1).share(0) == 800


@pytest.mark.parametrize(
    ("case", "allowed"),
    [
        ({"walk_tag": SECOND, "iteration": 399}, True),
        ({"walk_tag": SECOND, "iteration": 400}, False),
        ({"walk_tag": b"\2walk-c1", "iteration": 1}, False),
        ({"walk_tag": b"\1" + bytes(7), "iteration": 1}, False),
        ({"walk_tag": b"\1" + bytes(7), "iteration": 400, "final": True}, True),
        ({"walk_tag": b"\1" + bytes(7), "iteration": 800, "final": True}, False),
        ({"walk_tag": b"\2" + bytes(7), "iteration": 400, "final": True}, False),
        ({"walk_tag": SECOND, "iteration": 400, "final": True}, False),
    ],
)
def test_a_header_says_what_its_lane_allows(case: dict[str, Any], allowed: bool) -> None:
    header = Header(update_id=bytes(16), body_length=8, **case)
    assert TWO.allow(header, body_bytes=8) is allowed


def test_a_manifest_keeps_its_walks() -> None:
    """Walks on their way are numbered by them."""
    manifest = make_test_manifest(spec={"walks": 2, "updates": 800})
    assert manifest.change(spec=manifest.spec.change(updates=900)).version == 2
    for walks in (1, 3):
        with pytest.raises(ProtocolError, match="walks"):
            manifest.change(spec=manifest.spec.change(walks=walks))


def test_a_neighbour_may_bring_one_message_more_for_each_walk() -> None:
    """An honest network has as many messages as walks, and throws none away."""
    assert Limits().messages_of_one(1000, 8) == Limits().messages_of_one(1000) + 7


def test_every_walk_ends_with_its_share_and_the_run_with_the_last(network: Make) -> None:
    """Nothing is lost or doubled; no node is finished before it has all ends."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=20, late_hops=1e9, walks=3))
        await net.start()
        states = [net.folder / f"state-{name}" for name in net.names]

        def finished() -> bool:
            found = [node_status(state) for state in states]
            for status, name in zip(found, net.names, strict=True):
                has = [model(net, name, "final", lane) is not None for lane in range(3)]
                assert not status.finished or all(has)
            return all(status.finished and not status.in_custody for status in found)

        await net.until(finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    made = [net.tally("updates", name) for name in net.names]
    finals = [{str(model(net, name, "final", lane)) for name in net.names} for lane in range(3)]
    assert [len(same) for same in finals] == [1, 1, 1]
    found = [model(net, "n0", "final", lane) for lane in range(3)]
    assert [iteration for iteration, _ in found] == [7, 7, 6]
    assert np.sum([counts for _, counts in found], axis=0).tolist() == made
    assert node_status(net.folder / "state-n0").walks == (7, 7, 6)
    assert (net.tally("started"), net.tally("created")) == (3, 0)
    assert net.tally("forks") == net.tally("retired") == net.tally("merged") == 0


def test_a_walk_that_reaches_the_target_ends_alone(network: Make) -> None:
    """Each goes on until its own model is good enough: here, when n0 has made three of its updates."""

    class Goal(Tally):
        def evaluate(self, params: Any, data: Any) -> Any:
            return {**super().evaluate(params, data), "accuracy": float(params["counts"][0] >= 3)}

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=200, evaluations=100, target=0.9, late_hops=1e9, walks=2)
        net = network(4, rules=rules)
        for name in net.names:
            task = net.parts[name].task
            net.change(name, task=replace(task, learner=Goal(4), test=task.data))
        await net.start()
        states = [net.folder / f"state-{name}" for name in net.names]
        await net.until(lambda: all(node_status(state).finished for state in states))
        await net.stop()
        return net

    net = asyncio.run(main())
    made = np.zeros(4)
    for lane in (0, 1):
        iteration, counts = model(net, "n2", "final", lane)
        assert (counts[0], sum(counts)) == (3, iteration)
        made += counts
    assert made.tolist() == [net.tally("updates", name) for name in net.names]


def test_walks_of_other_lanes_are_no_rivals(network: Make) -> None:
    """Far behind one in another lane a walk goes on with its own model; behind itself it does not."""

    async def main() -> Any:
        net = network(4, starts=False, rules=TWO)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        messages: list[dict[str, Any]] = [
            {"walk_tag": FIRST, "iteration": 5, "counts": [5.0, 0, 0, 0]},
            {"walk_tag": SECOND, "iteration": 50, "counts": [50.0, 0, 0, 0]},
            {"walk_tag": FIRST, "iteration": 7, "counts": [6.0, 1, 0, 0]},
        ]
        for seq, message in enumerate(messages, start=1):
            await offer(connection, seq, message_for(net, "n1", **message))
            await net.until(lambda seq=seq: net.tally("updates") == seq)
        # It was here with more.
        await offer(connection, 4, message_for(net, "n1", walk_tag=SECOND, iteration=20, counts=[20.0, 0, 0, 0]))
        await net.until(lambda: net.tally("forks") == 1)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert model(net, "n1", "checkpoint", 0) == (8, [6, 2, 0, 0])
    assert model(net, "n1", "checkpoint", 1) == (51, [50, 1, 0, 0])
    assert (net.tally("updates"), net.tally("merged"), net.tally("retired")) == (3, 0, 0)


def test_hunger_makes_the_one_walk_that_was_lost(network: Make) -> None:
    """The others' messages look like life to whoever goes by age: those who wait to open that lane notice."""

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=10**6, late_hops=1e9, starve_hops=40, hop_s=0.05, walks=2)
        net = network(4, rules=rules)
        await net.start()
        await net.until(lambda: all(model(net, name, "checkpoint", 1) for name in net.names))
        swallowed: list[int] = []
        for name in net.names:
            destination = net.nodes[name]._destination
            destination.work = swallowing(destination.work, swallowed)
        await net.until(lambda: swallowed)
        await net.until(lambda: net.tally("created") >= 1)
        first = model(net, "n0", "checkpoint", 0)
        await net.until(lambda: all(model(net, name, "checkpoint", 1)[0] > swallowed[0] for name in net.names))
        await net.until(lambda: model(net, "n0", "checkpoint", 0) > first)
        await net.stop()
        return net

    def swallowing(work: Any, swallowed: list[int]) -> Any:
        def swallow(arrival: Any, roster: Any) -> Any:
            if arrival.lane == 1 and not swallowed:
                swallowed.append(arrival.opened.header.iteration)
                return UpdateOutcome(counts=("swallowed",), lane=1)
            return work(arrival, roster)

        return swallow

    net = asyncio.run(main())
    seen: set[bytes] = set()
    for name in net.names:
        seen |= set(net.look(name)["walks"])
    assert len([tag for tag in seen if tag[0] == 0]) == 1
    assert len([tag for tag in seen if tag[0] == 1]) == 1 + net.tally("created")


class Least(OsDraws):
    """Draws nought."""

    def unit(self) -> float:
        """Return the least."""
        return 0.0


def test_hunger_is_counted_by_lane() -> None:
    now = [0.0]
    found = Watches(10, 20, n_nodes=4, step_s=1.0, walks=2, draws=Least(), clock=lambda: now[0])

    def alarms() -> tuple[bool, list[int]]:
        return found.is_quiet, list(found.lost)

    now[0] = 9.0
    found.on_arrival()
    found.on_opening(0)
    now[0] = 18.5
    found.on_arrival()
    assert alarms() == (False, [])
    now[0] = 21.0
    assert alarms() == (False, [1])
    now[0] = 28.6
    assert alarms() == (True, [0, 1])
    found.on_arrival()
    found.exclude_downtime(30.0)
    assert alarms() == (False, [])
    assert found.lanes == (0, 1)


def test_an_end_is_taken_of_its_own_lane_only(network: Make) -> None:
    """Signatures under one lane are none for another: given for it, or added to those that another lane has."""
    counts = [100.0] * 4

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(TWO, signatures=2))
        await net.start("n1")
        for lane, by, signed_for in ((1, "n0 n2", 0), (0, "n0 n2", 1), (0, "n0", 0), (1, "n2", 1)):
            await hand_in(net, "n1", final_of(net, lane, by, counts, signed_for=signed_for))
        await net.until(lambda: net.tally("taken") == 4)
        await asyncio.sleep(0.6)
        assert [model(net, "n1", "final", lane) for lane in (0, 1)] == [None, None]
        await hand_in(net, "n1", final_of(net, 1, "n0", counts))
        await net.until(lambda: model(net, "n1", "final", 1) is not None)
        assert model(net, "n1", "final", 0) is None
        assert not node_status(net.folder / "state-n1").finished
        await hand_in(net, "n1", final_of(net, 0, "n2", counts))
        await net.until(lambda: model(net, "n1", "final", 0) is not None)
        assert node_status(net.folder / "state-n1").finished
        await net.stop()
        return net

    net = asyncio.run(main())
    state = net.folder / "state-n1"
    assert unfinish_node(state)
    assert not unfinish_node(state)
    with FolderReader(state) as register:
        assert [register.mark(of_lane("undone", lane)) is not None for lane in (0, 1)] == [True, True]
        assert register.messages() == []


def test_who_has_a_new_disk_gets_the_ends_of_all_lanes(network: Make) -> None:
    """Of those that are there; and each waits for it once, however often it asks."""

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(TWO, updates=2, walks=2))
        await net.start("n1")
        desk = net.nodes["n1"].scheduler
        connection = await greet(net, "n0", "n1")
        for seq, tag in enumerate((FIRST, SECOND), start=1):
            await offer(connection, seq, message_for(net, "n1", walk_tag=tag, counts=[0.0] * 4, iteration=0))
            await net.until(lambda seq=seq: net.tally("updates") == seq)
        await net.until(lambda: net.tally("ends") == 2)
        before = len(await desk.store(lambda: desk.custody.spool.tables.messages(peer="n0")))
        # It left, and is back without what it was told.
        await desk.store(desk.custody.part_from, "n0")
        for _ in range(3):
            await desk.store(desk._bid_farewell, "n0")
        waiting = await desk.store(lambda: desk.custody.spool.tables.messages(peer="n0"))
        connection.close()
        await net.stop()
        return before, sorted(row.end_lane for row in waiting)

    assert asyncio.run(main()) == (2, [0, 1])


def put_models(config: Path, walks: int, **models: tuple[int, float]) -> None:
    """Store models in a node's folder as the node itself would, with its manifest."""
    settings = load_config(config)
    files = MembershipFiles(settings)
    settings.state.mkdir(mode=0o700, exist_ok=True)
    found = files.load()
    files.keep(found.roster)
    files.keep(found.manifest)
    spool = Spool(FolderDisk(settings.state))
    spool.note_walks(walks)
    with spool.transaction() as tables:
        for name, (iteration, value) in models.items():
            params: Any = {spec.name: np.full(spec.shape, value, spec.dtype) for spec in found.manifest.arrays}
            stored = spool.store(encode_params(found.manifest, params))
            kind, _, lane = name.partition("_")
            tables.set_model(kind, stored, lane=int(lane or 0), tag=bytes(8), iteration=iteration)
    spool.close()


def test_status_is_read_while_a_version_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was the newest when somebody looked can still be read when the next one is kept; no older one."""
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=1", suite="x25519"))
    config = prepare_or_resume(setup, tmp_path / "c")[0]
    put_models(config, 1)
    settings = load_config(config)
    files, read = MembershipFiles(settings), Manifest.read_draft
    manifest = files.load().manifest

    def read_late(path: Path) -> Manifest:
        files.keep(replace(manifest, version=2, prev_digest=manifest.digest))
        return read(path)

    monkeypatch.setattr(Manifest, "read_draft", read_late)
    assert node_status(settings.state, with_versions=True).manifest_version == 1
    files.keep(replace(manifest, version=3, prev_digest=manifest.digest))
    kept = sorted(path.name for path in (settings.state / "manifests").glob("*.json"))
    assert kept == ["0000000002.json", "0000000003.json"]


def test_without_a_test_set_one_end_is_exported(tmp_path: Path) -> None:
    """The first walk's end, or before the end its newest model; not the mean, which may be worse than all."""
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=1", suite="x25519", walks=2))
    configs = prepare_or_resume(setup, tmp_path / "c")
    put_models(configs[0], 2, checkpoint=(7, 1.0), checkpoint_1=(9, 2.0))
    put_models(configs[1], 2, checkpoint=(7, 1.0), final_1=(200, 6.0))
    put_models(configs[2], 2, checkpoint_1=(9, 2.5))

    def exported(config: Path) -> float:
        return float(node_model(config, unfinished=True).params["bias"][0])

    assert [exported(config) for config in configs[:3]] == [1.0, 1.0, 2.5]
    states = [node_status(load_config(config).state) for config in configs[:3]]
    assert [(status.iteration, status.walks, status.finished) for status in states] == [
        (16, (7, 9), False),
        (207, (7, 200), False),
        (9, (0, 9), False),
    ]
    put_models(configs[1], 2, final=(200, 3.0))
    for source in (configs[1], tmp_path / "c"):
        model = node_model(source)
        assert float(model.params["bias"][0]) == 3.0
        assert "first of 2 walks" in model.remark
        # Finding 3: members compare what they hold.
        assert model.ends == node_status(load_config(configs[1]).state).ends
        assert len(set(model.ends)) == 2
    dwells = replace(TWO, dwell_s=0.1, hops_per_update=7.5)
    assert 2 * dwells.seconds == replace(dwells, walks=1).seconds > 0


def test_with_a_public_test_set_the_best_end_is_exported(tmp_path: Path) -> None:
    """Whether it is the mean or an end; all members have the same set, so all hand out the same model."""
    settings = CLUSTER.defaults.change(graph="rrg:6:3:seed=1", suite="x25519", walks=2, target_accuracy=0.99)
    configs = prepare_or_resume(set_up_cluster(settings), tmp_path / "c")
    # All numbers alike say nothing of the digit; the mean of opposite ones says as little, and is less sure of it.
    put_models(configs[0], 2, final=(200, 3.0), final_1=(200, -3.0))
    model = node_model(configs[0])
    assert "least loss on the public test set" in model.remark
    assert model.params["bias"][0] in {0.0, 3.0, -3.0}


def test_no_schedule_loses_or_doubles_an_update_of_two_walks() -> None:
    """Crashes, power cuts, pauses and silence, in virtual time."""
    outcomes = [schedules.play(seed, walks=2) for seed in range(20)]
    assert [outcome for outcome in outcomes if outcome.faults] == []
    assert sum(outcome.crashes for outcome in outcomes) > 60
