"""How a run ends: what a walk says about itself is judged, and an end is signed by more members than can be liars."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.helpers.members import ack, end_of, forged_final, greet, hand_in, message_for, offer

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules, node_status, unfinish_node
from veilwalk.node.members import SIGNATURE_BYTES, changed_roster
from veilwalk.node.peer import _observe, signatures_needed
from veilwalk.node.peer._destination import Destination
from veilwalk.node.peer._ends import CountLimits, sign_end, valid_signatures

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)
#: A hop takes a millisecond at least, so there is an update in 0.2 s at most.
SLOW = replace(LONG, hops_per_update=200.0, signatures=3)
CHORDS = ((0, 2), (1, 3), (2, 4), (0, 3), (1, 4))
ATTACK = [-1e5] * 5


@pytest.mark.parametrize("judges", [True, False])
def test_one_member_cannot_end_a_run_by_a_number(network: Make, judges: bool) -> None:
    """Finding 1: a walk for each member, as of the last update but one. Without a judgement all of them end with it."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, rules=SLOW if judges else LONG)
        await net.start()
        await net.until(lambda: net.tally("updates") >= 5)
        for goal in net.names:
            await hand_in(net, goal, message_for(net, goal, counts=ATTACK, iteration=399))
        if judges:
            await net.until(lambda: net.tally("refused") + net.tally("passed_on") >= 5)
            before = net.tally("updates")
            await net.until(lambda: net.tally("updates") >= before + 40)
        else:
            await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    finals = [net.look(name)["final"] for name in net.names]
    assert [final is None for final in finals] == [judges] * 5
    checkpoints = [net.look(name)["checkpoint"] for name in net.names]
    assert not judges or min(model.min() for model in checkpoints if model is not None) >= 0


def test_a_node_that_has_had_no_turn_passes_on_what_it_cannot_judge(network: Make) -> None:
    """It learns nothing from it, and takes it for no walk of its own; an honest walk loses nothing."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, starts=False, rules=SLOW)
        await net.start("n1")
        await hand_in(net, "n1", message_for(net, "n1", counts=[7.0] * 5, iteration=390))
        await net.until(lambda: net.tally("passed_on") == 1)
        await net.stop()
        return net

    net = asyncio.run(main())
    look = net.look("n1")
    assert (look["checkpoint"], look["walks"], len(look["messages"])) == (None, {}, 1)
    assert net.tally("updates") == 0


def limits(now: list[float], hop_s: float = 1.0) -> CountLimits:
    made = CountLimits(1.0, lambda: hop_s, clock=lambda: now[0])
    made.on_sight()
    return made


def test_small_lies_do_not_add_up() -> None:
    """Thirty at once are believed, for walks are quick by chance; thirty after every turn of this node are not."""
    now, own = [0.0], 0
    limit = limits(now)
    for _ in range(100):
        now[0] += 0.1
        while limit.is_possible(own + 10, own, 0):
            limit.on_turn(own + 10, own, 0)
            own += 10
    assert own <= 30 + 4 * now[0]
    assert own >= 30


def test_an_honest_walk_is_never_too_fast() -> None:
    """By chance alone, with half of the members left; were there no head start, chance would be taken for a lie."""
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(200):
        now, own, count = [0.0], 0, 0
        limit = limits(now)
        for _ in range(400):
            # So many updates, each in half the time, until this node has its turn.
            jump = int(rng.geometric(1 / 10))
            now[0] += rng.gamma(jump, 0.5)
            count += jump
            refused += not limit.is_possible(count, own, 0)
            limit.on_turn(count, own, 0)
            own = count
    assert refused == 0
    assert not limits([5.0]).is_possible(31, 0, 0)


def test_who_was_away_catches_up_and_nobody_reads_a_clock() -> None:
    """Finding 8: time counts from this node's own turns, by its own intervals."""
    now = [1e6]
    limit = limits(now)
    limit.on_turn(100, 100, 0)
    assert not limit.is_possible(500, 100, 0)
    now[0] += 92.5
    assert limit.is_possible(500, 100, 0)
    # Another lane knows nothing of it.
    assert not limits([0.0]).has_turn(1)


