"""Members that are played: they greet, take whatever they are given, and count it; attackers on all sides of a node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from veilwalk.node import Limits, load_config
from veilwalk.node.link import Connection, Hello, Offer, dial, dialing_context, listening_context
from veilwalk.node.members import load_node_keys
from veilwalk.node.peer import MembershipFiles
from veilwalk.node.peer._links import InLinks
from veilwalk.node.peer._watches import NeighbourWeights
from veilwalk.node.spool import Verdict

LIMITS = Limits(retry_s=0.2, connect_s=2.0, answer_s=10.0)


class Played:
    """A member that is played here: it greets, and takes whatever it is given."""

    def __init__(self, folder: Path, name: str, came: Counter[bytes]) -> None:
        config = load_config(folder / name / "node.toml")
        self.membership = MembershipFiles(config).load()
        self.roster = self.membership.roster
        self.keys = load_node_keys(config.keys)
        self.context = self.roster.seal_context(self.membership.manifest)
        self.manifest, self.id, self.answer_spread_s = self.membership.manifest, self.keys.id, 0.0
        self._links = InLinks(host=self, scheduler=_Sink(came), limits=LIMITS)  # type: ignore[arg-type]

    async def listen(self) -> None:
        """Take messages from now on."""
        me = self.roster.member(self.keys.id)
        anchors = self.roster.trust_anchors(self.roster.neighbours(self.keys.id))
        await self._links.start(me.host, me.port, listening_context(self.keys, anchors))

    async def stop(self) -> None:
        """Take no more."""
        await self._links.stop()

    async def dial(self, peer: str) -> Connection:
        """Return a connection on which messages can be offered."""
        connection = await self.shake_hands(peer)
        await connection.send(self.hello())
        await connection.receive(5)
        return connection

    async def shake_hands(self, peer: str) -> Connection:
        """Return a connection on which nothing was said yet."""
        member, anchors = self.roster.member(peer), self.roster.trust_anchors([peer])
        context = dialing_context(self.keys, anchors)
        return await dial(member, context, message_bytes=self.manifest.message_bytes, timeout_s=5)

    def hello(self) -> Hello:
        """Return what this member says first."""
        return self.membership.hello(bytes(8))

    def check_hello(self, hello: Hello) -> int:
        """Take anybody the roster knows."""
        return hello.highest

    def neighbour_of(self, spki: bytes) -> str | None:
        """Return who shows that key."""
        return self.roster.peer_of_certificate(spki)

    def turned_away(self, why: str, /, *, peer: str = "") -> None:
        """Turn away without a word."""

    def trouble(self, why: str) -> None:
        """Have no disk that could fail."""

    def failed(self, error: Exception) -> None:
        """Fail aloud: a broken attacker proves nothing."""
        raise error


class _Sink:
    """A scheduler that keeps nothing but how often which bytes came."""

    def __init__(self, came: Counter[bytes]) -> None:
        self._came = came
        self.neighbours = NeighbourWeights()

    async def greet(self, *_: Any) -> None:
        """Note nothing."""

    async def hold(self, _: str, offer: Offer, *__: Any) -> Verdict:
        """Hold nothing."""
        self._came[offer.digest] += 1
        return Verdict.HELD

    async def take(self, *_: Any) -> Verdict:
        """Take nothing."""
        return Verdict.TAKEN
