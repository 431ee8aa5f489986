"""Nodes on a secret overlay: through periods, through a change of members, and what they write of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.members import greet
from tests.unit.node.test_metrics import ask, watching

from veilwalk.core.errors import ConfigError, CryptoError, ProtocolError, TransportError
from veilwalk.core.walk import Walk
from veilwalk.node import RunRules
from veilwalk.node.cluster import free_ports
from veilwalk.node.members import LawRule, deal_again, new_node_keys
from veilwalk.node.peer import Law, check_own_entry
from veilwalk.node.sealing import Suite, seal

Make = Callable[..., Any]
RULES = RunRules(walk=Walk("non-backtracking"), updates=100_000, late_hops=1e9)
PERIOD_S = 60


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock of the wall forward, which everybody looks at."""
    real, ahead = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + ahead[0])

    def by(seconds: float) -> None:
        ahead[0] += seconds

    return by


def lost_or_doubled(net: Any) -> float:
    """How many updates of the newest model were not made, or made and are not in it."""
    newest = max((look["checkpoint"].sum(), look["checkpoint"].tolist()) for look in looks(net))[1]
    made = [net.look(name)["tallies"].get("updates", 0) for name in net.parts]
    return float(np.abs(np.array(newest) - made).max())


def looks(net: Any) -> list[Any]:
    return [look for look in (net.look(name) for name in net.nodes) if look["checkpoint"] is not None]


def test_a_run_goes_through_periods(network: Make, advance: Callable[[float], None]) -> None:
    """Keys change while the model walks: each update is made once, and none is lost."""

    async def main() -> Any:
        net = network(8, overlay=3, recipients=2, rules=RULES, period_s=PERIOD_S)
        await net.start()
        for _ in range(4):
            before = net.tally("updates")
            await net.until(lambda before=before: net.tally("updates") > before + 8)
            advance(PERIOD_S)
            await net.until(lambda: {tuple(node._opened) for node in net.nodes.values()} == {opened_now(net)})
        before = net.tally("updates")
        await net.until(lambda: net.tally("updates") > before + 8)
        await net.stop()
        return net

    net = asyncio.run(main())
    assert net.roster.epoch_at(time.time()) == 4
    assert lost_or_doubled(net) == 0
    assert [net.tally(name) for name in ("expired", "damaged", "created", "discarded", "forks")] == [0] * 5


def opened_now(net: Any) -> tuple[int, ...]:
    return tuple(net.roster.open_epochs(time.time()))


def test_what_was_sealed_in_the_period_before_opens(network: Make, advance: Callable[[float], None]) -> None:
    """A message outlives the beginning of a period, but not of two."""

    async def main() -> Any:
        net = network(6, overlay=3, starts=False, rules=RULES, period_s=PERIOD_S)
        own = net.parts["n2"].membership
        messages = [
            seal(
                own.roster.seal_context(own.manifest, epoch=0),
                [own.roster.kem_key("n2", 0)],
                walk_tag=b"walktag1",
                iteration=0,
                body=np.zeros(6).tobytes(),
            )
            for _ in range(2)
        ]
        await net.start()
        advance(PERIOD_S)
        desk = net.nodes["n0"].scheduler
        desk._settle(await desk.store(desk.custody.create, messages[0], "started"), for_us=False)
        await net.until(lambda: net.tally("updates", "n2") >= 1)
        made = net.tally("updates", "n2")
        advance(PERIOD_S)
        await net.until(lambda: {tuple(node._opened) for node in net.nodes.values()} == {opened_now(net)})
        assert net.nodes["n2"].scheduler.custody.opener.is_current(messages[1]) is False
        await net.stop()
        return made

    assert asyncio.run(main()) >= 1


