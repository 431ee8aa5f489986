"""Sealed for several: what a design of it says, against exact chains, and for how many it advises to seal."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from tests.helpers.graphs import path
from tests.helpers.present import present

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.stats import Estimate
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import (
    Design,
    Scheme,
    Sealing,
    choose_scheme,
    design,
    evaluate_scheme,
    recommend,
    save_scheme,
)
from veilwalk.design._openings import bound_exposure_by_classes
from veilwalk.design._scheme import Price
from veilwalk.design._search import Recommendation, choose_candidate
from veilwalk.graphs import Graph, barabasi_albert, complete, hypercube, random_regular, ring

STRAIGHT = Walk("non-backtracking")
SMALL = random_regular(14, 3, seed=2)


def guesses(result: Design) -> tuple[Estimate, Estimate]:
    """The predecessor's guesses from its set, and also from its first hop."""
    from_set, from_hop = result.exposure.predecessor_guess, result.exposure.predecessor_guess_with_hop
    assert from_set is not None
    assert from_hop is not None
    return from_set, from_hop


def key(search: Recommendation) -> tuple[str, Walk, int]:
    """What names the recommended scheme."""
    return search.scheme.law.name, search.scheme.walk, search.scheme.recipients


def _exact_simple(graph: Graph, far: int, recipients: int) -> tuple[float, float, float]:
    """Price, node entropy with last hop and predecessor's best guess of the simple walk, over every set there is."""
    scheme = choose_scheme(graph, f"far:{far}", recipients=recipients)
    size = graph.n_nodes
    moves = np.zeros((size, size))
    moves[np.repeat(np.arange(size), graph.degrees), graph.indices] = np.repeat(1 / graph.degrees, graph.degrees)
    joint, hops, best = np.zeros((size, size, size)), np.zeros(size), np.zeros(size)
    for source in range(size):
        sets = list(itertools.combinations(np.flatnonzero(scheme.law.matrix[[source]].toarray()[0]), recipients))
        for chosen in map(list, sets):
            rest = np.setdiff1d(np.arange(size), chosen)
            visits = np.linalg.solve((np.eye(len(rest)) - moves[np.ix_(rest, rest)]).T, (rest == source).astype(float))
            arrivals = visits[:, np.newaxis] * moves[np.ix_(rest, chosen)]
            joint[source][np.ix_(rest, chosen)] += arrivals / len(sets)
            hops[source] += visits.sum() / len(sets)
            best[source] += arrivals.sum(axis=0).max() / len(sets)
    step = joint.sum(axis=1)
    prior = np.linalg.matrix_power(step, 200)[0]
    pairs = (prior[:, np.newaxis, np.newaxis] * joint).reshape(size, -1)
    entropy = special.entr(pairs).sum() - special.entr(pairs.sum(axis=0)).sum()
    return float(prior @ hops), float(entropy), float(prior @ best)


