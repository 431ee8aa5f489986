"""A message that is offered on while the disk is busy with it: given only when it is written, and never in vain."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.campaigns.forgetful_disk import ForgetfulDisk, PowerCutError

from veilwalk.core.errors import SpoolError
from veilwalk.core.walk import SIMPLE
from veilwalk.node.link._outlink import OutLink
from veilwalk.node.members._rules import RunRules
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._draws import OsDraws
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._spool import Spool

BODY, OTHER = b"for somebody else", b"for another"


class Opener:
    """Opens nothing, and counts how often it tried."""

    def __init__(self) -> None:
        self.tried = 0

    def is_current(self, message: Any) -> bool:
        """Every message is."""
        del message
        return True

    def open(self, message: Any) -> None:
        """Open nothing."""
        del message
        self.tried += 1


class Links:
    """Offers all it is asked to, and may look at the disk then."""

    def __init__(self) -> None:
        self.offered: list[tuple[str, int, bytes]] = []
        self.withdrawn: list[str] = []
        self.then: Callable[[], None] = lambda: None

    def offer(self, peer: str, seq: int, digest: bytes, body: Any) -> bool:
        """Note it."""
        assert digest == hashlib.sha256(body).digest()
        self.offered.append((peer, seq, bytes(body)))
        self.then()
        return True

    def withdraw(self, peer: str) -> None:
        """Note it."""
        self.withdrawn.append(peer)


def open_custody(folder: Path, links: Links | None = None, *, dwells: bool = False, inline_bytes: int = 100) -> Custody:
    return Custody(
        Spool(FolderDisk(folder), inline_bytes=inline_bytes),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=("b", "c")),
        draws=OsDraws(),
        quota=4,
        dwells=dwells,
        offers=links,
    )


def take(custody: Custody, seq: int, body: bytes) -> Any:
    custody.hold("a", seq, hashlib.sha256(body).digest(), body)
    return custody.take("a", seq)


def test_it_is_offered_before_it_is_written_and_under_that_number(tmp_path: Path) -> None:
    """Its bytes come with it, so that the disk is not asked for them."""
    links = Links()
    custody = open_custody(tmp_path, links)
    seen: list[bool] = []
    links.then = lambda: seen.append(custody.spool._disk.database.in_transaction)
    taken = take(custody, 1, BODY)
    assert links.offered == [(taken.row.peer, taken.row.seq, BODY)]
    assert (seen, taken.body, links.withdrawn) == ([True], BODY, [])
    custody.spool.close()


@pytest.mark.parametrize("why", ["dwells", "long"])
def test_where_messages_dwell_or_are_long_it_is_not(tmp_path: Path, why: str) -> None:
    links = Links()
    custody = open_custody(tmp_path, links, dwells=why == "dwells", inline_bytes=0 if why == "long" else 100)
    assert take(custody, 1, BODY).body is None
    assert links.offered == []
    custody.spool.close()


def test_what_could_not_be_written_is_withdrawn_and_its_number_is_another_messages(tmp_path: Path) -> None:
    """Which is not taken for given because the first was to be."""
    links = Links()
    custody = open_custody(tmp_path, links)

    def fail() -> None:
        raise SpoolError("storage: no space left")

    links.then = fail
    with pytest.raises(SpoolError):
        take(custody, 1, BODY)
    # The link broke in the moment it was offered: as good as never.
    assert links.withdrawn == []
    links.then = lambda: None
    custody._make_room = lambda *_: fail()  # type: ignore[method-assign]
    with pytest.raises(SpoolError):
        take(custody, 1, BODY)
    assert links.withdrawn == [links.offered[-1][0]]
    del custody._make_room
    (peer, number, _) = links.offered[-1]
    custody.next_hop = NextHop(walk=SIMPLE, neighbours=(peer,))
    row = take(custody, 1, OTHER).row
    assert (row.peer, row.seq) == (peer, number)
    assert custody.outgoing(peer).given is False  # type: ignore[union-attr]
    custody.spool.close()


def test_until_it_is_said_it_may_go_another_way_and_then_no_more(tmp_path: Path) -> None:
    """Though it is noted as given with its number, for a process that dies in between."""
    custody = open_custody(tmp_path, Links())
    row = take(custody, 1, BODY).row
    assert custody.spool.tables.is_given(row.peer, row.seq)
    assert custody.reroute(row.peer, avoid=frozenset())
    assert not custody.give(row.peer, row.seq)
    row = take(custody, 2, OTHER).row
    assert custody.give(row.peer, row.seq)
    outgoing = custody.outgoing(row.peer)
    while outgoing is not None and outgoing.row is None:
        custody.delivered(row.peer, outgoing.seq)
        outgoing = custody.outgoing(row.peer)
    moved = custody.reroute(row.peer, avoid=frozenset())
    assert custody.spool.tables.pinned(row.peer, row.seq) is not None
    assert row.peer not in moved
    custody.spool.close()


def test_a_process_offers_before_it_gives_what_an_earlier_one_has_noted(tmp_path: Path) -> None:
    """The neighbour may hold another message of that number, offered and never written: it must not take that."""
    custody = open_custody(tmp_path, Links())
    row = take(custody, 1, BODY).row
    custody.spool.close()
    again = open_custody(tmp_path, Links())
    outgoing = again.outgoing(row.peer)
    assert outgoing is not None
    assert (outgoing.seq, outgoing.body, outgoing.given) == (row.seq, BODY, False)
    # It may have been said, all the same.
    assert again.reroute(row.peer, avoid=frozenset()) == set()
    assert again.give(row.peer, row.seq)
    assert again.outgoing(row.peer).given  # type: ignore[union-attr]
    again.spool.close()


@pytest.mark.parametrize("dwells", [False, True])
def test_what_is_held_is_tried_before_it_is_given_only_where_nothing_dwells(tmp_path: Path, dwells: bool) -> None:
    """Somebody who offers and never gives would learn from the time whether it opens; and it is tried once."""
    custody = open_custody(tmp_path, dwells=dwells)
    opener = cast("Opener", custody.opener)
    custody.hold("a", 1, hashlib.sha256(BODY).digest(), BODY)
    custody.look_at_held("a")
    assert opener.tried == (not dwells)
    custody.take("a", 1)
    assert opener.tried == 1
    custody.spool.close()


def test_with_other_keys_it_is_tried_again(tmp_path: Path) -> None:
    custody = open_custody(tmp_path)
    custody.hold("a", 1, hashlib.sha256(BODY).digest(), BODY)
    custody.look_at_held("a")
    fresh = Opener()
    custody.follow(opener=cast("Any", fresh), next_hop=custody.next_hop, allowed_visits=1)
    custody.take("a", 1)
    assert fresh.tried == 1
    custody.spool.close()


def test_nodes_offer_early_and_the_walk_is_whole(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over real connections, as often as the disk is quick; and no link breaks for it."""
    offered: list[bool] = []
    original = OutLink.offer

    def offer(self: Any, *values: Any) -> bool:
        offered.append(original(self, *values))
        return offered[-1]

    monkeypatch.setattr(OutLink, "offer", offer)

    async def main() -> None:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=10**6, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.tally("hops") >= 30)
        await net.stop()
        assert any(offered)
        assert all('"link_fault"' not in log.getvalue() for log in net.logs.values())

    asyncio.run(main())


def test_a_disk_that_fails_at_the_commit_withdraws_what_was_offered() -> None:
    """The commit itself: the last moment at which it can come to nothing."""
    links = Links()
    disk = ForgetfulDisk(random.Random(1))  # noqa: S311  a simulation
    custody = Custody(
        Spool(disk, inline_bytes=100),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=("b", "c")),
        draws=OsDraws(),
        quota=4,
        dwells=False,
        offers=links,
    )
    custody.hold("a", 1, hashlib.sha256(BODY).digest(), BODY)
    links.then = lambda: setattr(disk, "steps_left", 0)
    with pytest.raises(PowerCutError):
        custody.take("a", 1)
    assert links.withdrawn == [links.offered[0][0]]
