"""Laws for any graph end to end: what they say about themselves, and that optimal is never worse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from veilwalk.chains import Chain
from veilwalk.core.errors import InfeasibleDesignError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk
from veilwalk.design import (
    Channel,
    DestinationLaw,
    LawDesigner,
    design,
    exact_window_likelihood,
)
from veilwalk.design import _paper as paper_module
from veilwalk.design._optimal import Certificate
from veilwalk.design._paper import choose_return_time, window_entropies
from veilwalk.graphs import Graph, barabasi_albert, distances, erdos_renyi, random_regular, torus, watts_strogatz

BA = barabasi_albert(40, 2, seed=1)
SUPPORT = DistanceSupport(2, 4)
GRAPHS = {
    "rrg": (random_regular(48, 3, seed=1), DistanceSupport(2, 4)),
    "er": (erdos_renyi(45, 5.0, seed=6), DistanceSupport(2, 4)),
    "ba": (barabasi_albert(50, 2, seed=1), DistanceSupport(2, 4)),
    "ws": (watts_strogatz(50, 4, 0.2, seed=1), DistanceSupport(2, 5)),
}


def every_hop(chain: Chain, law: DestinationLaw, hops: float) -> Channel:
    """The channel with all return times told apart, up to a horizon that one delivery in fifty passes."""
    sources, tables = [], []
    for one in chain.deliveries(law.matrix.toarray(), int(6 * hops)):
        times = np.concatenate((one.joint.sum(axis=1), one.beyond.sum(axis=0)[np.newaxis]))
        sources.append(one.sources)
        tables.append(times / times.sum(axis=0))
    return Channel("return-time", "exact, every hop", int(6 * hops), tuple(sources), tuple(tables))


@pytest.mark.parametrize(("name", "walk"), [*((name, "simple") for name in GRAPHS), ("ba", "non-backtracking")])
def test_optimal_is_never_worse_at_equal_hops(name: str, walk: str) -> None:
    """Against uniform-node, balanced and not, each with the same prior and no more hops.

    Both laws are judged by their own exact channels, every return time told apart: nothing is held fixed.
    """
    graph, support = GRAPHS[name]
    designer = LawDesigner(graph, support=support, walk=Walk(walk))
    for law in (designer.uniform, designer.uniform.balance()):
        hops = law.mean_hops(designer.hops)
        best = designer.optimal(law, hops).law
        assert best.mean_hops(designer.hops) <= hops * (1 + 1e-9)
        np.testing.assert_allclose(best.source_prior, law.source_prior, atol=1e-9)
        simple, optimal = (every_hop(designer.chain, one, hops).expose(one) for one in (law, best))
        gained = optimal.node_entropy.mean - simple.node_entropy.mean
        # It gains, and next to nothing: the frontier is flat.
        assert 0 < gained < 0.002


def test_a_start_that_is_best_with_its_own_channel_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the channel derived anew tells every source apart, the law it started from is handed back."""
    designer = LawDesigner(BA, support=SUPPORT)
    law = designer.uniform.balance()
    honest = designer.channel

    def telling(one: DestinationLaw, observer: str = "return-time") -> Channel:
        found = honest(one, observer)
        if one is law:
            return found
        # As many observations as before, so that the two can be compared; a source for each of the first.
        tables = tuple(np.zeros_like(table) for table in found.tables)
        for table in tables:
            table[np.arange(table.shape[1]) % len(table), np.arange(table.shape[1])] = 1.0
        return Channel(observer, "telling", found.horizon, found.sources, tables)

    monkeypatch.setattr(designer, "channel", telling)
    best = designer.optimal(law, law.mean_hops(designer.hops))
    assert best.law is law


def test_uniform_node_states_the_prior_it_induces() -> None:
    """On an irregular graph nodes with wider supports update more often; balanced, all alike."""
    found = design(BA, "uniform-node", support=SUPPORT)
    sizes = (found.scheme.law.matrix.toarray() > 0).sum(axis=0)
    np.testing.assert_allclose(found.scheme.law.source_prior, sizes / sizes.sum(), rtol=1e-9)
    assert not found.is_balanced
    assert {one.prior for one in found.certificates} == {"uniform", "its own"}
    even = design(BA, "uniform-node", support=SUPPORT, balanced=True)
    np.testing.assert_allclose(even.scheme.law.source_prior, 1 / 40, atol=1e-10)
    assert [one.prior for one in even.certificates] == ["uniform"]
    assert 0 <= even.certificates[0].shortfall < 0.001