def test_price_entropy_and_predecessor_are_those_of_every_set_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against absorbing chains, set by set; a mutant that draws one recipient less is told apart."""
    price, entropy, guess = _exact_simple(SMALL, 2, 3)
    result = design(SMALL, "far:2", recipients=3)
    from_set, from_hop = guesses(result)
    exact = (result.price.hops, result.exposure.node_entropy.mean, from_set.mean)
    assert exact == pytest.approx((price, entropy, guess), rel=1e-9)
    assert {result.price.kind, result.exposure.how, from_set.how} == {"exact"}
    assert from_hop.mean >= from_set.mean
    monkeypatch.setattr(Scheme, "exact_openings", None)
    for draws in (False, True):
        if draws:
            monkeypatch.setattr("veilwalk.design._openings._CUT_OFF", -1.0)
        sampled = design(SMALL, "far:2", recipients=3)
        low, high = sampled.price.interval or (0.0, 0.0)
        assert low - 0.02 < price < high + 0.02
        estimate = sampled.exposure.node_entropy
        assert estimate.how.endswith("drawn sets" if draws else "simulated walks")
        assert estimate.low < entropy < estimate.high
        assert estimate.mean == pytest.approx(entropy, abs=0.005)
        assert guesses(sampled)[0].low - 0.01 < guess < guesses(sampled)[0].high + 0.01
    monkeypatch.undo()
    fewer = evaluate_scheme(choose_scheme(SMALL, "far:2", recipients=2), colluders=None)
    assert abs(fewer.price.hops - price) > 1.0
    assert abs(fewer.exposure.node_entropy.mean - entropy) > 0.02


def test_the_jackknife_takes_off_what_few_walks_cost() -> None:
    """With few walks the plain entropy of what was met is far too low, and the one told is not."""
    scheme = choose_scheme(random_regular(60, 3, seed=1), "far:3", walk=STRAIGHT, recipients=4)
    few, many = (evaluate_scheme(scheme, effort=effort, colluders=None).exposure for effort in (20, 400))
    assert few.node_entropy.mean == pytest.approx(many.node_entropy.mean, abs=0.02)
    # A guess fitted on other walks is too low, on the same too high; more walks bring them together.
    assert present(few.hit_ratio).low < present(many.hit_ratio).high
    assert present(few.hit_ratio).high - present(few.hit_ratio).low > 2 * (
        present(many.hit_ratio).high - present(many.hit_ratio).low
    )


@pytest.mark.parametrize("graph", [random_regular(100, 3, seed=1), barabasi_albert(100, 2, seed=1)], ids=["rrg", "ba"])
def test_the_bound_by_classes_is_above_and_near(graph: Graph) -> None:
    """On a graph small enough for both; below what nothing at all would tell."""
    scheme = choose_scheme(graph, "far:2", walk=STRAIGHT, recipients=8)
    sampled = bound_exposure_by_classes(scheme, 8_192)
    bound, often = sampled.exposure.node_entropy, sampled.update_range
    by_tables = evaluate_scheme(scheme, colluders=None)
    assert by_tables.exposure.node_entropy.low < bound.high
    assert bound.mean < by_tables.exposure.node_entropy.mean + 0.12
    assert sampled.price.hops == pytest.approx(by_tables.price.hops, rel=0.05)
    assert often[0] <= 1.0 <= often[1]


def test_where_legs_take_too_long_they_are_played() -> None:
    """On a tree most would be cut off; the bound needs none to be followed to its end. A small tree needs no bound."""
    for size, is_bound in ((60, False), (250, True)):
        scheme = choose_scheme(barabasi_albert(size, 1, seed=1), "far:2", recipients=2)
        result = evaluate_scheme(scheme, effort=20, colluders=None)
        assert result.exposure.is_bound == is_bound
        assert result.exposure.how.startswith("upper bound") == is_bound
        assert result.price.hops > 100
        assert 0.0 < result.exposure.node_entropy.mean < math.log(size)


def test_a_bound_is_never_ranked_against_an_estimate() -> None:
    """However high it is; where there are only bounds, they are compared."""
    scheme = choose_scheme(SMALL, "far:2", walk=STRAIGHT)
    estimated = evaluate_scheme(scheme, colluders=None)
    exposure = replace(estimated.exposure, node_entropy=Estimate.exact(2.5), is_bound=True)
    bound = replace(estimated, exposure=exposure, price=Price(1.0, "played"))
    assert choose_candidate([bound, estimated], 0.97) is estimated
    assert choose_candidate([bound], 0.97) is bound


@pytest.mark.parametrize(
    ("graph", "share", "hops"),
    [
        (path(12), 0.774, 8.33),
        (path(20), 0.822, 13.67),
        (Graph.from_edges(16, np.array([[5 * leg + joint if joint else 0, 5 * leg + joint + 1]
            for leg in range(3) for joint in range(5)])), 0.843, 16.08),
    ],
    ids=["path 12", "path 20", "spider"],
)  # fmt: skip
def test_paths_and_trees_get_the_walk_that_never_turns_and_true_figures(
    graph: Graph, share: float, hops: float
) -> None:
    """As an outside computation has them; the simple walk keeps as much and takes seven times the hops."""
    result = recommend(graph).design
    assert result.exposure.how == "exact"
    assert result.scheme.walk == STRAIGHT
    assert result.entropy_share == pytest.approx(share, abs=0.0006)
    assert result.price.hops == pytest.approx(hops, abs=0.06)


def _reachable(graph: Graph, source: int, law: np.ndarray, recipients: int) -> set[int]:
    """Who may open first what a simple walk carries from ``source``, by trying every set and every way."""
    openers = set()
    for chosen in itertools.combinations(np.flatnonzero(law).tolist(), recipients):
        visited, front = {source}, [source]
        while front:
            for node in graph.neighbours(front.pop()).tolist():
                if node in chosen:
                    openers.add(node)
                elif node not in visited:
                    visited.add(node)
                    front.append(node)
    return openers


@pytest.mark.parametrize("listed", [True, False], ids=["all sets", "ways"])
def test_members_who_never_train_are_named(listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against every set of every source tried; a mutant that asks for one recipient less finds nobody."""
    if not listed:
        monkeypatch.setattr(Scheme, "_lists_sets", False)
    for size, recipients in itertools.product((6, 8, 10), (2, 3, 4)):
        for seed in range(4):
            graph = random_regular(size, 3, seed=seed)
            law = choose_scheme(graph, "far:2").law
            if law.n_choices.min() < recipients:
                continue
            leads = np.zeros((size, size), dtype=bool)
            for source in range(size):
                row = law.matrix[[source]].toarray().ravel()
                leads[source, list(_reachable(graph, source, row, recipients))] = True
            # Whom a source leads to, however many legs it takes.
            closure = np.linalg.matrix_power(leads + np.eye(size), size) > 0
            closed = [np.flatnonzero(row) for row in closure if np.all(closure[np.ix_(row, row)])]
            most = max(len(nodes) for nodes in closed)
            assert len(Scheme(graph, law, recipients=recipients).idle_nodes) == size - most
    scheme = choose_scheme("rrg:8:3:seed=1", "far:2", recipients=4)
    assert scheme.idle_nodes.tolist() == [2, 5, 6, 7]
    with pytest.raises(InvalidParameterError, match="2, 5, 6, 7 may never train"):
        evaluate_scheme(scheme)
    assert not choose_scheme("rrg:8:3:seed=1", "far:2", recipients=3).idle_nodes.size


