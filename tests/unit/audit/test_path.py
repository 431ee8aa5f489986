"""Updates followed along a path, and observers who know it, against sums over all that may have happened."""

from __future__ import annotations

import itertools

import numpy as np

from veilwalk.audit import AuditSettings, play
from veilwalk.audit.inference._kernels_paths import gap_bin, tally_candidates, tally_deliveries, tally_sights
from veilwalk.audit.inference.paths import from_path
from veilwalk.audit.inference.rehearsal import colluder_numbers, follow_paths
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.design import choose_scheme
from veilwalk.graphs import Graph, distances
from veilwalk.walks import token_paths

EDGES = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6), (7, 8), (8, 3)]
GRAPH = Graph.from_edges(9, np.array(EDGES))
SCHEME = choose_scheme(GRAPH, "uniform-node", support=(2, 3))
LAW = SCHEME.law
MATRIX = LAW.matrix.toarray()
COLLUDERS = np.array([2, 8])
MEMBER = colluder_numbers(9, COLLUDERS)
HOPS = 120
PATHS = token_paths(GRAPH, hops=HOPS, lanes=2, seed=4)
APART = distances(GRAPH).astype(np.int64)


def made_slowly(path: IntArray) -> FloatArray:
    """P(an update is made at hop t): from each since the token was last there that may have been sealed for it."""
    made = np.zeros(len(path))
    made[0] = 1.0
    for hop in range(1, len(path)):
        for then in range(hop - 1, -1, -1):
            made[hop] += made[then] * MATRIX[path[then], path[hop]]
            if path[then] == path[hop]:
                break
    return made


def unseen_slowly(path: IntArray, made: FloatArray) -> FloatArray:
    """The part of it that was sealed since a colluder last had the token, or by that colluder itself."""
    unseen = np.zeros(len(path))
    unseen[0] = 1.0
    for hop in range(1, len(path)):
        for then in range(hop - 1, -1, -1):
            if path[then] != path[hop]:
                unseen[hop] += made[then] * MATRIX[path[then], path[hop]]
            if path[then] == path[hop] or MEMBER[path[then]] >= 0:
                break
    return unseen


def test_updates_are_followed_along_the_path() -> None:
    """As sums over all pairs of hops give them; forgetting that a visit before would have ended it misses."""
    made, _ = follow_paths(PATHS, LAW, MEMBER)
    for lane in range(2):
        slow = made_slowly(PATHS[lane])
        np.testing.assert_allclose(made[lane, 0], slow, atol=1e-13, rtol=0)
        np.testing.assert_allclose(made[lane, 1], unseen_slowly(PATHS[lane], slow), atol=1e-13, rtol=0)
    mutant = [sum(made[0, 0, s] * MATRIX[PATHS[0, s], PATHS[0, t]] for s in range(t)) for t in range(1, HOPS)]
    assert np.abs(np.array(mutant) - made[0, 0, 1:HOPS]).max() > 0.1


def test_what_colluders_relay_is_what_they_have_not_sealed() -> None:
    """Summed over the visits of each: for whom the token is sealed, its own sealing left out."""
    made, relayed = follow_paths(PATHS, LAW, MEMBER)
    want = np.zeros((2, 9))
    for lane in range(2):
        path = PATHS[lane]
        for hop in range(1, HOPS + 1):
            if MEMBER[path[hop]] < 0:
                continue
            for goal in range(9):
                since = max((t for t in range(hop + 1) if path[t] == goal), default=-1)
                # What was sealed at the goal itself was not sealed for it.
                sealed = [made[lane, 0, t] * MATRIX[path[t], goal] for t in range(max(since, 0), hop)]
                want[MEMBER[path[hop]], goal] += sum(sealed)
    np.testing.assert_allclose(relayed, want, atol=1e-12, rtol=0)


def test_who_knows_the_path_weighs_every_visit_since() -> None:
    """For each delivery of a run: P(sealed there and then) times the law; never a node off the path."""
    settings = AuditSettings(observers=("path",), updates=400, seed=5, replicas=4)
    run = play(SCHEME, settings)
    guess = from_path(SCHEME, settings, seen=run.seen, lanes=run.truth.lane).weights
    paths = token_paths(GRAPH, hops=int(run.seen.clock.max()), lanes=4, seed=5)
    np.testing.assert_allclose(guess.sum(axis=1), 1, atol=1e-12)
    assert np.all(guess[np.arange(400), run.truth.source] > 0)
    for row in range(0, 400, 37):
        clock, path = int(run.seen.clock[row]), paths[run.truth.lane[row]]
        made = made_slowly(path[: clock + 1])
        weight = np.zeros(9)
        for then in range(clock - int(run.seen.return_time[row]) + 1, clock):
            weight[path[then]] += made[then] * MATRIX[path[then], path[clock]]
        np.testing.assert_allclose(guess[row], weight / weight.sum(), atol=1e-12)