def test_the_floor_is_definition_one() -> None:
    """The least window entropy over destinations at the return time designed for, the worst named first."""
    found = design(BA, "uniform-node", support=SUPPORT)
    designer = LawDesigner(BA, support=SUPPORT)
    assert found.window is not None
    assert (found.window.return_time, found.window.chosen_by) == choose_return_time(designer.chain, SUPPORT, 0.3)
    likelihood = exact_window_likelihood(designer.chain, found.window.return_time, 5)
    by_node = window_entropies(found.scheme.law, likelihood, distances(BA))[0]
    assert found.window.node_entropy_nats == by_node.min()
    assert by_node[found.window.worst_destinations(1)[0]] == by_node.min()


def test_budgets_are_kept_by_every_law() -> None:
    """The nearest law with the same prior, or the best one; and the price of saving hops by the law alone is steep."""
    for name in ("uniform-node", "optimal"):
        free, tight = (design(BA, name, support=SUPPORT, balanced=True, budget_hops=b) for b in (math.inf, 68.0))
        assert free.price.hops > 68.0 >= tight.price.hops > 67.99
        assert tight.exposure.node_entropy.mean < free.exposure.node_entropy.mean - 0.02
    ample = design(BA, "optimal", support=SUPPORT, budget_hops=1000.0)
    assert ample.exposure.node_entropy.mean >= free.exposure.node_entropy.mean
    with pytest.raises(InfeasibleDesignError, match="budget of 12 hops"):
        design(BA, "optimal", support=SUPPORT, budget_hops=12.0)


def test_optimal_certifies_both_laws_on_the_channel_that_was_held_fixed() -> None:
    """The best one, and the simple one it began with."""
    found = design(BA, "optimal", support=SUPPORT, observer="last-hop")
    assert found.is_balanced
    assert found.exposure.observer == "last-hop"
    optimal, simple = found.certificates
    assert 0 <= optimal.shortfall < 2e-6 < simple.shortfall < 1e-3
    assert simple.best_found <= simple.bound == optimal.bound
    own = design(BA, "optimal", support=SUPPORT, balanced=False)
    assert [one.prior for one in own.certificates] == ["its own", "its own"]
    assert np.ptp(own.scheme.law.source_prior) > 0.001


def test_certificates_speak_plainly() -> None:
    """Within a share, rounded up; or better, where the law is not balanced."""
    about: dict[str, Any] = {"law": "uniform-node", "prior": "uniform", "budget_hops": 100.0}
    near = Certificate(**about, value=3.0, best_found=3.0, bound=3.00001)
    assert near.in_words() == (
        "uniform-node is within 0.001% of the best any balanced law could do on this graph, in node entropy, with up "
        "to 100.0 hops, for this walk and observation channel"
    )
    past = Certificate(**about, value=3.3, best_found=3.0, bound=3.0)
    assert "does 10.000% better than any balanced law could" in past.in_words()


def test_without_a_balanced_law_as_cheap_only_its_own_prior_is_compared() -> None:
    """A law that favours hubs is cheaper than any balanced one can be: it buys hops with bias."""
    designer = LawDesigner(BA, support=SUPPORT)
    weights = designer.uniform.matrix.toarray() * BA.degrees.astype(np.float64)
    law = designer.uniform.with_rows(weights)
    assert law.mean_hops(designer.hops) < 0.85 * designer.uniform.balance().mean_hops(designer.hops)
    found = designer.certify("by degree", law, designer.channel(law))
    assert [one.prior for one in found] == ["its own"]
    assert found[0].shortfall >= 0


def test_slowly_mixing_graphs_get_an_affordable_return_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the paper's rule would take hours, the longest return time the notion can afford, and it says so."""
    designer = LawDesigner(torus(5, 6), support=SUPPORT, walk=Walk("non-backtracking"))
    assert choose_return_time(designer.chain, SUPPORT, 0.3)[1] == "the paper's rule"
    monkeypatch.setattr(paper_module, "_WINDOW_PRODUCTS", 1e6)
    kappa, why = choose_return_time(designer.chain, SUPPORT, 0.3)
    assert kappa >= 5
    assert why.startswith("the longest affordable")


def test_bad_requests_get_one_clear_line() -> None:
    """Names, budgets, return times and windows that cannot be."""
    graph: Graph = torus(5, 6)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "moon"}, "law = 'moon'"),
        ({"name": "equalised"}, "paper-exact or optimal"),
        ({"name": "optimal", "budget_hops": -1.0}, "budget_hops = -1.0"),
        ({"name": "optimal", "observer": "window"}, "observer = 'window'"),
        ({"name": "uniform-node", "return_time": 3.0}, "return time = 3.0"),
        ({"name": "uniform-node", "window_radius": -1}, "window = -1"),
        ({"name": "uniform-node", "tail_probability": 1.0}, "tail = 1.0"),
        ({"name": "uniform-node", "walk": "least-recent"}, "walk = 'least-recent'"),
    ]
    for options, culprit in cases:
        with pytest.raises(InvalidParameterError) as caught:
            design(graph, options.pop("name"), support=SUPPORT, **options)
        assert culprit in str(caught.value)
        assert "\n" not in str(caught.value)
