"""T8: what colluding members of a real network can tell, beside what exact chains predict.

The attacker gets what its own nodes noted: every sighting of a ciphertext by one of them, from whom and when. Two
estimators: *first sight* uses where the newest ciphertext was first seen; *bridge* also uses every sighting of the one
before, and a perfect clock that counts the hops between. Both posteriors are worked out here, from absorbing chains of
the walk, without the auditor's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from tests.campaigns.campaign_slots import front_bytes
from veilwalk.core.arrays import FloatArray
from veilwalk.graphs import Graph
from veilwalk.node.sealing import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class AnonymityFindings:
    """How often colluders named the source, and how often they should have."""

    updates: int
    hits: int
    predicted: float
    spread: float
    blind: float

    @property
    def z(self) -> float:
        """Standard deviations above the prediction."""
        return (self.hits - self.predicted) / max(self.spread, 1e-12)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A colluder got a ciphertext from a neighbour at that hop of all."""

    clock: int
    node: int
    came_from: int


@dataclass(slots=True)
class Sealed:
    """A ciphertext: who made it, from which, for whom, and where colluders saw it."""

    maker: int | None = None
    goal: int | None = None
    before: str = ""
    sightings: list[Sighting] = field(default_factory=list)


def attack(
    folder: Path, names: Sequence[str], graph: Graph, law: FloatArray, colluders: Sequence[int], *, bridge: bool
) -> AnonymityFindings:
    """Attack the updates that a colluder received and a stranger made."""
    sealed = read_logs(folder, names, colluders)
    attacker = Attacker(graph, law, colluders)
    hits, predicted, variance, blind, updates = 0, 0.0, 0.0, 0.0, 0
    for new in sealed.values():
        old = sealed.get(new.before)
        if new.goal is None or new.goal not in colluders or new.maker is None or new.maker in colluders:
            continue
        if not bridge:
            likely = attacker.first_sight(new)
        elif old is not None and old.sightings and old.maker is not None and old.maker not in colluders:
            likely = attacker.bridge(old, new)
        else:
            continue
        posterior = likely / likely.sum()
        top = float(posterior.max())
        hits += int(posterior.argmax()) == new.maker
        predicted += top
        variance += top * (1 - top)
        blind += attacker.blind(new.goal)
        updates += 1
    return AnonymityFindings(
        updates=updates, hits=hits, predicted=predicted, spread=float(np.sqrt(variance)), blind=blind
    )


class Attacker:
    """Colluders who know the network, the law and their own sightings."""

    def __init__(self, graph: Graph, law: FloatArray, colluders: Sequence[int]) -> None:
        self._n = graph.n_nodes
        self._law = law
        self._colluders = list(colluders)
        self._others = [node for node in range(self._n) if node not in set(colluders)]
        self._step = np.zeros((self._n, self._n))
        for node in range(self._n):
            self._step[node, graph.neighbours(node)] = 1 / graph.degrees[node]
        self._prior = _stationary(law)
        self._hidden = self._avoiding(self._colluders)

    def blind(self, goal: int) -> float:
        """Return the chance of naming the source of what came to ``goal`` by the law alone."""
        chosen = self._masked(self._prior * self._law[:, goal])
        return float(chosen.max() / chosen.sum())

    def first_sight(self, new: Sealed) -> FloatArray:
        """Return how likely every source is, from the edge along which colluders first got the ciphertext."""
        seen = new.sightings[0]
        green = np.linalg.inv(np.eye(self._n) - self._hidden)
        return self._masked(self._prior * self._law[:, new.goal] * green[:, seen.came_from])

    def bridge(self, old: Sealed, new: Sealed) -> FloatArray:
        """Return the same from all sightings of the ciphertext before, and the hops between old and new."""
        found = np.zeros(self._n)
        for source in self._others:
            found[source] = self._law[source, new.goal] * self._old(old, source) * self._gap(old, new, source)
        return found

    def _old(self, old: Sealed, source: int) -> float:
        """Chance that the old ciphertext was for ``source``, and was seen where it was without coming there."""
        walk = self._avoiding([*self._colluders, source])
        first = old.sightings[0]
        start = self._masked(self._prior * self._law[:, source])
        chance = float(start @ np.linalg.inv(np.eye(self._n) - walk)[:, first.came_from])
        for seen, then in zip(old.sightings, old.sightings[1:], strict=False):
            chance *= self._ways(walk, source, seen.node, then.clock - seen.clock, then.came_from)
        return chance

    def _gap(self, old: Sealed, new: Sealed, source: int) -> float:
        """Chance that the old one went from its last sighting to ``source`` and the new one from there to its first."""
        last, first = old.sightings[-1], new.sightings[0]
        hops = first.clock - last.clock
        walk = self._avoiding([*self._colluders, source])
        coming = np.zeros(hops)
        at = np.eye(self._n)[last.node]
        for taken in range(1, hops):
            coming[taken] = (at @ self._step)[source]
            at = at @ (self._step if taken == 1 else walk)
            at[[*self._colluders, source]] = 0.0
        leaving = np.zeros(hops)
        at = np.eye(self._n)[source]
        for taken in range(1, hops):
            leaving[taken] = at[first.came_from]
            at = at @ self._hidden
        return float(coming[1:] @ leaving[:0:-1])

    def _ways(self, walk: FloatArray, source: int, start: int, hops: int, end: int) -> float:
        """Chance to be at ``end`` one hop before ``hops`` are over, without meeting ``source`` or being seen."""
        if hops == 1:
            return float(start == end)
        at = self._step[start].copy()
        at[source] = 0.0
        for _ in range(hops - 2):
            at = at @ walk
        return float(at[end])

    def _avoiding(self, taboo: Sequence[int]) -> FloatArray:
        walk = self._step.copy()
        walk[taboo, :] = 0.0
        walk[:, taboo] = 0.0
        return walk

    def _masked(self, chances: FloatArray) -> FloatArray:
        chances[self._colluders] = 0.0
        return chances


