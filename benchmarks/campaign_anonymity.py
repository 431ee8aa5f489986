"""T8: what colluding members of a real network can tell, beside what exact chains predict.

The attacker gets what its own nodes noted: which ciphertext came first to one of them, and from whom. Its posterior is
worked out here, from the absorbing chain of the walk, without the auditor's code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilwalk.core.arrays import FloatArray
from veilwalk.graphs import Graph


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


def attack(
    folder: Path, names: Sequence[str], graph: Graph, law: FloatArray, colluders: Sequence[int]
) -> AnonymityFindings:
    """Attack the updates that a colluder received and a stranger made."""
    first, source, destination = _logs(folder, names, set(colluders))
    prior = _stationary(law)
    arrivals = _first_arrivals(graph, set(colluders))
    hits, predicted, variance, blind, updates = 0, 0.0, 0.0, 0.0, 0
    for digest, goal in destination.items():
        maker = source.get(digest)
        if goal not in colluders or maker is None or maker in colluders:
            continue
        chosen = prior * law[:, goal]
        chosen[list(colluders)] = 0.0
        posterior = chosen * arrivals[first[digest]]
        posterior /= posterior.sum()
        guess, top = int(posterior.argmax()), float(posterior.max())
        hits += guess == maker
        predicted += top
        variance += top * (1 - top)
        blind += float(chosen.max() / chosen.sum())
        updates += 1
    return AnonymityFindings(
        updates=updates, hits=hits, predicted=predicted, spread=float(np.sqrt(variance)), blind=blind
    )


def _logs(
    folder: Path, names: Sequence[str], colluders: set[int]
) -> tuple[dict[str, tuple[int, int]], dict[str, int], dict[str, int]]:
    """What the colluders saw first, who made each ciphertext, and for whom it was."""
    sightings: dict[str, tuple[int, int, int]] = {}
    source: dict[str, int] = {}
    destination: dict[str, int] = {}
    for index, name in enumerate(names):
        for digest, peer, when, for_us in _lines(folder / name / "seen.log"):
            if int(for_us):
                destination[digest] = index
            if index in colluders:
                seen = (int(when), index, names.index(peer))
                sightings[digest] = min(sightings.get(digest, seen), seen)
        for digest, _ in _lines(folder / name / "made.log"):
            source[digest] = index
    return {digest: (node, came_from) for digest, (_, node, came_from) in sightings.items()}, source, destination


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _stationary(law: FloatArray) -> FloatArray:
    n = len(law)
    system = np.vstack((law.T - np.eye(n), np.ones(n)))
    found: FloatArray = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return found


def _first_arrivals(graph: Graph, colluders: set[int]) -> dict[tuple[int, int], FloatArray]:
    """For each edge into a colluder the chance, from every node, that a walk first meets colluders along it."""
    n = graph.n_nodes
    step = np.zeros((n, n))
    for node in range(n):
        step[node, graph.neighbours(node)] = 1 / graph.degrees[node]
    others = [node for node in range(n) if node not in colluders]
    green = np.linalg.inv(np.eye(len(others)) - step[np.ix_(others, others)])
    found = {}
    for row, node in enumerate(others):
        for peer in graph.neighbours(node):
            if int(peer) in colluders:
                chance = np.zeros(n)
                chance[others] = green[:, row] * step[node, peer]
                found[int(peer), node] = chance
    # A colluder may also get it from another colluder, which then has seen it before: never first, unless it made it.
    return found


def rank_auc(folder: Path, names: Sequence[str]) -> tuple[float, int, int]:
    """How well the time a message stays tells training from relaying: area under the curve, and how many of each."""
    gaps: dict[int, list[float]] = {0: [], 1: []}
    for name in names:
        for gap, trained in _lines(folder / name / "gaps.log"):
            gaps[int(trained)].append(float(gap))
    relayed, trained_gaps = np.array(gaps[0]), np.array(gaps[1])
    if not len(relayed) or not len(trained_gaps):
        return float("nan"), len(trained_gaps), len(relayed)
    wins = (trained_gaps[:, None] > relayed).mean() + (trained_gaps[:, None] == relayed).mean() / 2
    return float(wins), len(trained_gaps), len(relayed)
