"""The audit of graphs too large for tables of all pairs: candidates are looked up around each destination.

Laws choose destinations a few hops away, so whoever could have sealed an update is near its destination, and a search
that stops at the end of the support finds them all. Posteriors are by class: the prior, corrected by what half of the
lanes show, scored on the other half. Every destination serves, a few updates each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilwalk.audit._estimated import ClassCorrection
from veilwalk.audit._report import Scored
from veilwalk.audit._run import Run, Say, play
from veilwalk.audit._scores import SCORES, score
from veilwalk.audit._settings import AuditSettings, check_large, require_memory
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph, balls

# Updates looked at, at most, in training and in scoring: each is a search of its own.
_MOST_UPDATES = 20_000
_BLOCK = 2_000


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Who could have made one update: their prior, how far they are, and which of them did."""

    row: int
    prior: FloatArray
    away: IntArray
    from_last_hop: IntArray
    true: int


def attack_large(graph: Graph, law: DestinationLaw, settings: AuditSettings, say: Say) -> tuple[Run, dict[str, Scored]]:
    """Play and attack on a graph of any size; return the run and every observer's scored updates."""
    law.check_graph(graph)
    check_large(settings)
    require_memory(graph, law, settings, 0)
    run = play(graph, law, settings, np.empty(0, np.int64), say)
    return run, _attack(graph, law, settings, run, say)


def _attack(graph: Graph, law: DestinationLaw, settings: AuditSettings, run: Run, say: Say) -> dict[str, Scored]:
    seen, truth = run.seen, run.truth
    training, scoring = (_thinned(np.flatnonzero(truth.lane % 2 == half)) for half in (0, 1))
    if not len(training) or not len(scoring):
        raise InvalidParameterError("updates", len(seen), "more: none was left to calibrate on or to score")
    timed = [name for name in settings.observers if name != "prior"]
    learnt = {name: ClassCorrection(seen.return_time[training], law.support.hi) for name in timed}
    for found in _candidates(graph, law, run, training, say):
        for name, correction in learnt.items():
            classes = _classes(correction, name, found, seen.return_time[found.row])
            correction.count(classes, found.prior[np.newaxis], np.array([found.true]))
    scores = {name: np.zeros((len(scoring), len(SCORES))) for name in settings.observers}
    blind = np.zeros(len(scoring))
    for place, found in enumerate(_candidates(graph, law, run, scoring, say)):
        time = seen.return_time[[found.row]]
        blind[place] = found.prior.max()
        for name, table in scores.items():
            guess = found.prior[np.newaxis]
            if name in learnt:
                guess = learnt[name].corrected(_classes(learnt[name], name, found, time[0]), guess, time)
            table[place] = score(guess, np.array([found.true]), found.away, law.support)
    kinds = dict.fromkeys(timed, "by-class: calibrated on half of the lanes, scored on the others")
    return {
        name: Scored(
            kind=kinds.get(name, "exact"),
            scores=table,
            blind=blind,
            lanes=truth.lane[scoring],
            return_time=seen.return_time[scoring],
            destination=seen.destination[scoring],
        )
        for name, table in scores.items()
    }


def _thinned(rows: IntArray) -> IntArray:
    return rows[:: -(-len(rows) // _MOST_UPDATES) or 1]


def _classes(
    correction: ClassCorrection, observer: str, found: _Candidates, time: int
) -> tuple[IntArray, IntArray, IntArray]:
    from_last_hop = found.from_last_hop[np.newaxis] if observer == "last-hop" else None
    return correction.classes(np.array([time]), found.away, from_last_hop)


def _candidates(graph: Graph, law: DestinationLaw, run: Run, rows: IntArray, say: Say) -> Iterator[_Candidates]:
    """Yield the candidates of each update in ``rows``."""
    seen, source = run.seen, run.truth.source
    columns, often = law.matrix.tocsc(), law.source_prior
    columns.sort_indices()
    hops = np.full(graph.n_nodes, -1, np.int64)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        around = balls(graph, law.support.hi, seen.destination[block])
        # One hop beside the destination everybody is at most one hop farther.
        beside = balls(graph, law.support.hi + 1, seen.last_hop[block])
        for place, row in enumerate(block):
            column = slice(columns.indptr[seen.destination[row]], columns.indptr[seen.destination[row] + 1])
            nodes = columns.indices[column]
            weight = often[nodes] * columns.data[column]
            distances = [_hops_to(nodes, *found.of(place), hops) for found in (around, beside)]
            true = int(np.searchsorted(nodes, source[row]))
            yield _Candidates(int(row), normalised(weight), distances[0], distances[1], true)
        say(f"attacking: {start + len(block)} of {len(rows)} updates")


def _hops_to(nodes: IntArray, near: IntArray, away: IntArray, scratch: IntArray) -> IntArray:
    """Return how far ``nodes`` are, all being among ``near``."""
    scratch[near] = away
    return scratch[nodes]
