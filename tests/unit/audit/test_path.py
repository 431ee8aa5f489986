"""Updates followed along a path, and observers who know it, against sums over all that may have happened."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.helpers.known_runs import know

from veilwalk.audit import AuditSettings
from veilwalk.audit._kernels_paths import tally_deliveries, tally_sights
from veilwalk.audit._play import play_updates
from veilwalk.audit._sampled import SetLaw, follow_paths, path_posterior, select_first_updates
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.design import choose_scheme
from veilwalk.graphs import Graph, distances
from veilwalk.walks import token_paths

EDGES = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6), (7, 8), (8, 3)]
GRAPH = Graph.from_edges(9, np.array(EDGES))
SCHEME = choose_scheme(GRAPH, "uniform-node", support=(2, 3))
LAW = SetLaw.from_scheme(SCHEME)
MATRIX = SCHEME.law.matrix.toarray()
COLLUDERS = np.array([2, 8])
MEMBER = np.isin(np.arange(9), COLLUDERS)
NOBODY = np.zeros(9, dtype=np.bool_)
HOPS = 120
PATHS = token_paths(GRAPH, hops=HOPS, lanes=2, seed=4)
APART = distances(GRAPH).astype(np.int64)


def made_slowly(path: IntArray, matrix: FloatArray = MATRIX) -> FloatArray:
    """P(an update is made at hop t): from each since the token was last there that may have been sealed for it."""
    made = np.zeros(len(path))
    made[0] = 1.0
    for hop in range(1, len(path)):
        for then in range(hop - 1, -1, -1):
            made[hop] += made[then] * matrix[path[then], path[hop]]
            if path[then] == path[hop]:
                break
    return made


@pytest.mark.parametrize("law", ["far:2", "uniform-distance", "uniform-node"])
def test_updates_are_followed_along_the_path(law: str) -> None:
    """As sums over all pairs of hops give them; forgetting that a visit before would have ended it misses."""
    scheme = choose_scheme(GRAPH, law, support=None if law == "far:2" else (2, 3))
    matrix = scheme.law.matrix.toarray()
    made, _ = follow_paths(PATHS, SetLaw.from_scheme(scheme), NOBODY, least=0.0)
    for lane in range(2):
        np.testing.assert_allclose(made[lane, 0], made_slowly(PATHS[lane], matrix), atol=1e-12, rtol=0)
    mutant = [sum(made[0, 0, s] * matrix[PATHS[0, s], PATHS[0, t]] for s in range(t)) for t in range(1, HOPS)]
    assert np.abs(np.array(mutant) - made[0, 0, 1:HOPS]).max() > 0.1


def test_who_knows_the_path_weighs_every_visit_since() -> None:
    """For each delivery of a run: P(sealed there and then) times the law; never a node off the path."""
    settings = AuditSettings(observers=("path",), updates=400, seed=5, replicas=4)
    run = play_updates(SCHEME, settings)
    guess = path_posterior(know(SCHEME, settings, run), np.arange(400)).weights
    paths = token_paths(GRAPH, hops=int(run.sightings.clock.max()), lanes=4, seed=5)
    np.testing.assert_allclose(guess.sum(axis=1), 1, atol=1e-12)
    assert np.all(guess[np.arange(400), run.truth.source] > 0)
    for row in range(0, 400, 37):
        clock, path = int(run.sightings.clock[row]), paths[run.truth.lane[row]]
        made = made_slowly(path[: clock + 1])
        weight = np.zeros(9)
        for then in range(clock - int(run.sightings.return_time[row]) + 1, clock):
            weight[path[then]] += made[then] * MATRIX[path[then], path[clock]]
        np.testing.assert_allclose(guess[row], weight / weight.sum(), atol=1e-12)


def test_deliveries_are_counted_by_class_and_one_by_one() -> None:
    """Both tables against sums over visits; a half for each lane; bins and classes told apart."""
    made, _ = follow_paths(PATHS, LAW, NOBODY, least=0.0)
    edges, warm, n_short = np.array([3, 6, 10]), 20, 2
    arc_of = np.arange(len(GRAPH.indices))
    arc_of[GRAPH.indptr[4] : GRAPH.indptr[5]] = -1
    won, mass, visits = np.zeros((2, 4, 5, 3)), np.zeros((2, 4, len(arc_of))), np.zeros((2, 4))
    counted, counts = np.zeros((2, n_short + 1, len(arc_of), 9)), np.zeros((2, n_short + 1, len(arc_of)))
    where = (APART, GRAPH.indptr, GRAPH.indices, arc_of, edges, n_short, warm)
    tally_deliveries(PATHS, LAW, 0.0, *where, won, mass, visits, counted, counts)
    want, want_counted, want_visits = np.zeros_like(won), np.zeros_like(counted), np.zeros_like(visits)
    for lane in range(2):
        path = PATHS[lane]
        for hop in range(warm, HOPS + 1):
            node, last = path[hop], path[hop - 1]
            before = max((t for t in range(hop) if path[t] == node), default=-1)
            if node == 4 or before < 0:
                continue
            bin_ = int(np.searchsorted(edges, hop - before))
            arc = GRAPH.indptr[node] + GRAPH.neighbours(node).tolist().index(last)
            weights = [made[lane, 0, then] * MATRIX[path[then], node] for then in range(before + 1, hop)]
            want_visits[lane, bin_] += sum(weights) > 0.0
            for then, weight in zip(range(before + 1, hop), weights, strict=True):
                away = APART[node, path[then]]
                want[lane, bin_, away, np.sign(APART[last, path[then]] - away) + 1] += weight
                want_counted[lane, min(bin_, n_short), arc, path[then]] += weight
    np.testing.assert_allclose(won, want, atol=1e-12, rtol=0)
    np.testing.assert_allclose(mass.sum(axis=2), want.sum(axis=(2, 3)), atol=1e-12, rtol=0)
    np.testing.assert_allclose(counted, want_counted, atol=1e-12, rtol=0)
    np.testing.assert_array_equal(visits, want_visits)
    assert np.all(mass[:, :, GRAPH.indptr[4] : GRAPH.indptr[5]] == 0)
    assert counts.sum() == visits.sum() > 20


def test_stretches_between_colluders_are_counted() -> None:
    """First sights of one path against its stretches taken one by one."""
    made, _ = follow_paths(PATHS, LAW, MEMBER, least=0.0)
    path, warm = PATHS[0], 10
    heads = np.repeat(np.arange(9), GRAPH.degrees)
    into = MEMBER[heads] & ~MEMBER[GRAPH.indices]
    arc_of = np.where(into, np.cumsum(into) - 1, -1)
    sights = np.zeros((2, int(into.sum()), 9))
    tally_sights(path, made[0], MEMBER, GRAPH.indptr, GRAPH.indices, arc_of, warm, sights)
    visits = [t for t in range(HOPS + 1) if MEMBER[path[t]]]
    expected = np.zeros_like(sights)
    number = {(int(heads[e]), int(GRAPH.indices[e])): int(arc_of[e]) for e in np.flatnonzero(into)}
    stretches = [(a, b) for a, b in itertools.pairwise(visits) if a >= warm and b > a + 1]
    for a, b in stretches:
        for t in range(a + 1, b):
            arc, eligible = number[int(path[b]), int(path[b - 1])], np.flatnonzero(MATRIX[path[t]])
            # Nothing is passed on where the token met all that may open it.
            passed = not np.isin(eligible, path[t + 1 : b + 1]).all()
            expected[:, arc, path[t]] += made[0, 0, t] * np.array([passed, True])
    assert len(stretches) > 5
    np.testing.assert_allclose(sights, expected, atol=1e-12, rtol=0)


def test_the_first_updates_are_alike_many_of_each_lane() -> None:
    """About as many as asked for in all, the first of each lane."""
    lanes = np.repeat(np.arange(4), 150)
    rows = select_first_updates(lanes, np.arange(600), 40)
    assert rows.tolist() == [150 * lane + place for lane in range(4) for place in range(10)]
