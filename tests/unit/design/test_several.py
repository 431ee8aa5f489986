"""Sealed for several: what a design of it says, against exact chains, and for how many it advises to seal."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

from veilwalk.core.errors import GraphError, InvalidParameterError
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import (
    Sealing,
    choose_scheme,
    design_several,
    first_sights,
    predecessor_guess,
    recipients_frontier,
    recommended_scheme,
    save_scheme,
    what_is_hidden,
)
from veilwalk.design._hidden import class_bound
from veilwalk.graphs import Graph, barabasi_albert, complete, hypercube, random_regular, ring

STRAIGHT = Walk("non-backtracking")
SMALL = random_regular(14, 3, seed=2)


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


def test_price_entropy_and_predecessor_are_those_of_every_set_summed() -> None:
    """Against absorbing chains, set by set; a mutant that draws one recipient less is told apart."""
    price, entropy, guess = _exact_simple(SMALL, 2, 3)
    found = design_several(SMALL, "far:2", recipients=3)
    low, high = found.hidden.price.interval or (0.0, 0.0)
    assert low - 0.02 < price < high + 0.02
    assert found.hidden.last_hop_nats.low < entropy < found.hidden.last_hop_nats.high
    assert found.hidden.last_hop_nats.mean == pytest.approx(entropy, abs=0.005)
    assert found.predecessor is not None
    assert found.predecessor.kind.endswith("exact for each")
    assert found.predecessor.knows_set.low - 0.01 < guess < found.predecessor.knows_set.high + 0.01
    assert found.predecessor.knows_first_hop.mean >= found.predecessor.knows_set.mean
    fewer = what_is_hidden(choose_scheme(SMALL, "far:2", recipients=2))
    assert abs(fewer.price.hops - price) > 1.0
    assert abs(fewer.last_hop_nats.mean - entropy) > 0.02


def test_the_jackknife_takes_off_what_few_walks_cost() -> None:
    """With few walks the plain entropy of what was met is far too low, and the one told is not."""
    scheme = choose_scheme(random_regular(60, 3, seed=1), "far:3", walk=STRAIGHT, recipients=4)
    few, many = what_is_hidden(scheme, effort=20), what_is_hidden(scheme, effort=400)
    assert few.last_hop_nats.mean == pytest.approx(many.last_hop_nats.mean, abs=0.02)
    assert few.top_posterior is not None
    assert many.top_posterior is not None
    # A guess fitted on other walks is too low, on the same too high; more walks bring them together.
    assert few.top_posterior[0] < many.top_posterior[1]
    assert few.top_posterior[1] - few.top_posterior[0] > 2 * (many.top_posterior[1] - many.top_posterior[0])


@pytest.mark.parametrize("graph", [random_regular(100, 3, seed=1), barabasi_albert(100, 2, seed=1)], ids=["rrg", "ba"])
def test_the_bound_by_classes_is_above_and_near(graph: Graph) -> None:
    """On a graph small enough for both; below what nothing at all would tell."""
    scheme = choose_scheme(graph, "far:2", walk=STRAIGHT, recipients=8)
    bound, price, often = class_bound(scheme, 8_192)
    told = what_is_hidden(scheme)
    assert told.last_hop_nats.low < bound.high
    assert bound.mean < told.last_hop_nats.mean + 0.12
    assert price.hops == pytest.approx(told.price.hops, rel=0.05)
    assert often[0] <= 1.0 <= often[1]


def test_where_legs_take_too_long_they_are_played() -> None:
    """On a tree most would be cut off; the bound needs none to be followed to its end."""
    scheme = choose_scheme(barabasi_albert(60, 1, seed=1), "far:2", recipients=2)
    found = what_is_hidden(scheme, effort=20)
    assert found.kind.startswith("upper bound")
    assert found.price.hops > 100
    assert 0.0 < found.last_hop_nats.mean < math.log(60)


def test_who_does_not_turn_round_gives_colluders_their_share_and_no_more() -> None:
    """The simple walk comes back to the source, which then hands its message over a second time."""
    graph = random_regular(100, 3, seed=1)
    named = {}
    for walk in (SIMPLE, STRAIGHT):
        scheme = choose_scheme(graph, "far:3", walk=walk, recipients=8)
        (named[walk],) = first_sights(scheme, [0.1], hops=20.0)
    assert named[STRAIGHT].share == 0.1
    assert named[STRAIGHT].times_floor < 1.15 < named[SIMPLE].times_floor


def test_walks_tell_of_the_predecessor_what_chains_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a graph small enough for both, with either walk."""
    for walk in (SIMPLE, STRAIGHT):
        scheme = choose_scheme(random_regular(40, 3, seed=1), "far:3", walk=walk, recipients=4)
        exact = predecessor_guess(scheme, hops=15.0)
        monkeypatch.setattr("veilwalk.design._hidden._EXACT_NODES", 0)
        walked = predecessor_guess(scheme, hops=15.0)
        monkeypatch.undo()
        assert exact is not None
        assert walked is not None
        assert walked.kind != exact.kind
        assert walked.knows_set.mean == pytest.approx(exact.knows_set.mean, abs=0.02)
        assert walked.knows_first_hop.mean == pytest.approx(exact.knows_first_hop.mean, abs=0.02)


