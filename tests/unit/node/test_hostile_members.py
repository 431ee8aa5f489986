"""Members that mean harm, and learners that fail: what opens for a node must not end it, nor the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from tests.helpers.members import ack, greet, message_for, offer

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules
from veilwalk.node.members import changed_roster
from veilwalk.node.peer._destination import updates_lost
from veilwalk.node.peer._trainer import OUT_OF_TIME, TrainingJob, TrainingOutcome
from veilwalk.node.sealing import Header
from veilwalk.node.spool import SeenWalk

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)


def breaks(task: Any, *, when: Callable[[Any], bool]) -> Any:
    """The task with a learner that raises on some models."""

    class Broken:
        init_params, evaluate = task.learner.init_params, task.learner.evaluate

        def update(self, params: Any, *values: Any) -> Any:
            """Fail, or not."""
            if when(params):
                raise SystemExit("a learner may be anybody's code")
            return task.learner.update(params, *values)

    return replace(task, learner=Broken())


POISON: dict[str, dict[str, Any]] = {
    "iteration 2^32-1": {"iteration": 2**32 - 1},
    "iteration of the last update": {"iteration": 400},
    "no walk tag": {"walk_tag": bytes(8)},
    "short body": {"counts": [1.0] * 3},
    "made after it was": {"made_at": 6, "iteration": 5},
    "final of 2^32-1": {"final": True, "iteration": 2**32 - 1, "walk_tag": bytes(8)},
    "final too early": {"final": True, "iteration": 399, "walk_tag": bytes(8)},
    "final under a walk's tag": {"final": True, "iteration": 400},
}


def test_finding_01_a_header_out_of_bounds_harms_nobody(network: Make) -> None:
    """Each is set aside, the node lives, starts again, and trains on what comes next."""

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq, case in enumerate(POISON.values(), start=1):
            message = message_for(net, "n1", **({"counts": [0.0] * 4} | case))
            assert await offer(connection, seq, message) == ack(seq)
            # One after the other: whoever brings more than its quota at once loses some before they are opened.
            await net.until(lambda seq=seq: net.tally("set_aside") == seq)
        connection.close()
        await net.stop("n1")
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        assert await offer(connection, len(POISON) + 1, message_for(net, "n1", counts=[0.0] * 4)) == ack(9)
        await net.until(lambda: net.tally("updates") == 1)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n1")["final"] is None
    assert net.look("n1")["checkpoint"].tolist() == [0, 1, 0, 0]


def test_finding_01_a_learner_that_fails_eats_no_token(network: Make) -> None:
    """Its own fault: the model goes on as it came, and the run ends by the others' updates."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=20, late_hops=1e9))
        net.change("n1", task=breaks(net.parts["n1"].task, when=lambda _: True))
        await net.start()
        await net.until(net.finished, 60)
        await net.stop()
        return net

    net = asyncio.run(main())
    made = [net.tally("updates", name) for name in net.names]
    assert made[1] == 0
    assert net.look("n1")["final"].tolist() == made
    assert sum(made) == 20
    assert net.tally("learner_failures", "n1") >= 1
    assert not any("Traceback" in log.getvalue() for log in net.logs.values())


def test_finding_01_a_model_that_makes_the_learner_fail_is_refused(network: Make) -> None:
    """The message's fault: the node's own model is trained in its place."""

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        net.change("n1", task=breaks(net.parts["n1"].task, when=lambda params: params["counts"][0] == 7))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq, first in enumerate((1.0, 7.0), start=1):
            await offer(connection, seq, message_for(net, "n1", counts=[first, 0, 0, 0], iteration=seq))
            await net.until(lambda seq=seq: net.tally("updates") == seq)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert (net.tally("refused"), net.tally("learner_failures")) == (1, 0)
    assert net.look("n1")["checkpoint"].tolist() == [1, 2, 0, 0]


def test_an_update_that_takes_too_long_is_counted_and_said_once(network: Make) -> None:
    """By the node whose learner hangs: what came goes on, and one line, however often, says what is wrong."""

    class Late:
        def __init__(self, task: Any) -> None:
            self.first, self.reaches_target, self.close = task.first, task.reaches_target, task.close

        def update(self, lesson: TrainingJob) -> TrainingOutcome:
            """Give up, as a worker does."""
            return TrainingOutcome(model=lesson.received or b"", counts=("learner_failures", OUT_OF_TIME))

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        net.change("n1", task=Late(net.parts["n1"].task))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq in (1, 2):
            await offer(connection, seq, message_for(net, "n1", counts=[1.0, 0, 0, 0], iteration=seq))
            await net.until(lambda seq=seq: net.tally("out_of_time") == seq)
        connection.close()
        await net.stop()
        return net

    said = asyncio.run(main()).logs["n1"].getvalue()
    assert said.count("an update took longer than training_s") == said.count("set_aside") == 1


@pytest.mark.parametrize("where", ["_destination._train", "scheduler.custody.replace", "scheduler.custody.examine"])
def test_finding_01_whatever_else_fails_is_set_aside_and_said_once(network: Make, where: str) -> None:
    """A fault of ours that nobody foresaw: counted, and not met again at the next start."""

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")

        def fails(*_: Any) -> Any:
            raise RuntimeError("n0 sent this")

        part, _, name = where.rpartition(".")
        setattr(attrgetter(part)(net.nodes["n1"]), name, fails)
        connection = await greet(net, "n0", "n1")
        for seq in (1, 2):
            await offer(connection, seq, message_for(net, "n1", counts=[0.0] * 4))
        await net.until(lambda: net.tally("set_aside") == 2)
        connection.close()
        log = net.logs["n1"].getvalue()
        await net.stop("n1")
        await net.start("n1")
        await net.stop()
        return net, log

    net, log = asyncio.run(main())
    assert net.look("n1")["messages"] == []
    assert log.count('"set_aside"') == 1
    assert "sent this" not in log