def test_deliveries_are_counted_by_class_and_one_by_one() -> None:
    """Both tables against sums over visits, with every second, third and every visit; bins and classes told apart."""
    made, _ = follow_paths(PATHS, LAW, MEMBER)
    edges, warm = np.array([3, 6, 10]), 20
    arc_of = np.arange(len(GRAPH.indices))
    arc_of[GRAPH.indptr[4] : GRAPH.indptr[5]] = -1
    won, mass, visits = np.zeros((2, 4, 5, 3)), np.zeros((2, 4, len(arc_of))), np.zeros((2, 4))
    columns = np.ascontiguousarray(MATRIX.T)
    where = (GRAPH.indptr, GRAPH.indices, arc_of)
    tally_deliveries(PATHS, made, columns, APART, *where, edges, warm, 2, won, mass, visits)
    counted, counts = np.zeros((4, len(arc_of), 9)), np.zeros((4, len(arc_of)))
    for lane in range(2):
        tally_candidates(PATHS[lane], made[lane], columns, *where, edges, warm, 3, counted, counts)
    want, want_counted = np.zeros((2, 4, 5, 3)), np.zeros_like(counted)
    for lane in range(2):
        path, number, long = PATHS[lane], 0, 0
        for hop in range(warm, HOPS + 1):
            node, last = path[hop], path[hop - 1]
            before = max((t for t in range(hop) if path[t] == node), default=-1)
            if node == 4 or before < 0:
                continue
            number += 1
            bin_ = int(np.searchsorted(edges, hop - before))
            long += bin_ == 3
            arc = GRAPH.indptr[node] + GRAPH.neighbours(node).tolist().index(last)
            for then in range(before + 1, hop):
                weight = made[lane, 0, then] * MATRIX[path[then], node]
                away = APART[node, path[then]]
                if number % 2 == 0:
                    want[lane, bin_, away, np.sign(APART[last, path[then]] - away) + 1] += weight
                if bin_ < 3 or long % 3 == 0:
                    want_counted[bin_, arc, path[then]] += weight
    np.testing.assert_allclose(won, want, atol=1e-13, rtol=0)
    np.testing.assert_allclose(mass.sum(axis=2), want.sum(axis=(2, 3)), atol=1e-13, rtol=0)
    np.testing.assert_allclose(counted, want_counted, atol=1e-13, rtol=0)
    assert np.all(mass[:, :, GRAPH.indptr[4] : GRAPH.indptr[5]] == 0)
    assert counts.sum() > 20


def test_stretches_between_colluders_are_counted() -> None:
    """Every table of one path against its stretches taken one by one."""
    made, _ = follow_paths(PATHS, LAW, MEMBER)
    path, warm = PATHS[0], 10
    heads = np.repeat(np.arange(9), GRAPH.degrees)
    into = (MEMBER[heads] >= 0) & (MEMBER[GRAPH.indices] < 0)
    arc_of = np.where(into, np.cumsum(into) - 1, -1)
    n_arcs = int(into.sum())
    sights, starts, firsts = np.zeros((2, n_arcs, 9)), np.zeros(n_arcs), np.zeros(9)
    onward, toward = np.zeros((n_arcs, 96, 9)), np.zeros((n_arcs, 96, 9))
    tables = (sights, starts, firsts, onward, toward)
    tally_sights(path, made[0], MEMBER, GRAPH.indptr, GRAPH.indices, arc_of, warm, *tables)
    visits = [t for t in range(HOPS + 1) if MEMBER[path[t]] >= 0]
    want = [np.zeros_like(table) for table in tables]
    number = {(int(heads[e]), int(GRAPH.indices[e])): int(arc_of[e]) for e in np.flatnonzero(into)}
    stretches = [(a, b) for a, b in itertools.pairwise(visits) if a >= warm and b > a + 1]
    for a, b in stretches:
        out, end = number[int(path[a]), int(path[a + 1])], number[int(path[b]), int(path[b - 1])]
        want[1][out] += 1
        for t in range(a + 1, b):
            want[0][:, end, path[t]] += made[0, :, t]
            if path[t] not in path[a + 1 : t]:
                want[2][path[t]] += 1
                want[3][out, t - a, path[t]] += 1
                want[4][end, b - t, path[t]] += 1
    assert len(stretches) > 5
    assert max(b - a for a, b in stretches) < 32
    for got, wanted in zip(tables, want, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-13, rtol=0)


def test_bins_of_stretches_widen_slowly() -> None:
    """Each number of hops has its own up to 32, then eight bins to a doubling, and the last takes the rest."""
    assert [gap_bin(hops) for hops in (1, 2, 31, 32, 64, 128)] == [1, 2, 31, 32, 40, 48]
    assert gap_bin(10**7) == 95
    bins = [gap_bin(hops) for hops in range(1, 9000)]
    assert np.all(np.diff(bins) >= 0)