def test_one_recipient_is_known_to_its_source() -> None:
    """It chose it; nothing is left to guess."""
    scheme = choose_scheme(SMALL, "far:2", walk=STRAIGHT)
    found = predecessor_guess(scheme, hops=14.0)
    assert found is not None
    assert found.knows_set.mean == pytest.approx(1.0)


def test_the_advice_keeps_the_floor_with_least_bytes() -> None:
    """The quick search finds what looking at everything finds, twice the same."""
    graph = random_regular(60, 3, seed=1)
    found = recipients_frontier(graph, keep=0.95, walks=[STRAIGHT])
    assert found.is_kept
    assert found.best.kept_at_least >= 0.95
    cheaper = [one for one in found.points if one.bytes_per_update < found.best.bytes_per_update / 1.1]
    assert cheaper
    assert all(one.kept_at_least < 0.95 for one in cheaper)
    advised = recommended_scheme(graph, keep=0.95)
    best = found.best.scheme
    assert (advised.law.name, advised.walk, advised.recipients) == (best.law.name, best.walk, best.recipients)
    assert recommended_scheme(graph, keep=0.95).recipients == advised.recipients
    assert advised.recipients > 1


def test_slots_weigh_less_beside_a_larger_model() -> None:
    """So it is sealed for more."""
    small, large = Sealing(model_bytes=1_000), Sealing(model_bytes=10_000_000)
    assert large.message_bytes(16) / large.message_bytes(1) < 1.01
    assert small.message_bytes(16) / small.message_bytes(1) > 1.9


def test_small_networks_get_the_nearest() -> None:
    """Nothing keeps the floor there, and that is said; where the default refuses, so does this."""
    found = recipients_frontier(ring(9))
    assert not found.is_kept
    assert found.best.scheme.recipients == 1
    assert found.best.scheme.walk == SIMPLE
    for graph in (hypercube(3), Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)])):
        assert recommended_scheme(graph).law.name == "far:2"
    with pytest.raises(GraphError, match="take a sparser graph"):
        recommended_scheme(complete(6))


@pytest.mark.parametrize(
    ("graph", "recipients", "law"),
    [
        (random_regular(100, 3, seed=1), 4, "far:4"),
        (random_regular(12, 3, seed=1), 2, "far:2"),
        (random_regular(30, 3, seed=1), 2, "far:3"),
        (random_regular(30, 3, seed=1), 25, "far:2"),
        (ring(9), None, "far:2"),
        (Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)]), 1, "far:2"),
    ],
)
def test_without_a_law_one_is_taken_that_fits(graph: Graph, recipients: int | None, law: str) -> None:
    """The farthest, up to four hops, that allows every node so many; smaller networks get a nearer one."""
    assert design_several(graph, recipients=recipients).scheme.law.name == law


@pytest.mark.parametrize("recipients", [0, -1, 9, 500, "2", 1.5, True])
@pytest.mark.parametrize("law", [None, "far:2"])
def test_recipients_are_refused_for_what_they_are(recipients: int, law: str | None) -> None:
    """And not for the distance of a law that nobody named; eight is the most in this network."""
    with pytest.raises(InvalidParameterError) as refused:
        design_several(random_regular(12, 3, seed=1), law, recipients=recipients)
    assert (refused.value.name, refused.value.value) == ("recipients", recipients)


@pytest.mark.parametrize("keep", [0.0, -1.0, 1.01, math.nan])
def test_a_floor_outside_is_refused(keep: float) -> None:
    """It is a share."""
    with pytest.raises(InvalidParameterError, match="keep"):
        recommended_scheme(ring(9), keep=keep)


def test_bad_numbers_are_refused_in_one_line(tmp_path: object) -> None:
    """None, more than a row has, a model of nothing, a suite that is not, a law of another graph."""
    for bad in (0, 12):
        with pytest.raises(InvalidParameterError, match="recipients"):
            design_several(SMALL, "far:2", recipients=bad)
    with pytest.raises(InvalidParameterError, match="model_bytes"):
        Sealing(model_bytes=0)
    with pytest.raises(InvalidParameterError, match="suite"):
        Sealing(suite="rot13")  # type: ignore[arg-type]
    path = f"{tmp_path}/law.npz"
    save_scheme(path, choose_scheme(SMALL, "far:2", recipients=3))
    with pytest.raises(InvalidParameterError, match="law"):
        design_several(random_regular(14, 3, seed=3), path)