def test_members_change_while_the_run_goes_on(network: Make) -> None:
    """One leaves and one comes at one moment: the model goes on, and nobody gets the place of the one who left."""

    async def main() -> Any:
        net = network(8, overlay=3, recipients=2, rules=RULES, period_s=PERIOD_S)
        await net.start()
        await net.until(lambda: net.tally("updates") > 10)
        # As whoever leaves does: else the walk may leave with it.
        net.nodes["n7"].drain()
        await net.until(lambda: not net.look("n7")["messages"])
        keys = new_node_keys(
            net.folder / "m",
            node_id="m",
            address=f"127.0.0.1:{free_ports(1)[0]}",
            suite=Suite.X25519,
            periods=8,
        )
        roster, _ = deal_again(
            net.roster, net.deal, cards={"m": keys.member}, removed=["n7"], now=int(time.time()), days=1
        )
        assert not set(roster.rows) & set(net.roster.rows)
        for name in net.names[:7]:
            await net.nodes[name].follow(roster, net.keys[name])
        with pytest.raises(ConfigError, match="leaves n7 out"):
            await net.nodes["n7"].follow(roster, net.keys["n7"])
        await net.stop("n7")
        before = {name: net.tally("updates", name) for name in net.names[:7]}
        await net.until(lambda: net.tally("updates") > sum(before.values()) + 20)
        links = {name: net.nodes[name].links_up for name in net.names[:7]}
        await net.stop()
        return net, links

    net, links = asyncio.run(main())
    # Those next to the newcomer wait for it; nobody else has lost or won a neighbour but for the place of n7.
    for name, up in links.items():
        near = set(net.nodes[name].roster.neighbours(name))
        assert up == len(near - {"m"}), name
    assert [net.tally(name) for name in ("damaged", "created")] == [0, 0]


def test_a_member_that_is_no_neighbour_is_turned_away(network: Make) -> None:
    """It shows a certificate of the roster, and gets no greeting; a neighbour does."""

    async def main() -> None:
        net = network(8, overlay=3, rules=RULES, starts=False)
        await net.start("n0")
        near = net.nodes["n0"].roster.neighbours("n0")
        stranger = next(name for name in net.names if name not in {"n0", *near})
        there = net.parts["n0"].membership.roster

        class View:
            """What the caller would have to know: the address, which its own roster does not say."""

            roster, keys, parts = there, net.keys, net.parts

        with pytest.raises((ProtocolError, TransportError, CryptoError)):
            await greet(View, stranger, "n0")
        (await greet(View, near[0], "n0")).close()
        await net.stop()

    asyncio.run(main())


def test_a_node_writes_nothing_of_members_that_are_not_next_to_it(network: Make) -> None:
    """Neither names nor addresses nor keys of others, in state folder, log, metrics and health, once a run has ended.

    Their TLS keys may stand under an end, which everybody signs and everybody has.
    """

    async def main() -> Any:
        rules = RunRules(walk=Walk("non-backtracking"), updates=40, late_hops=1e9)
        net = network(10, overlay=3, recipients=3, rules=rules, prefix="member-number-")
        await net.start()
        await net.until(net.finished)
        said = {}
        for name in net.names:
            (port,) = free_ports(1)
            server = await watching(net.nodes[name], net.folder / f"state-{name}", net.parts[name].log)
            await server.start("127.0.0.1", port)
            said[name] = "".join(
                [await ask(port, f"GET /{page} HTTP/1.1\r\n\r\n".encode()) for page in ("metrics", "healthz")]
            )
            server.close()
        await net.stop()
        return net, said

    net, said = asyncio.run(main())
    for name in net.names:
        files = sorted(path for path in (net.folder / f"state-{name}").rglob("*") if path.is_file())
        assert {"spool.db"} <= {path.name for path in files}
        texts = [net.logs[name].getvalue().encode(), said[name].encode(), *map(Path.read_bytes, files)]
        near = {name, *net.nodes[name].roster.neighbours(name)}
        found = {
            other: [word for text in texts for word in words_of(net, other) if word in text] for other in net.names
        }
        assert {other for other, words in found.items() if words} <= near
        # A search that cannot find anything would pass as well.
        assert {other for other, words in found.items() if other.encode() in words} >= near - {name}


def words_of(net: Any, name: str) -> list[bytes]:
    """What would name a member: its name as a word of a log, a table or a file, its address, its recipient keys."""
    member = net.keys[name].member
    port = str(member.port).encode()
    return [name.encode(), f":{port.decode()}".encode(), *member.kem.values()]


def test_on_an_overlay_no_other_law_is_followed(network: Make) -> None:
    """Members know no distances."""
    net = network(6, overlay=3)
    with pytest.raises(ConfigError, match="far:2"):
        Law(rule=LawRule(3)).row(net.roster, "n0")


def test_keys_that_the_roster_lists_must_be_held(network: Make) -> None:
    """A node whose keys were made anew without its keeper does not start by the old row."""
    net = network(6, overlay=3)
    held = net.keys["n0"]
    lost = replace(held, kem={epoch: key for epoch, key in held.kem.items() if epoch != 1})
    check_own_entry(held, net.parts["n0"].membership.roster)
    with pytest.raises(ConfigError, match="epoch 1"):
        check_own_entry(lost, net.parts["n0"].membership.roster)