@pytest.mark.parametrize("hours", [-0.5, 0.5])
def test_a_clock_that_is_wrong_costs_no_update(network: Make, hours: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are judged by intervals, so it makes no difference that the clock of the day jumps during the run."""
    now = time.time

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=40, late_hops=1e9, hops_per_update=1.0))
        await net.start()
        monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n0")["final"].sum() == 40
    assert net.tally("refused") == net.tally("passed_on") == 0


@pytest.mark.parametrize(
    ("members", "updates", "needed"),
    [
        (10, 2000, 3),
        (300, 2000, 31),
        (20, 400, 3),
        (3, 100, 2),
        (2, 100, 2),
        (10, 1, 1),
        (10, 2, 2),
        (10, 8, 2),
        (3000, 3000, 301),
    ],
)
def test_how_many_signatures_end_a_run(members: int, updates: int, needed: int) -> None:
    assert signatures_needed(members, updates) == needed


def test_so_many_members_have_trained_when_an_honest_run_ends() -> None:
    """As members draw who is next: uniformly among the others. One more would often be too many in a short run."""
    rng = np.random.default_rng(3)
    for members, updates in ((10, 2), (10, 8), (10, 12), (30, 20), (300, 60)):
        enough = signatures_needed(members, updates)
        trained = []
        for _ in range(300):
            makers = [0]
            for _ in range(updates - 1):
                makers.append((makers[-1] + int(rng.integers(1, members))) % members)
            trained.append(len(set(makers)))
        assert min(trained) >= enough


@pytest.mark.parametrize("updates", [1, 2, 3, 12])
def test_short_runs_end_everywhere(network: Make, updates: int) -> None:
    async def main() -> Any:
        rules = replace(LONG, updates=updates, hops_per_update=3.0, signatures=signatures_needed(5, updates))
        net = network(5, chords=CHORDS, rules=rules)
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    made = [net.tally("updates", name) for name in net.names]
    assert sum(made) == updates
    assert all(net.look(name)["final"].tolist() == made for name in net.names)
    assert net.tally("ends") == 5
    assert net.tally("ends_changed") == 0


@pytest.mark.parametrize(("signers", "ends"), [("n3 n4", False), ("n3 n3 n4", False), ("n0 n3 n4", True)])
def test_two_members_end_no_run_and_as_many_as_the_manifest_says_do(network: Make, signers: str, ends: bool) -> None:
    """Finding 4: at a node that never trained, and at one whose own model is far away."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, starts=False, rules=SLOW)
        await net.start("n1", "n2")
        await hand_in(net, "n2", message_for(net, "n2", counts=[0.0] * 5))
        await net.until(lambda: net.tally("updates", "n2") == 1)
        for goal in ("n1", "n2"):
            await hand_in(net, goal, forged_final(net, goal, signers, [100.0] * 5))
        await net.until(lambda: net.tally("ends") == 2 if ends else net.tally("unbelieved", "n2") >= 1)
        await asyncio.sleep(0.6)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert [net.look(name)["final"] is not None for name in ("n1", "n2")] == [ends] * 2


@pytest.mark.parametrize(("far", "iteration", "signed"), [(0.0, 400, True), (9.0, 400, False), (0.0, 100, False)])
def test_a_member_signs_what_is_possible_and_near_its_own_model(
    network: Make, far: float, iteration: int, signed: bool
) -> None:
    async def main() -> Any:
        net = network(5, chords=CHORDS, starts=False, rules=replace(LONG, signatures=2, hops_per_update=200.0))
        await net.start("n1")
        net.nodes["n1"]._destination.limits = limits([0.0])
        net.nodes["n1"]._destination.limits._believed[0] = -1000 if iteration == 400 else 0
        net.nodes["n1"]._destination.limits._turns[0] = -1000.0
        await hand_in(net, "n1", message_for(net, "n1", counts=[9.0, 0, 0, 0, 0], iteration=iteration - 2))
        await net.until(lambda: net.tally("updates") + net.tally("refused") >= 1)
        await hand_in(net, "n1", forged_final(net, "n1", "n0", [9.0 - 2 * far, 1, 1, 0, 0]))
        await net.until(lambda: net.look("n1")["final"] is not None or net.tally("unbelieved"))
        await net.stop()
        return net

    assert (asyncio.run(main()).look("n1")["final"] is not None) is signed


def test_an_end_that_was_taken_stays(network: Make) -> None:
    """Finding 3: neither one member nor two exchange it, whatever its digest; who brings another gets ours."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, starts=False, rules=replace(LONG, signatures=3))
        await net.start("n1")
        await hand_in(net, "n1", forged_final(net, "n1", "n0 n2 n3", [100.0] * 5))
        await net.until(lambda: net.tally("ends") == 1)
        for step in range(8):
            await hand_in(net, "n1", forged_final(net, "n1", "n2 n3", [100.0 + step / 8, *[100.0] * 4]))
            await net.until(lambda step=step: net.tally("duplicates") == step + 1)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n1")["final"].tolist() == [100.0] * 5
    assert net.tally("ends_changed") == 0


def test_every_change_of_an_end_is_logged_and_counted_and_the_digest_is_shown(
    network: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 20: of two ends that enough members signed all keep the same."""
    monkeypatch.setattr(_observe, "_MINUTE_S", 0.0)
    models = sorted(([100.0 + step, *[100.0] * 4] for step in range(2)), key=digest)

    async def main() -> Any:
        net = network(5, chords=CHORDS, starts=False, rules=replace(LONG, signatures=2))
        await net.start("n1")
        for number, model in enumerate((*models, models[0]), start=1):
            await hand_in(net, "n1", forged_final(net, "n1", "n2 n3", model))
            await net.until(lambda number=number: sum(map(net.tally, ("ends", "ends_changed", "duplicates"))) == number)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.look("n1")["final"].tolist() == models[1]
    assert (net.tally("ends"), net.tally("ends_changed")) == (1, 1)
    log = net.logs["n1"].getvalue()
    assert log.count('"ended"') == log.count('"end_changed"') == 1
    assert node_status(net.folder / "state-n1").ends == (digest(models[1]).hex(),)
    assert digest(models[1]).hex()[:8] in log


def digest(model: Any) -> bytes:
    return hashlib.sha256(np.array(model).tobytes()).digest()


def test_an_operator_can_undo_an_end(network: Make) -> None:
    """Undone, the same end is not taken again, and the node works on."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, starts=False, rules=replace(LONG, signatures=2))
        forged = forged_final(net, "n1", "n0 n2", [100.0] * 5)
        await net.start("n1")
        await hand_in(net, "n1", forged)
        await net.until(lambda: net.tally("ends") == 1)
        await net.stop("n1")
        (end,) = node_status(net.folder / "state-n1").ends
        assert unfinish_node(net.folder / "state-n1")
        assert not unfinish_node(net.folder / "state-n1")
        # What an operator tells the others: that it is undone, and which.
        status = node_status(net.folder / "state-n1")
        assert (status.finished, status.ends, status.undone) == (False, (), (end,))
        await net.start("n1")
        await hand_in(net, "n1", forged_final(net, "n1", "n0 n2", [100.0] * 5))
        await net.until(lambda: net.tally("refused") == 1)
        await hand_in(net, "n1", message_for(net, "n1", counts=[0.0] * 5))
        await net.until(lambda: net.tally("updates") == 1)
        await net.stop()
        return net

    assert asyncio.run(main()).look("n1")["final"] is None


def test_no_update_is_added_to_an_end_that_is_being_signed(network: Make) -> None:
    """Another walk comes to the member that made the last update: its model has had all that the run asks for."""

    async def main() -> Any:
        net = network(5, chords=CHORDS, rules=replace(LONG, updates=3, signatures=3), starts=False)
        await net.start("n1")
        await hand_in(net, "n1", message_for(net, "n1", counts=[0.0, 0.0, 2.0, 0.0, 0.0], iteration=2))
        await net.until(lambda: net.tally("updates") == 1)
        await hand_in(net, "n1", message_for(net, "n1", counts=[0.0] * 5, walk_tag=b"walktag2"))
        await net.until(lambda: net.tally("retired") == 1)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.tally("updates") == 1
    assert net.look("n1")["checkpoint"].sum() == 3


def test_signatures_of_others_than_members_count_for_nothing(network: Make) -> None:
    """Of one that has left, of nobody, of another lane, model or number, and of one member twice."""
    net = network(5, chords=CHORDS)
    run = bytes(16)
    sign = sign_end(net.keys["n0"], run, end_of(b"model", 400))
    assert set(valid_signatures(net.roster, run, end_of(b"model", 400, signatures=sign))) == {"n0"}
    for signatures, iteration, model, lane in (
        (sign, 399, b"model", 0),
        (sign, 400, b"other", 0),
        (sign, 400, b"model", 1),
        (bytes(SIGNATURE_BYTES), 400, b"model", 0),
        (sign[:-1] + bytes([sign[-1] ^ 1]), 400, b"model", 0),
    ):
        assert valid_signatures(net.roster, run, end_of(model, iteration, lane=lane, signatures=signatures)) == {}
    assert valid_signatures(net.roster, run, end_of(b"model", 400, signatures=3 * sign)) == {"n0": sign}
    edges = [edge for edge in net.roster.edges if "n0" not in edge]
    after = changed_roster(net.roster, edges, cards={}, removed=["n0"], now=net.roster.created + 1, days=1)
    assert valid_signatures(after, run, end_of(b"model", 400, signatures=sign)) == {}


def test_the_first_signature_does_not_say_who_made_the_end(network: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody hands an end on as it came, and signs later: the first wave carries no signature at all."""
    told: list[tuple[str, bool]] = []
    seal_end = Destination.seal_end

    def noted(self: Any, end: Any, *values: Any) -> Any:
        told.append((self.keys.id, self.keys.member.tls_spki_sha256 in end.signatures))
        return seal_end(self, end, *values)

    monkeypatch.setattr(Destination, "seal_end", noted)

    async def main() -> Any:
        net = network(5, chords=CHORDS, rules=replace(LONG, updates=30, signatures=3))
        await net.start()
        await net.until(net.finished)
        await net.stop()
        return net

    assert asyncio.run(main()).look("n0")["final"].sum() == 30
    # Of each node the first time that it tells: the list is read backwards.
    assert not any(dict(reversed(told)).values())
    assert any(is_signed for _, is_signed in told)


@pytest.mark.parametrize("reaches", [True, False])
def test_an_end_before_the_last_update_must_reach_the_target(network: Make, reaches: bool) -> None:
    """On this node's own copy of the test set."""

    class Judge:
        def __init__(self, learner: Any) -> None:
            self.init_params, self.update = learner.init_params, learner.update

        def evaluate(self, *_: Any) -> Any:
            """Return an accuracy."""
            return {"loss": 1.0, "accuracy": 0.95 if reaches else 0.2}

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(LONG, target=0.9, signatures=2))
        task = net.parts["n1"].task
        net.change("n1", task=replace(task, learner=Judge(task.learner), test=task.data))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        assert await offer(connection, 1, forged_final(net, "n1", "n0", [5.0] * 4, iteration=7)) == ack(1)
        await net.until(lambda: net.look("n1")["final"] is not None or net.tally("unbelieved"))
        connection.close()
        await net.stop()
        return net

    assert (asyncio.run(main()).look("n1")["final"] is not None) is reaches


def test_what_is_refused_has_no_say_in_how_much_an_update_counts(network: Make) -> None:
    """A model that cannot be read comes with the number of the last update: the node's own last one is trained on."""

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(LONG, decay=400))
        await net.start("n1")
        await hand_in(net, "n1", message_for(net, "n1", counts=[float("nan")] * 4, iteration=399))
        await net.until(lambda: net.tally("refused") == 1)
        await net.stop()
        return net

    # Of a model that had 399 of 400 updates hardly anything would have been added.
    assert asyncio.run(main()).look("n1")["checkpoint"].tolist() == [0, 1, 0, 0]
