"""The running node: its links and its scheduler, from start to stop."""

from __future__ import annotations

import asyncio
import itertools
import math
import ssl
import time
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from veilwalk.core.errors import ConfigError, ProtocolError, SpoolError, TransportError, VeilwalkError
from veilwalk.node.link import Hello, answer_spread, dialing_context, listening_context
from veilwalk.node.members import Manifest, NodeKeys, Roster
from veilwalk.node.peer._assemble import NodeParts, check_disk, check_own_entry
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._destination import Destination
from veilwalk.node.peer._links import InLinks, OutLink
from veilwalk.node.peer._membership import Membership
from veilwalk.node.peer._observe import Incidents
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.peer._scheduler import Scheduler
from veilwalk.node.peer._watches import NeighbourWeights, Visits, Watches, allowed_visits
from veilwalk.node.spool import Spool

_WATCH_S = 0.25
# Once a minute.
_TIDY_BEATS = 240


class Node(Incidents):
    """One member at work in one run."""

    def __init__(self, parts: NodeParts) -> None:
        super().__init__(parts.log)
        self._parts = parts
        self._membership = parts.membership
        self.id = parts.keys.id
        spool = Spool(parts.disk)
        if parts.note is not None:
            check_disk(spool, parts.note)
        self._limits = parts.limits.within(parts.rules.late_s)
        rules, step_s = parts.rules, max(parts.rules.hop_s, parts.rules.dwell_s)
        quota = self._limits.messages_of_one(self.manifest.message_bytes, rules.walks)
        spool.note_walks(rules.walks, rules.rounds)
        #: Notices that walks are lost.
        self.watches = Watches(
            rules.late_s, rules.starve_s, n_nodes=len(self.roster.ids), step_s=step_s, walks=rules.walks
        )
        #: Weighs neighbours by what they did.
        self.neighbours = NeighbourWeights(
            patience_s=rules.late_s / 2,
            link_s=self.roster.n_arcs * step_s / rules.walks,
            walks=rules.walks,
            pace=self.watches.pace,
        )
        custody = Custody(
            spool,
            opener=self._membership.opener(parts.keys),
            next_hop=self._next_hop(self.roster),
            draws=parts.draws,
            quota=quota,
            avoided=self.avoided,
            visits=Visits(self._allowed_visits(self.roster), pause_s=step_s, life_s=rules.life_s),
        )
        self._destination = Destination(parts, hop_s=lambda: rules.dwell_s or self.watches.pace.least_hop_s)
        self.scheduler = Scheduler(
            self, custody, self._destination, dwell_s=rules.dwell_s, step_s=step_s, meets=rules.rounds > 1
        )
        self._in_links = InLinks(host=self, scheduler=self.scheduler, limits=self._limits)
        self._out_links: dict[str, OutLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_over = False
        self._opened = self.roster.open_epochs(time.time())

    @property
    def roster(self) -> Roster:
        """The roster this node holds."""
        return self._membership.roster

    @property
    def manifest(self) -> Manifest:
        """The manifest this node works by."""
        return self._membership.manifest

    @property
    def answer_spread_s(self) -> float:
        """Where messages dwell, answers are given at a random moment within this: they must not say how busy it is."""
        return answer_spread(self._parts.rules.dwell_s)

    @property
    def links_up(self) -> int:
        """How many neighbours this node is connected to."""
        return sum(link.up for link in self._out_links.values())

    def describe_neighbours(self) -> dict[str, dict[str, Any]]:
        """Return of each neighbour if it is connected, and what it did."""
        links = sorted(self._out_links.items())
        return {peer: {"up": link.up} | self.neighbours.describe(peer) for peer, link in links}

    async def statistics(self) -> dict[str, dict[str, int]]:
        """Return what this node has counted until now, by the sources of :data:`.METRICS`."""
        tallies, held = await self.scheduler.store(self.scheduler.custody.statistics)
        gauges = {"in_custody": held, "links_up": self.links_up, "roster_version": self.roster.version}
        return {"tally": tallies, "event": dict(self.events), "gauge": gauges}

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; what is in custody then waits on disk."""
        me, neighbours = self.roster.member(self.id), self.roster.neighbours(self.id)
        try:
            host, port = self._parts.listen or (me.host, me.port)
            # Damaged messages go before any of them could be offered.
            await self.scheduler.recover()
            await self._in_links.start(host, port, self._listening_context())
            for peer in neighbours:
                self._dial(peer)
            self._start("training", self.scheduler.train())
            self._start("watch", self._watch())
            if self._parts.starts:
                await self.scheduler.create(first=True)
            held = {"roster": self.roster.version, "manifest": self.manifest.version}
            self._parts.log.event("started", node=self.id, neighbours=len(neighbours), **held)
            self._say_what_does_not_fit()
            await self._until(stop)
        finally:
            await self._shut_down()

    async def follow(self, roster: Roster, keys: NodeKeys) -> None:
        """Work under a new version of the roster from now on."""
        parts, before = self._parts, set(self._out_links)
        if self.id not in roster.ids:
            raise ConfigError(
                f"roster version {roster.version} leaves {self.id} out: this node works under the one before"
            )
        roster = roster.open_row(self.id, keys.roster_key)
        check_own_entry(keys, roster)
        law, membership = parts.law.row(roster, self.id), replace(self._membership, roster=roster)
        # Custody first: it takes what is sealed under either roster, so nothing that comes meanwhile is refused.
        await self._open_by(membership, keys)
        self._destination.law, self._destination.keys = law, keys
        self._parts = replace(parts, keys=keys)
        self._membership = membership
        neighbours = set(roster.neighbours(self.id))
        # Keys and addresses may have changed: every link is made anew.
        self._in_links.trust(self._listening_context())
        for peer in before:
            self._tasks.pop(f"link {peer}").cancel()
            del self._out_links[peer]
        for peer in neighbours:
            self._dial(peer)
        await self.scheduler.store(self.scheduler.custody.expire)
        for peer in before - neighbours:
            await self.scheduler.part_from(peer)
        parts.log.event("roster", version=roster.version, epoch=roster.epoch, neighbours=len(neighbours))
        self._say_what_does_not_fit()

    async def _open_by(self, membership: Membership, keys: NodeKeys) -> None:
        """Open and route messages as a roster asks now."""
        roster, epochs = membership.roster, membership.roster.open_epochs(time.time())
        custody_follow = partial(
            self.scheduler.custody.follow,
            opener=membership.opener(keys),
            next_hop=self._next_hop(roster),
            allowed_visits=self._allowed_visits(roster),
        )
        await self.scheduler.store(custody_follow)
        self._opened = epochs

    def drain(self) -> None:
        """Take nothing new from now on, and make no walk; what is in custody is handed on as ever."""
        self.scheduler.draining = True

    def _say_what_does_not_fit(self) -> None:
        """Say where manifest and law were made for another network than the roster's: the keeper may make new ones."""
        left_out = self._parts.law.left_out(self.roster)
        if left_out:
            self._parts.log.event("law_lacks_members", names=",".join(left_out)[:200], count=len(left_out))
        if self.manifest.graph_digest != self.roster.graph_digest:
            # No fault: a law by rule follows the roster by itself, and so it is after every change of members.
            why = "law by file and waiting times are those of earlier edges until the next manifest"
            self._parts.log.event("manifest_of_earlier_edges", roster=self.roster.version, why=why)

    def hello(self) -> Hello:
        """Return what this node says first on a link."""
        return self._membership.hello(self.scheduler.custody.spool.incarnation)

    def check_hello(self, hello: Hello) -> int:
        """Return the protocol to speak; refuse another run or roster, and everybody once the roster's time is over."""
        try:
            self._membership.check_still_valid()
        except ProtocolError as error:
            # Our own fault: the peer need not be told what does not fit, for all of it may.
            raise TransportError(str(error)) from None
        return self._membership.check_hello(hello)

    def neighbour_of(self, spki: bytes) -> str | None:
        """Return which neighbour shows that TLS key, if any."""
        peer = self.roster.peer_of_certificate(spki)
        return peer if peer in self.roster.neighbours(self.id) else None

    def silent(self) -> frozenset[str]:
        """Return the neighbours that cannot be reached now."""
        return frozenset(peer for peer, link in self._out_links.items() if not link.up)

    def avoided(self, weighs: bool = True) -> frozenset[str]:  # noqa: FBT001, FBT002  the storage thread calls it
        """Return the neighbours that get no message now if another can: not there; if it ``weighs``, bad ones too."""
        links = tuple(self._out_links.items())  # asked by the storage thread
        avoided = frozenset(peer for peer, link in links if link.avoided)
        if len(avoided) == len(links):
            # One that took nothing lately is better than one that is not there.
            return frozenset(peer for peer, link in links if link.gone)
        others = [peer for peer, _ in links if peer not in avoided]
        return avoided | self.neighbours.select_avoided(others if weighs else ())

    def _next_hop(self, roster: Roster) -> NextHop:
        rules = self._parts.rules
        return NextHop(walk=rules.walk, neighbours=roster.neighbours(self.id))

    def _allowed_visits(self, roster: Roster) -> int:
        return allowed_visits(len(roster.neighbours(self.id)), self._parts.rules.visits_per_link)

    def _listening_context(self) -> ssl.SSLContext:
        neighbours = self.roster.neighbours(self.id)
        return listening_context(self._parts.keys, self.roster.trust_anchors(neighbours))

    def _dial(self, peer: str) -> None:
        parts = self._parts
        context = dialing_context(parts.keys, self.roster.trust_anchors([peer]))
        link = OutLink(self.roster.member(peer), context, host=self, scheduler=self.scheduler, limits=self._limits)
        self._out_links[peer] = link
        self._start(f"link {peer}", link.run())

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        if self._is_over:
            # As of a roster that was being followed when the order to stop came.
            work.close()
            return
        self._tasks[name] = asyncio.get_running_loop().create_task(work, name=name)

    def wake(self, peers: Iterable[str]) -> None:
        """Tell links that there is something to send."""
        for peer in peers:
            if peer in self._out_links:
                self._out_links[peer].wake()

    async def _watch(self) -> None:
        """Make a walk when none has come by for too long, and keep no history, on a beat that nothing changes."""
        clock = asyncio.get_running_loop().time
        for beat in itertools.count(1):
            before = clock()
            await asyncio.sleep(_WATCH_S)
            # A node that stood still, or was cut off, has not been waiting: nothing could have come by.
            passed = clock() - before
            still_s = passed - _WATCH_S if self.links_up else math.inf
            self.watches.exclude_downtime(still_s)
            self.neighbours.exclude_downtime(still_s)
            try:
                if self._opened != self.roster.open_epochs(time.time()):
                    await self._open_by(self._membership, self._parts.keys)
                    await self.scheduler.store(self.scheduler.custody.expire)
                await self.scheduler.store(self.scheduler.custody.visits.exclude_downtime, min(still_s, passed))
                if beat % _TIDY_BEATS == 0:
                    await self.scheduler.store(self.scheduler.custody.spool.tidy)
            except SpoolError as error:
                self.trouble(str(error))
            try:
                self._membership.check_still_valid()
            except ProtocolError:
                # Messages in custody wait; the links refuse everybody until a new roster, or the clock, fits.
                self._in_links.hang_up()
                for link in self._out_links.values():
                    link.hang_up()
                continue
            try:
                if not self.scheduler.draining:
                    await self.scheduler.create_if_late()
            except VeilwalkError as error:
                self.trouble(str(error))

    async def _until(self, stop: asyncio.Event) -> None:
        """Wait for the order to stop; a part that ends before has failed, and takes the node with it."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stopping.done():
                parts = list(self._tasks.values())
                done, _ = await asyncio.wait([stopping, *parts], timeout=1, return_when=asyncio.FIRST_COMPLETED)
                for task in done - {stopping}:
                    if not task.cancelled():
                        await task
                        # No peer can bring this about: it is our own fault, and ends with exit code 70.
                        raise RuntimeError(f"{task.get_name()} ended by itself")
        finally:
            stopping.cancel()

    async def _shut_down(self) -> None:
        self._is_over = True
        await self._in_links.stop()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self.scheduler.close()
        self._parts.log.event("stopped", node=self.id)
