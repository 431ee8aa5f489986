"""Smoothing over whole segments, with and without shared keys, against all stories of a small network."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from tests.helpers.known_runs import know
from tests.helpers.token_stories import GRAPH, LAW, N_NODES, members, moves, sets

from veilwalk.audit import AuditSettings
from veilwalk.audit._filter import MemberLog, SampledFilter, record_segments
from veilwalk.audit._play import play_updates
from veilwalk.core.arrays import FloatArray
from veilwalk.core.walk import Walk
from veilwalk.design import DestinationLaw, Scheme, choose_scheme

SETTINGS = AuditSettings(updates=20_000, replicas=8, seed=5)
FAR = choose_scheme(GRAPH, "far:2").law
MEMBER = members(2, 8)
HOPS, SEGMENTS, PATHS = 12, 10, 6_000
# Where it came from, where it is, whom its ciphertext is for, all makers, and which of their ciphertexts were held.
History = tuple[int, int, frozenset[int], tuple[int, ...], tuple[bool, ...]]


Stories = dict[History, float]


@dataclass(frozen=True)
class Oracle:
    """All stories of a segment: every path, every set, every opening, one by one."""

    kind: str
    law: DestinationLaw
    recipients: int
    shares_keys: bool

    def _walk(self, stories: Stories, goes_to: int | None) -> Stories:
        """Let every story go on by one hop, to a known node if a member hands over."""
        after: Stories = defaultdict(float)
        for (before, here, goal, makers, held), weight in stories.items():
            for there, share in moves(self.kind, before, here).items():
                if goes_to in (None, there):
                    after[here, there, goal, makers, held] += weight * share
        return after

    def _open(self, stories: Stories) -> Stories:
        """Open what has come to others, and seal it anew."""
        after: Stories = defaultdict(float)
        for (before, here, goal, makers, held), weight in stories.items():
            if MEMBER[here]:
                continue
            if here not in goal:
                after[before, here, goal, makers, held] += weight
                continue
            for chosen, share in sets(self.law, here, self.recipients).items():
                after[before, here, chosen, (*makers, here), (*held, False)] += weight * share
        return after

    def _see(self, stories: Stories, log: MemberLog, row: int) -> Stories:
        """Let a member hold it: stories that do not fit what it saw end."""
        after: Stories = defaultdict(float)
        ends, number = row == len(log.clock) - 1, log.row[row] - log.row[0] - 1
        for (before, here, goal, makers, held), weight in stories.items():
            is_new = not held[-1] and len(makers) > 1
            fits = (here, before) == (log.node[row], log.came_from[row]) and (here in goal) == ends
            if self.shares_keys:
                mine = {node for node in goal if MEMBER[node]}
                fits &= mine == {int(node) for node in log.shared[row] if node >= 0}
                fits &= not mine or len(makers) - 1 == number
            if fits and is_new == bool(log.new[row]):
                after[before, here, goal, makers, (*held[:-1], True)] += weight
        return after

    def makers(self, log: MemberLog, *, forward_only: bool = False) -> FloatArray:
        """Return the makers of all updates; ``forward_only``: a mutant, by what was known when each was first held."""
        start, own = int(log.node[0]), frozenset(log.recipients.tolist())
        stories: Stories = {(int(log.came_from[0]), start, own, (start,), (False,)): 1.0}
        at = {int(clock): row for row, clock in enumerate(log.clock)}
        out, number = np.zeros((log.updates, N_NODES)), log.row - log.row[0] - 2
        for clock in range(int(log.clock[0]), int(log.clock[-1])):
            stories = self._walk(stories, int(log.went_to[at[clock]]) if clock in at else None)
            row = at.get(clock + 1)
            stories = self._open(stories) if row is None else self._see(stories, log, row)
            if forward_only and row is not None and log.new[row]:
                for (*_, makers, _), weight in stories.items():
                    out[number[row], makers[-1]] += weight
        numbers = number[log.new]
        for (*_, makers, held), weight in stories.items():
            if len(makers) - 1 == log.updates:
                told = [maker for maker, was_held in zip(makers[1:], held[1:], strict=True) if was_held]
                for place, maker in zip(numbers, told, strict=True):
                    out[place, maker] += 0.0 if forward_only else weight
                for place, (maker, was_held) in enumerate(zip(makers[1:], held[1:], strict=True)):
                    out[place, maker] += 0.0 if was_held or place in numbers else weight
        return np.asarray(out / out.sum(axis=1, keepdims=True))


def watch(scheme: Scheme, *, shares_keys: bool) -> list[MemberLog]:
    """Return short segments with updates that nobody of them held."""
    run = play_updates(scheme, SETTINGS)
    lanes, clock = run.truth.lane, run.sightings.clock
    rows = np.flatnonzero(MEMBER[run.sightings.destination])
    pairs = [
        (first, last)
        for first, last in pairwise(rows)
        if lanes[first] == lanes[last] and last > first + 2 and clock[last] - clock[first] <= HOPS
    ]
    logs = record_segments(know(scheme, SETTINGS, run), np.array(pairs), MEMBER, shares_keys=shares_keys)
    return [log for log in logs if log.updates > log.new.sum() and len(log.clock) > 2][:SEGMENTS]


@pytest.mark.parametrize("shares_keys", [False, True])
@pytest.mark.parametrize(
    ("kind", "law", "recipients"),
    [("simple", LAW, 1), ("non-backtracking", FAR, 1), ("simple", FAR, 2), ("non-backtracking", FAR, 3)],
)
def test_smoothing_gives_what_all_stories_give(
    kind: str, law: DestinationLaw, recipients: int, shares_keys: bool
) -> None:
    """Of every update, held or not; mutants that never look back, or ignore shared keys, are told apart."""
    scheme = Scheme(GRAPH, law, Walk(kind), recipients=recipients)
    logs = watch(scheme, shares_keys=shares_keys)
    assert len(logs) >= 3
    filtered = SampledFilter(scheme, counted=True, particles=PATHS, shares_keys=shares_keys)
    weights, rows = filtered.infer_all(logs, MEMBER)
    np.testing.assert_array_equal(rows, np.concatenate([log.row[0] + 2 + np.arange(log.updates) for log in logs]))
    oracle = Oracle(kind, law, recipients, shares_keys)
    exact = np.concatenate([oracle.makers(log) for log in logs])
    assert np.abs(weights - exact).sum(axis=1).max() / 2 < 0.03
    if not shares_keys or recipients > 1:
        mutant = replace(oracle, shares_keys=False)
        wrong = np.concatenate([mutant.makers(log, forward_only=not shares_keys) for log in logs])
        assert np.nanmax(np.abs(weights - wrong).sum(axis=1)) / 2 > 0.1
