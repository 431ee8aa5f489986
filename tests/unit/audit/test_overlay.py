"""What observers learn on a secret overlay: names next to themselves, and of all others nothing, ever."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veilwalk.audit import OverlayAttack, audit, iter_answers, measure_overlay
from veilwalk.audit._coalitions import average_unnamed, count_corruptions, named_nodes, play_seizing, weigh_makers
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import Graph, overlay, random_regular

SCHEME = choose_scheme(overlay(60, 3, seed=1), recipients=8)
MEMBER = np.isin(np.arange(60), [0, 7, 21, 33, 48, 59])


def test_who_watches_knows_its_own_name_and_its_neighbours_names() -> None:
    graph = Graph.from_edges(5, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]])
    named = named_nodes(graph, np.array([[True, False, False, False, False]]))
    np.testing.assert_array_equal(named, [[True, True, False, False, True]])
    weights = average_unnamed(np.array([[0.0, 0.1, 0.6, 0.2, 0.1]]), named)
    np.testing.assert_allclose(weights, [[0.0, 0.1, 0.4, 0.4, 0.1]])


def enumerate_makers(
    graph: Graph, row: np.ndarray, chances: np.ndarray, hazards: np.ndarray, *, trains: float, sealers: np.ndarray
) -> np.ndarray:
    """Return who made the last update of a stretch, by every path and every way that openings fall on it."""
    first, last, steps, count, own = row[1:6]
    lasting = hazards[2] if row[8] else hazards[0]
    out = np.zeros(graph.n_nodes)

    def weigh(path: list[int], opened: dict[int, bool]) -> float:
        # Each place of the path, by who sealed last before it; a neighbour of who has just sealed is no recipient.
        weight = float(sealers[path[max(opened)]])
        for place, node in enumerate(path):
            before = max((other for other in opened if other < place), default=-1)
            is_last = before == max(opened)
            chance = chances[own, node] if before < 0 else lasting if is_last else hazards[1]
            chance = 0.0 if 0 <= before == place - 1 else chance
            by_leg = trains if opened.get(place) else 1.0 - trains
            weight *= chance * by_leg if place in opened else 1.0 - chance
        return weight

    def follow(path: list[int], opened: dict[int, bool]) -> None:
        place, made = len(path) - 1, sum(opened.values())
        outcomes = [opened, opened | {place: False}] if trains < 1.0 else [opened]
        for then in [*outcomes, opened | {place: True}] if made < count else outcomes:
            if len(path) < steps:
                before = path[-2] if place else -1
                for onward in graph.neighbours(path[-1]):
                    if onward != before and not MEMBER[onward]:
                        follow([*path, int(onward)], then)
            elif path[-1] == last and sum(then.values()) == count:
                out[path[max(at for at, trained in then.items() if trained)]] += weigh(path, then)

    follow([int(first)], {})
    return out


def weigh_keys(graph: Graph, chosen: np.ndarray) -> np.ndarray:
    """Return how many sets each node can draw that have just these keys of the coalition's."""
    members = set(np.flatnonzero(MEMBER).tolist())
    opening = members & set(chosen.tolist())
    counts = []
    for node in range(graph.n_nodes):
        near = {node, *graph.neighbours(node).tolist()}
        free = set(range(graph.n_nodes)) - members - near
        counts.append(0.0 if opening & near else float(math.comb(len(free), len(chosen) - len(opening))))
    return np.array(counts)


@pytest.mark.parametrize("trains", [1.0, 0.5])
def test_the_filter_with_a_map_agrees_with_all_paths_one_by_one(trains: float) -> None:
    attack, scheme = OverlayAttack(), replace(SCHEME, train_probability=trains)
    play = play_seizing(scheme, MEMBER, updates=300, seed=3, attack=attack)
    rows = play.rows[(play.rows[:, 3] <= 7) & (play.rows[:, 3] > 1) & (play.rows[:, 5] >= 0)][:40]
    assert rows[:, 4].max() > 1
    # Where all train, it was made by who sealed last, and read at once.
    assert np.all(rows[:, 6] == rows[:, 0]) == np.all(rows[:, 8]) == (trains == 1.0)
    weights = weigh_makers(replace(play, rows=rows), attack)
    own = np.array([np.isin(np.arange(60), aim) for aim in play.aims], dtype=np.float64)
    share = MEMBER.mean()
    some = 1.0 - (1.0 - share) ** 8
    hazards = np.array([8.0, 8.0 * (1.0 - share), 8.0 * (1.0 - share / some)]) / 54
    for row, found in zip(rows, weights, strict=True):
        sealers = weigh_keys(SCHEME.graph, play.pools[row[6], row[7]])
        expected = enumerate_makers(SCHEME.graph, row, own, hazards, trains=trains, sealers=sealers)
        expected /= expected.sum()
        # A thousandth of the prior is mixed in.
        np.testing.assert_allclose(found, expected, atol=1.1e-3)


