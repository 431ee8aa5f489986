"""Members that lie about how many updates a model has had: nobody ends a run before it can have been walked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.helpers.members import forged_final, greet, hand_in, message_for, offer

from veilwalk.core.walk import SIMPLE
from veilwalk.node import RunRules

Make = Callable[..., Any]
LONG = RunRules(walk=SIMPLE, updates=400, late_hops=1e9)
ATTACK = [-1e5] * 4


def run_made(seconds_ago: float) -> RunRules:
    """Rules by which fifty updates are possible at first, and twenty more every second."""
    return replace(LONG, hops_per_update=200.0, since=int(time.time() - seconds_ago))


@pytest.mark.parametrize("hurries", [True, False])
def test_a_lie_about_the_number_of_updates_ends_nothing(network: Make, hurries: bool) -> None:
    """One message for each member, as of the last update but one: refused, and the run goes on without that model.

    Where the rules do not say how long an update takes, all of them end with it: so the test can tell.
    """

    async def main() -> Any:
        net = network(4, starts=False, rules=run_made(0) if hurries else LONG)
        await net.start()
        for goal in net.names:
            await hand_in(net, goal, message_for(net, goal, counts=ATTACK, iteration=399))
        if hurries:
            await net.until(lambda: net.tally("refused") == 4 and net.tally("updates") >= 40)
        else:
            await net.until(net.finished)
        await net.stop()
        return net

    net = asyncio.run(main())
    for name in net.names:
        found = net.look(name)
        assert (found["final"] is None) is hurries
        assert (found["checkpoint"] if hurries else found["final"]).min() >= 0 or not hurries


@pytest.mark.parametrize(("ago", "ends"), [(0.0, False), (3600.0, True)])
def test_an_end_that_two_vouch_for_is_believed_once_there_was_time_for_it(
    network: Make, ago: float, ends: bool
) -> None:
    async def main() -> Any:
        net = network(4, starts=False, rules=run_made(ago))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        for seq, by in ((1, "n0"), (2, "n2")):
            await offer(connection, seq, forged_final(net, "n1", by, [100.0] * 4))
        await net.until(lambda: net.look("n1")["final"] is not None if ends else net.tally("refused") == 2)
        connection.close()
        await net.stop()
        return net

    assert (asyncio.run(main()).look("n1")["final"] is not None) is ends


def test_an_honest_walk_is_never_too_fast() -> None:
    """By chance alone, at the least time that a hop can take, and with half of the members left."""
    rules = replace(LONG, hops_per_update=21.6, dwell_s=0.5, since=1_000_000)
    mean_s = 21.6 * 0.5 / 2
    # Without what is allowed for clocks.
    waits = np.geomspace(1, 1e6, 400)
    bounds = np.array([rules.possible(1_000_000 - rules.clocks_s + wait) for wait in waits])
    assert np.max(stats.poisson.sf(bounds, waits / mean_s)) < 1e-12
    # Were there no head start, or twice as few, chance would be taken for a lie.
    assert np.max(stats.poisson.sf(bounds - 30, waits / mean_s)) > 1e-3
    assert np.max(stats.poisson.sf(bounds / 2, waits / mean_s)) > 1e-3


@pytest.mark.parametrize("change", [{"dwell_s": 5.0}, {"hops_per_update": 216.0}, {"dwell_s": 0.1}, {"updates": 800}])
def test_a_later_manifest_makes_no_lie_of_what_was_walked_under_the_one_before(change: dict[str, Any]) -> None:
    """As of a run whose members grew many, or whose messages dwell for longer: its walk goes on, and its end comes."""
    now = 1_100_000.0
    before = replace(LONG, hops_per_update=21.6, dwell_s=0.5, since=1_000_000)
    after = replace(before, **change, since=int(now)).following(before, now)
    assert after.possible(now) >= before.possible(now) > 9000
    # And no more than there must be.
    assert after.possible(now) <= before.possible(now) * max(1.01, before.update_s / after.update_s)
    assert after.possible(now + 1000) - after.possible(now) == pytest.approx(4 * 1000 / after.update_s)


def test_a_manifest_after_one_that_did_not_say_how_long_an_update_takes_refuses_nothing() -> None:
    after = replace(LONG, hops_per_update=21.6, dwell_s=0.5, since=1_795_000_000).following(LONG, 1_795_000_000.0)
    assert after.possible(1_795_000_000.0) > 1e8


def test_rules_that_do_not_say_how_long_an_update_takes_allow_every_number() -> None:
    assert LONG.possible(0.0) == float("inf")
    assert RunRules.from_text(LONG.to_text()) == LONG
    said = replace(LONG, hops_per_update=21.6, since=1_795_000_000)
    assert said.to_text().endswith(" hops=21.6 since=1795000000")
    assert RunRules.from_text(said.to_text()) == said


def test_what_is_refused_has_no_say_in_how_much_an_update_counts(network: Make) -> None:
    """A model that cannot be read comes with the number of the last update: the node's own last one is trained on."""

    async def main() -> Any:
        net = network(4, starts=False, rules=replace(LONG, decay=400))
        await net.start("n1")
        connection = await greet(net, "n0", "n1")
        await offer(connection, 1, message_for(net, "n1", counts=[float("nan")] * 4, iteration=399))
        await net.until(lambda: net.tally("refused") == 1)
        connection.close()
        await net.stop()
        return net

    # Of a model that had 399 of 400 updates hardly anything would have been added.
    assert asyncio.run(main()).look("n1")["checkpoint"].tolist() == [0, 1, 0, 0]