def test_finding_01_a_checkpoint_that_does_not_fit_is_as_good_as_none(network: Make) -> None:
    """As after a new manifest with a smaller bound of the norm."""

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        await offer(connection, 1, message_for(net, "n1", counts=[90.0, 0, 0, 0], iteration=1))
        await net.until(lambda: net.tally("updates") == 1)
        connection.close()
        await net.stop("n1")
        task = net.parts["n1"].task
        net.change("n1", task=replace(task, manifest=replace(task.manifest, norm_bound=10.0)))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        await offer(connection, 2, message_for(net, "n1", counts=[1.0, 0, 0, 0], iteration=2))
        await net.until(lambda: net.tally("updates") == 2)
        connection.close()
        await net.stop()
        return net

    assert asyncio.run(main()).look("n1")["checkpoint"].tolist() == [1, 1, 0, 0]


def test_finding_07_a_run_ends_after_the_last_member_by_name_has_left(network: Make) -> None:
    """Nodes restarted under the first roster and those under the next say farewell to their neighbours of now."""

    async def main() -> Any:
        rules = RunRules(walk=SIMPLE, updates=60, late_hops=30, starve_hops=80, hop_s=0.02)
        net = network(5, chords=((0, 2), (2, 4)), rules=rules)
        await net.start()
        await net.until(lambda: net.tally("updates") >= 5)
        edges = [edge for edge in net.roster.edges if "n0" not in edge]
        net.roster = changed_roster(net.roster, edges, cards={}, removed=["n0"], now=int(time.time()), days=1)
        rest = net.names
        await net.stop("n0")
        for name in rest:
            await net.nodes[name].follow(net.roster, net.keys[name])
        await net.until(lambda: all(net.look(name)["final"] is not None for name in rest), 90)
        await net.until(
            lambda: not any(row.end_lane is not None for name in rest for row in net.look(name)["messages"]), 60
        )
        await net.stop()
        return net, rest

    net, rest = asyncio.run(main())
    assert len({net.look(name)["final"].tobytes() for name in rest}) == 1


def test_finding_19_a_disk_lost_after_the_end_gets_the_model_again(network: Make) -> None:
    """And no more than once: neighbours do not greet each other with it for ever."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=20, late_hops=1e9))
        await net.start()
        await net.until(net.finished, 60)
        sent = net.tally("farewells")
        await net.stop("n2")
        (net.folder / "state-n2").rename(net.folder / "lost")
        await net.start("n2")
        await net.until(net.finished, 60)
        await asyncio.sleep(0.5)
        await net.stop()
        return net, sent

    net, sent = asyncio.run(main())
    assert net.look("n2")["final"].tolist() == net.look("n0")["final"].tolist()
    # Two to the new disk, and its own two; the old disk's are lost with it.
    assert net.tally("farewells") <= sent + 4


def test_finding_19_a_walk_after_the_end_is_answered(network: Make) -> None:
    """The neighbour that brings one gets the finished model: one, however many it brings meanwhile."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=20, late_hops=1e9))
        await net.start()
        await net.until(net.finished, 60)
        await net.stop("n0", "n2", "n3")
        connection = await greet(net, "n0", "n1")
        before = len(net.look("n1")["messages"])
        for seq in (1, 2, 3):
            await offer(connection, seq, message_for(net, "n1", counts=[0.0] * 4, iteration=5, made_at=2))
        await net.until(lambda: net.tally("retired", "n1") == 3)
        connection.close()
        await net.stop()
        return net, before

    net, before = asyncio.run(main())
    assert before <= 1
    assert [row.peer for row in net.look("n1")["messages"]] == ["n0"]
    assert net.tally("discarded", "n1") == 9


def test_finding_04_what_a_retired_walk_loses_is_counted(network: Make) -> None:
    """Eight updates of a walk made at 40, given up for one that was made at 30 and is alive and ahead."""

    async def main() -> Any:
        net = network(4, starts=False, rules=LONG)
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        walks = ((b"walktag2", 40, 46), (b"walktag1", 30, 60), (b"walktag2", 40, 48))
        for seq, (tag, made_at, iteration) in enumerate(walks, start=1):
            message = message_for(net, "n1", counts=[0.0] * 4, iteration=iteration, walk_tag=tag, made_at=made_at)
            await offer(connection, seq, message)
            await net.until(lambda seq=seq: net.tally("updates") + net.tally("retired") == seq)
        connection.close()
        await net.stop()
        return net

    net = asyncio.run(main())
    assert (net.tally("retired"), net.tally("discarded")) == (1, 8)


def test_what_is_lost_is_what_came_after_walks_parted() -> None:
    def lost(made_at: int, iteration: int, *ahead: int) -> int:
        header = Header(update_id=b"", walk_tag=b"walktag1", iteration=iteration, body_length=0, made_at=made_at)
        others = [SeenWalk(iteration=99, first_turn=0, last_turn=9, made_at=at) for at in ahead]
        return updates_lost(header, others)

    assert lost(40, 55, 0) == 15
    assert lost(0, 60, 40) == 20
    assert lost(0, 60, 70) == 0