def test_a_coalition_without_a_map_is_refused_where_legs_are_blank() -> None:
    scheme = replace(SCHEME, train_probability=0.5)
    with pytest.raises(InvalidParameterError) as refusal:
        measure_overlay(scheme, OverlayAttack(has_map=False), colluders=6, linked=(1,), replicas=1)
    assert refusal.value.name == "has_map"


def test_a_coalition_with_the_map_is_calibrated_and_bounded_by_its_neighbours() -> None:
    scheme = choose_scheme(overlay(100, 3, seed=1), recipients=8)
    one, eight = measure_overlay(scheme, OverlayAttack(), colluders=10, linked=(1, 8), replicas=6, seed=2)
    blank = replace(scheme, train_probability=0.3)
    legs = measure_overlay(blank, OverlayAttack(), colluders=10, linked=(1, 8), replicas=6, seed=2)
    # Blank legs: more of it is read, and no more is named.
    assert legs[0]["read"] > one["read"] + 0.2
    assert legs[0]["share"] < one["share"]
    for row in (one, eight, *legs):
        low, high = row["share_interval"]
        assert low - 0.02 <= row["top_posterior"] <= high + 0.02
        assert row["by_maker"] <= row["bound"] + 1e-9
    assert eight["by_maker"] > one["by_maker"] + 0.02
    # Each part is needed: with names on the map, or on the keys, eight linked updates name far more.
    for broken in (OverlayAttack(has_names=True), OverlayAttack(has_map=False, has_names=True)):
        (row,) = measure_overlay(scheme, broken, colluders=10, linked=(8,), replicas=3, seed=2)
        assert row["by_maker"] > 2 * eight["bound"]
    (row,) = measure_overlay(scheme, OverlayAttack(overlays=8), colluders=10, linked=(8,), replicas=3, seed=2)
    assert row["share"] > 0.6


def test_an_opener_of_an_audit_knows_nothing_but_its_neighbours() -> None:
    scheme = choose_scheme(overlay(26, 3, seed=1), recipients=4)
    result = audit(scheme, updates=3_000, observers="prior,last-hop,memory,previous-maker,first-sight", seed=3)
    for name in ("prior", "last-hop", "memory", "previous-maker"):
        assert result[name].node_entropy_nats == pytest.approx(math.log(22), abs=1e-9)
    assert result["first-sight"].hit_ratio > 2 / 22
    published = audit(
        choose_scheme(random_regular(26, 3, seed=1), "far:2", walk="non-backtracking", recipients=4),
        updates=3_000,
        observers="prior,last-hop",
        seed=3,
    )
    assert published["last-hop"].node_entropy_nats < math.log(22) - 0.1


def test_answers_for_a_run_that_was_played_elsewhere_hide_names_too() -> None:
    scheme = choose_scheme(overlay(40, 3, seed=1), recipients=4)
    records = scheme.run_updates(updates=400, seed=7, replicas=2)
    ((_, answers),) = iter_answers(scheme, records, ["last-hop"], np.array([200, 300]))
    for answer in answers:
        assert len(np.unique(answer.weights.round(12))) == 2


def test_a_large_overlay_is_audited_by_symmetry() -> None:
    scheme = choose_scheme(overlay(10_000, 3, seed=1), recipients=64)
    result = audit(scheme, updates=100, replicas=4)
    assert result["last-hop"].node_entropy_nats == pytest.approx(math.log(10_000 - 4))
    shares = {row["name"]: row["share"] for row in result.members}
    assert shares["long-run-bound"] == pytest.approx(1 - 0.9**3, abs=0.02)
    assert shares["active-maker"] == 3 / 9_999


def test_one_more_corruption_names_a_member_two_links_away() -> None:
    graph = Graph.from_edges(5, [[0, 1], [1, 2], [2, 3], [3, 4]])
    np.testing.assert_array_equal(count_corruptions(graph, np.arange(5) == 0), [0, 1, 2, 3])


def test_a_scheme_with_named_keys_hides_no_names() -> None:
    scheme: Scheme = replace(SCHEME, key_period=0)
    assert SCHEME.hides_names
    assert not scheme.hides_names
    result = audit(scheme, updates=2_000, observers="last-hop", seed=3)
    assert result["last-hop"].node_entropy_nats < math.log(56) - 0.05