def read_logs(folder: Path, names: Sequence[str], colluders: Sequence[int]) -> dict[str, Sealed]:
    """Return every ciphertext of a run, with the sightings of these colluders; the rest is for the judge."""
    events: list[tuple[int, int, str, int, bool]] = []
    for index, name in enumerate(names):
        for digest, peer, when, opens in _lines(folder / name / "seen.log"):
            events.append((int(when), index, digest, names.index(peer), bool(int(opens))))
        for digest, when, _ in _lines(folder / name / "made.log"):
            events.append((int(when), index, digest, -1, False))
    sealed: dict[str, Sealed] = {}
    opened: dict[int, str] = {}
    clock = 0
    for _, node, digest, came_from, for_us in sorted(events):
        about = sealed.setdefault(digest, Sealed())
        if came_from < 0:
            about.maker, about.before = node, opened.get(node, "")
            continue
        clock += 1
        if node in colluders:
            about.sightings.append(Sighting(clock, node, came_from))
        if for_us:
            about.goal, opened[node] = node, digest
    return sealed


def frames(folder: Path, names: Sequence[str], *, recipients: int = 1) -> tuple[set[int], float]:
    """Return the lengths of all messages made, and the p-value of their ciphertext bytes being uniform.

    Not of the slots: 10-bit values of ML-KEM are not quite uniform, whomever they are for.
    """
    front = front_bytes(Suite.HYBRID, recipients)
    lengths: set[int] = set()
    counts = np.zeros(256)
    for name in names:
        sizes = [int(size) for _, _, size in _lines(folder / name / "made.log")]
        lengths.update(sizes)
        data = (folder / name / "made.bin").read_bytes() if sizes else b""
        at = 0
        for size in sizes:
            counts += np.bincount(np.frombuffer(data[at + front : at + size], dtype=np.uint8), minlength=256)
            at += size
    if not lengths:
        return lengths, 1.0
    expected = counts.sum() / 256
    return lengths, float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


def strangers(folder: Path, names: Sequence[str]) -> int:
    """Return how many of the ciphertexts that nodes saw nobody had made: messages must not change on their way."""
    seen, made, created = (
        {line[0] for name in names for line in _lines(folder / name / file)}
        for file in ("seen.log", "made.log", "created.log")
    )
    return len(seen - made - created)


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _stationary(law: FloatArray) -> FloatArray:
    n = len(law)
    system = np.vstack((law.T - np.eye(n), np.ones(n)))
    found: FloatArray = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return found


def rank_auc(folders: Sequence[Path], names: Sequence[str]) -> tuple[float, float, int]:
    """How well the time a message stays tells training from relaying: AUC, its standard error, and how many trained."""
    gaps: dict[int, list[float]] = {0: [], 1: []}
    for folder in folders:
        for name in names:
            for gap, trained in _lines(folder / name / "gaps.log"):
                gaps[int(trained)].append(float(gap))
    return *auc_of(gaps[1], gaps[0]), len(gaps[1])


def auc_of(trained: Sequence[float], relayed: Sequence[float]) -> tuple[float, float]:
    """Return how likely a number of the first kind is above one of the second, and the standard error if it were even.

    Equal numbers count half: 0.5 tells nothing, and what is below tells as much as what is as far above.
    """
    n, m = len(trained), len(relayed)
    if not n or not m:
        return float("nan"), float("nan")
    ordered = np.sort(relayed)
    below, upto = np.searchsorted(ordered, trained, "left"), np.searchsorted(ordered, trained, "right")
    return float((below + upto).mean() / (2 * m)), float(np.sqrt((n + m + 1) / (12 * n * m)))