def test_who_does_not_turn_round_gives_colluders_their_share_and_no_more() -> None:
    """The simple walk comes back to the source, which then hands its message over a second time."""
    graph = random_regular(100, 3, seed=1)
    named = {}
    for walk in (SIMPLE, STRAIGHT):
        scheme = choose_scheme(graph, "far:3", walk=walk, recipients=8)
        named[walk] = evaluate_scheme(scheme, colluders=[0.1]).exposure.named_by_colluders[0.1].mean
    assert named[STRAIGHT] < 0.115 < named[SIMPLE]


def test_walks_tell_of_the_predecessor_what_chains_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a graph small enough for both, with either walk."""
    for walk in (SIMPLE, STRAIGHT):
        scheme = choose_scheme(random_regular(40, 3, seed=1), "far:3", walk=walk, recipients=4)
        exact = guesses(evaluate_scheme(scheme, effort=20, colluders=[]))
        monkeypatch.setattr("veilwalk.design._openings._EXACT_NODES", 0)
        sampled = guesses(evaluate_scheme(scheme, effort=20, colluders=[]))
        monkeypatch.undo()
        assert sampled[0].how != exact[0].how
        for estimate, value in zip(sampled, exact, strict=True):
            assert estimate.mean == pytest.approx(value.mean, abs=0.02)


def test_one_recipient_is_known_to_its_source() -> None:
    """It chose it; nothing is left to guess."""
    scheme = choose_scheme(SMALL, "far:2", walk=STRAIGHT)
    assert guesses(evaluate_scheme(scheme, effort=20, colluders=[]))[0].mean == pytest.approx(1.0)


@pytest.mark.parametrize("walk", [SIMPLE, STRAIGHT], ids=str)
def test_one_recipient_is_exact_on_a_complete_network(walk: Walk) -> None:
    """More than 750 links: nothing is sampled. Back after two or three hops it was sealed on the way: by few."""
    exposure = evaluate_scheme(choose_scheme(complete(40), "far:1", walk=walk, recipients=1), colluders=()).exposure
    worst = present(exposure.worst_arc_hit_ratio)
    assert {exposure.how, present(exposure.worst_percent_hit_ratio).how, worst.how} == {"exact"}
    assert worst.mean == pytest.approx(1.0 if walk == SIMPLE else 0.5)
    # Each of the others is as likely to have been the last to seal, but for the last hop, which is so twice as often.
    top, rest = present(exposure.hit_ratio).mean, 38
    assert top == pytest.approx(0.05 if walk == SIMPLE else 0.0493746, rel=1e-5)
    spread = -top * math.log(top) - (1 - top) * math.log((1 - top) / rest)
    assert exposure.node_entropy.mean == pytest.approx(spread)
    assert present(exposure.predecessor_guess).mean == pytest.approx(1)


def test_the_advice_keeps_the_floor_with_least_bytes() -> None:
    """The quick search finds what looking at everything finds, twice the same."""
    graph = random_regular(60, 3, seed=1)
    search = recommend(graph, keep=0.95, exhaustive=True)
    assert search.meets_floor
    assert search.design.least_entropy_share >= 0.95
    cheaper = [row for row in search.candidates if row.bytes_per_update < search.design.bytes_per_update / 1.1]
    assert cheaper
    assert all(row.least_entropy_share < 0.95 for row in cheaper)
    assert search.scheme.recipients > 1
    assert key(recommend(graph, keep=0.95)) == key(recommend(graph, keep=0.95)) == key(search)


@pytest.mark.parametrize(
    ("spec", "keep"),
    [
        ("rrg:60:3:seed=1", 0.95),
        ("rrg:60:4:seed=2", 0.9),
        ("ba:60:2:seed=1", 0.9),
        ("ws:60:4:0.2:seed=1", 0.9),
        ("torus:6:6", 0.97),
        ("hypercube:5", 0.97),
        ("ba:50:2:seed=1", 0.97),
        ("ring:12", 0.97),
    ],
)
def test_the_quick_search_chooses_as_the_exhaustive_one(spec: str, keep: float) -> None:
    """More candidates, the same choice: also by the rule applied to all of them."""
    quick, thorough = (recommend(spec, keep=keep, exhaustive=exhaustive) for exhaustive in (False, True))
    assert key(quick) == key(thorough)
    assert len(quick.candidates) <= len(thorough.candidates)
    rows = [row for row in thorough.candidates if row.scheme.walk == quick.scheme.walk]
    assert choose_candidate(rows, keep).summary() == quick.design.summary()


def test_members_get_a_regular_graph() -> None:
    """Of degree three, where the graph is free."""
    search = recommend(members=40)
    assert search.scheme.graph.digest == random_regular(40, 3, seed=0).digest
    for graph, members in ((None, None), (SMALL, 40)):
        with pytest.raises(InvalidParameterError) as refused:
            recommend(graph, members=members)
        assert refused.value.name == "members"


def test_slots_weigh_less_beside_a_larger_model() -> None:
    """So it is sealed for more."""
    small, large = Sealing(model_bytes=1_000), Sealing(model_bytes=10_000_000)
    assert large.message_bytes(16) / large.message_bytes(1) < 1.01
    assert small.message_bytes(16) / small.message_bytes(1) > 1.9


def test_small_networks_get_the_nearest() -> None:
    """Nothing keeps the floor there, and that is said; where the default refuses, so does this."""
    search = recommend(ring(9), exhaustive=True)
    assert not search.meets_floor
    assert search.scheme.recipients == 1
    assert search.scheme.walk == SIMPLE
    for graph in (hypercube(3), path(4)):
        assert recommend(graph).scheme.law.name == "far:2"
    assert recommend(complete(6)).scheme.law.name == "far:1"


@pytest.mark.parametrize(
    ("graph", "recipients", "law"),
    [
        (random_regular(100, 3, seed=1), 4, "far:4"),
        (random_regular(12, 3, seed=1), 2, "far:2"),
        (random_regular(30, 3, seed=1), 2, "far:3"),
        (random_regular(30, 3, seed=1), 25, "far:2"),
        (ring(9), 1, "far:2"),
        (Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)]), 1, "far:2"),
    ],
)
def test_without_a_law_one_is_taken_that_fits(graph: Graph, recipients: int, law: str) -> None:
    """The farthest, up to four hops, that allows every node so many; smaller networks get a nearer one."""
    assert design(graph, recipients=recipients).scheme.law.name == law


@pytest.mark.parametrize("recipients", [0, -1, 9, 500, "2", 1.5, True])
@pytest.mark.parametrize("law", [None, "far:2"])
def test_recipients_are_refused_for_what_they_are(recipients: int, law: str | None) -> None:
    """And not for the distance of a law that nobody named; eight is the most in this network."""
    with pytest.raises(InvalidParameterError) as refused:
        design(random_regular(12, 3, seed=1), law, recipients=recipients)
    assert (refused.value.name, refused.value.value) == ("recipients", recipients)


@pytest.mark.parametrize("keep", [0.0, -1.0, 1.01, math.nan])
def test_a_floor_outside_is_refused(keep: float) -> None:
    """It is a share."""
    with pytest.raises(InvalidParameterError, match="keep"):
        recommend(ring(9), keep=keep)


def test_bad_numbers_are_refused_in_one_line(tmp_path: object) -> None:
    """None, more than a row has, a model of nothing, a suite that is not, a law of another graph."""
    for bad in (0, 12):
        with pytest.raises(InvalidParameterError, match="recipients"):
            design(SMALL, "far:2", recipients=bad)
    with pytest.raises(InvalidParameterError, match="model_bytes"):
        Sealing(model_bytes=0)
    with pytest.raises(InvalidParameterError, match="suite"):
        Sealing(suite="rot13")  # type: ignore[arg-type]
    path = f"{tmp_path}/law.npz"
    save_scheme(path, choose_scheme(SMALL, "far:2", recipients=3))
    with pytest.raises(InvalidParameterError, match="law"):
        design(random_regular(14, 3, seed=3), path)
