"""Observers of what is sealed for several: against sums over all sets, games played, and each other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.helpers.known_runs import know

from veilwalk.audit import AuditSettings, audit, make_plan
from veilwalk.audit._play import play_updates
from veilwalk.audit._sampled import SetLaw, follow_paths, path_posterior
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import Graph, random_regular
from veilwalk.walks import draw_recipients, token_paths

EDGES = [(0, 1), (1, 2), (2, 3), (3, 1), (1, 4), (4, 5), (5, 6), (6, 7), (7, 4), (2, 6), (7, 8), (8, 3)]
GRAPH = Graph.from_edges(9, np.array(EDGES))
SEVERAL = Scheme(GRAPH, choose_scheme(GRAPH, "far:2").law, recipients=2)
PATHS = token_paths(GRAPH, hops=60, lanes=2, seed=4)
SMALL = random_regular(60, 3, seed=1)
EIGHT = choose_scheme(SMALL, "far:2", walk="non-backtracking", recipients=8)
CHEAP = AuditSettings(updates=40_000, rehearsed_hops=20_000, colluders=6)


def opened_slowly(path: IntArray, then: int, *, forgets: bool) -> FloatArray:
    """P(what was sealed at ``then`` is opened at each hop), the mean over all sets; ``forgets`` redraws at each hop."""
    found = np.zeros(len(path))
    far = SEVERAL.law.matrix.toarray()[path[then]] > 0
    if forgets:
        left, share = 1.0, SEVERAL.recipients / far.sum()
        for hop in range(then + 1, len(path)):
            found[hop] = left * share * far[path[hop]]
            left -= found[hop]
        return found
    sets = list(itertools.combinations(np.flatnonzero(far), SEVERAL.recipients))
    for chosen in sets:
        met = np.flatnonzero(np.isin(path[then + 1 :], chosen))
        if len(met):
            found[then + 1 + met[0]] += 1 / len(sets)
    return found


def made_slowly(path: IntArray, *, forgets: bool = False) -> tuple[FloatArray, FloatArray]:
    """P(an update is made at each hop), and of what is opened there, that it was sealed at each hop."""
    made, shares = np.zeros(len(path)), np.zeros((len(path), len(path)))
    made[0] = 1.0
    for then in range(len(path)):
        shares[:, then] = made[then] * opened_slowly(path, then, forgets=forgets)
        made += shares[:, then]
    return made, shares


def test_openings_are_followed_along_the_path() -> None:
    """As sums over all sets give them; a set redrawn at every hop misses."""
    made, _ = follow_paths(PATHS, SetLaw.from_scheme(SEVERAL), np.zeros(9, dtype=np.bool_))
    for lane, path in enumerate(PATHS):
        np.testing.assert_allclose(made[lane, 0], made_slowly(path)[0], atol=1e-6, rtol=0)
        assert np.abs(made[lane, 0] - made_slowly(path, forgets=True)[0]).max() > 0.05


def test_who_knows_the_path() -> None:
    """Its posterior is that of sums over all sets."""
    settings = AuditSettings(updates=64, replicas=4, seed=4)
    run = play_updates(SEVERAL, settings)
    late = np.flatnonzero(run.sightings.clock < 400)
    found = path_posterior(know(SEVERAL, settings, run), late)
    assert found.how == "exact: every hop is known"
    walked = token_paths(GRAPH, hops=400, lanes=4, seed=4)
    assert len(late) > 20
    for row in range(0, len(late), 8):
        clock, lane = run.sightings.clock[late[row]], run.truth.lane[late[row]]
        path = walked[lane][: clock + 1]
        weights = np.bincount(path, weights=made_slowly(path)[1][clock], minlength=9)
        np.testing.assert_allclose(found.weights[row], weights / weights.sum(), atol=1e-5, rtol=0)


def test_observers_are_calibrated() -> None:
    """Each names the source as often as it says; short return times tell most; colluders are held to their floor."""
    names = "prior,return-time,last-hop,repeated,first-sight,path"
    found = audit(EIGHT, CHEAP, observers=names)
    assert found.plan.posterior == "rehearsed"
    for name in found:
        row = found[name].overall
        low, high = row["hit_ratio_interval"]
        slack = (high - low) / 2
        assert low - slack < row["top_posterior"] < high + slack, name
    assert found["prior"].how == "estimated from sampled paths"
    last_hop = found["last-hop"]
    assert found["return-time"].node_entropy_nats > last_hop.node_entropy_nats > found["path"].node_entropy_nats
    percent, arc = last_hop.report["worst_percent"], last_hop.report["worst_arc"]
    assert percent["hit_ratio"] > 5 * last_hop.hit_ratio
    assert percent["node_entropy_nats"] < arc["node_entropy_nats"] < last_hop.node_entropy_nats
    assert last_hop.times_floor is None
    first_sight = found["first-sight"]
    assert first_sight.times_floor == pytest.approx(first_sight.hit_ratio / 0.1)
    assert found.record().params["recipients"] == 8


def test_a_recipient_that_is_not_first_learns_nothing() -> None:
    """What is seen of an update follows from the path and from who opened; who else was chosen has no part in it.

    One of a set that the token meets after the set was opened neither opens nor is told, as one whose name was still on
    a list would be.
    """
    colluders = np.array([3, 17, 40])
    settings = AuditSettings(updates=400, replicas=4)
    run = play_updates(EIGHT, settings, colluders)
    seen, lanes = run.sightings, run.truth.lane
    paths = token_paths(SMALL, hops=int(seen.clock.max()), lanes=4, seed=settings.seed, walk=EIGHT.walk)
    too_late = 0
    for row in np.flatnonzero(lanes[1:] == lanes[:-1]) + 1:
        path, opened, clock = paths[lanes[row]], seen.clock[row - 1], seen.clock[row]
        node = path[clock]
        assert (node, path[clock - 1]) == (seen.destination[row], seen.last_hop[row])
        assert clock - np.flatnonzero(path[:clock] == node)[-1] == seen.return_time[row]
        sights = opened + 1 + np.flatnonzero(np.isin(path[opened + 1 : clock + 1], colluders))
        first = (path[sights[0]], path[sights[0] - 1]) if len(sights) else (-1, -1)
        assert (seen.first_sight_node[row], seen.first_sight_from[row]) == first
        drawer, when = run.truth.source[[row - 1, row]], [seen.clock[row - 2] if row > 1 else -1, opened]
        chosen = draw_recipients(SMALL, EIGHT.law.rows, 8, seed=7, lane=[lanes[row]] * 2, source=drawer, clock=when)
        assert node in chosen[1]
        assert not np.isin(path[opened + 1 : clock], chosen[1]).any()
        if row > 1 and lanes[row - 2] == lanes[row]:
            too_late += np.isin(path[opened + 1 : clock], np.setdiff1d(chosen[0], chosen[1])).sum()
    assert too_late > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"posterior": "exact", "observers": "last-hop"}, "for one recipient"),
        ({"observers": "window"}, "one destination"),
    ],
)
def test_what_is_for_one_recipient_says_so(options: dict[str, Any], message: str) -> None:
    """One line that names what would do."""
    with pytest.raises(InvalidParameterError, match=message) as caught:
        make_plan(choose_scheme(SMALL, "far:2", recipients=8), AuditSettings(**options))
    assert "\n" not in str(caught.value)


def test_large_graphs_without_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a far law everybody is a candidate; the law is never made a table, and posteriors are by class."""
    scheme = choose_scheme(random_regular(200, 3, seed=2), "far:3", walk="non-backtracking", recipients=8)
    monkeypatch.setattr("veilwalk.core.sizes.LARGE_NODES", 100)
    monkeypatch.setattr("veilwalk.audit._timings.SCORED_BY_FEW", 1_500)
    found = audit(scheme, updates=6_000)
    assert found.plan.looked_up
    assert list(found) == ["prior", "return-time", "last-hop"]
    assert "matrix" not in vars(scheme.law)
    assert found["last-hop"].node_entropy_nats < found["prior"].node_entropy_nats < np.log(200)
