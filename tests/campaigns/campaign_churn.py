"""The stage of the campaign in which rosters change while the network works: good ones, and those to be refused."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.campaigns.campaign_counts import QUICK, Counts, add, network_of, note, tally
from tests.campaigns.chaos import ChaosCluster
from veilwalk.node.members import Roster, changed_roster, edges_after, load_root_key, new_root_key

_DAYS = 30.0
_FOLLOWED_S = 60.0
_REFUSED_S = 6.0


def churn(counts: Counts, folder: Path, seed: int) -> None:
    """T11: renewals, an edge less and again, a member gone and back; forged, rolled back and expired rosters between.

    What a member that leaves had in its keeping leaves with it, so it goes while it has nothing.
    """
    where = folder / "churn"
    shutil.rmtree(where, ignore_errors=True)
    with ChaosCluster(where, **network_of(counts), updates=10**9, limits=QUICK) as cluster:
        cluster.start_all()
        cluster.run_until(lambda found: found.updates >= 1, timeout_s=60)
        changes = _Changes(cluster)
        first = changes.roster
        edge, leaver = first.edges[0], cluster.names[-1]
        as_expected = [
            changes.follow(lambda old: _changed(old, old.edges)),
            changes.refuse("forged"),
            changes.follow(lambda old: _changed(old, tuple(other for other in old.edges if other != edge))),
            changes.refuse("rolled back"),
            changes.follow(lambda old: _changed(old, edges_after(old, added=[edge]))),
            changes.refuse("expired"),
            changes.leave(leaver),
            changes.follow(lambda old: _changed(old, first.edges, back=[first.member(leaver).id], of=first)),
        ]
        wanted = cluster.findings(may_fork=True).tallies.get("updates", 0) + 20
        alive = cluster.run_until(lambda found: found.tallies.get("updates", 0) >= wanted, timeout_s=120)
        cluster.kill_all()
        found = cluster.findings()
    note(counts, found, f"churn, seed {seed}")
    tally(counts, found)
    add(counts, rosters=len(as_expected), as_expected=sum(as_expected), refusals=_refusals(cluster))
    if not alive or not all(as_expected):
        counts.setdefault("faults", []).append(f"churn, seed {seed}: alive {alive}, as expected {as_expected}")


class _Changes:
    """Puts rosters in place, and sees what the nodes make of them."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._path = cluster.folder / "roster.json"
        self._root = load_root_key(cluster.folder / "root")
        self.roster = Roster.read_signed(self._path, self._root.public_key())
        self._first = self.roster

    def follow(self, change: Callable[[Roster], Roster], *, but: str = "") -> bool:
        """Put the next roster in place; return whether everybody works under it before long."""
        self.roster = change(self.roster)
        self.roster.sign(self._path, self._root)
        names = [name for name in self._cluster.names if name != but]
        wanted = self.roster.version
        return self._cluster.run_until(
            lambda _: all(_held(self._cluster.folder / name) >= wanted for name in names), timeout_s=_FOLLOWED_S
        )

    def refuse(self, why: str) -> bool:
        """Put a bad roster in place for a while; return whether nobody works under it."""
        bad = replace(self.roster, version=self.roster.version + 1, prev_digest=self.roster.digest)
        root = self._root
        if why == "forged":
            root = new_root_key(self._cluster.folder / f"forger-{self.roster.version}")
        elif why == "rolled back":
            bad = self._first
        else:
            bad = replace(bad, created=_now() - 7200, expires=_now() - 3600)
        bad.sign(self._path, root)
        end = time.monotonic() + _REFUSED_S
        while time.monotonic() < end:
            self._cluster.tend()
            time.sleep(0.3)
        held = max(_held(self._cluster.folder / name) for name in self._cluster.names)
        self.roster.sign(self._path, self._root)
        return held == self.roster.version

    def leave(self, name: str) -> bool:
        """Let a member go while it has no message; return whether the others work on without it."""
        self._cluster.take_down(name, kill=False)
        while self._cluster.has_walk(name):
            self._cluster.bring_back(name)
            time.sleep(0.05)
            self._cluster.take_down(name, kill=False)
        left = self.follow(lambda old: _changed(old, edges_after(old, removed=[name]), removed=[name]), but=name)
        self._cluster.bring_back(name)
        return left


def _changed(
    old: Roster,
    edges: tuple[tuple[str, str], ...],
    *,
    removed: list[str] | None = None,
    back: list[str] | None = None,
    of: Roster | None = None,
) -> Roster:
    cards = {name: (of or old).member(name) for name in back or []}
    replaced = cards.keys() & set(old.ids)
    return changed_roster(old, edges, cards=cards, replaced=replaced, removed=removed or (), now=_now(), days=_DAYS)


def _now() -> int:
    return int(time.time())


def _held(folder: Path) -> int:
    """Return the version of the roster that a node says it works under."""
    return max([1, *(int(entry["version"]) for entry in _log(folder) if entry.get("event") == "roster")])


def _refusals(cluster: ChaosCluster) -> int:
    names = cluster.names
    return sum(entry.get("event") == "roster_refused" for name in names for entry in _log(cluster.folder / name))


def _log(folder: Path) -> list[dict[str, str]]:
    lines = (folder / "log.jsonl").read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
