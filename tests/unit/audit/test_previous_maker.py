"""The maker of the update before, scored on walks against the exact chance of the design."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.audit import Knowledge, Observer, audit
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import Scheme, choose_scheme
from veilwalk.engine import open_engine
from veilwalk.graphs import random_regular

GRAPH = random_regular(40, 3, seed=1)


@pytest.mark.parametrize(("walk", "recipients"), [("simple", 4), ("non-backtracking", 4), ("simple", 1)])
def test_the_previous_maker_scores_what_the_chain_predicts(walk: str, recipients: int) -> None:
    """Within twice the interval; the mutant that knows its set but not its first hop hits less often."""
    scheme = choose_scheme(GRAPH, "far:2", walk=walk, recipients=recipients)
    result = audit(scheme, updates=40_000, observers="previous-maker")["previous-maker"]
    openings = scheme.chain.mean_openings(scheme.law.matrix, recipients, n_sets=100, seed=1)
    low, high = result.interval
    slack = (high - low) / 2 + openings.sender_error
    assert abs(result.hit_ratio - openings.sender_guess) < 2 * slack + 1e-12
    assert abs(result.overall["top_posterior"] - openings.sender_guess) < 2 * slack + 1e-12
    if recipients > 1:
        assert openings.predecessor_guess < low


class Neighbourly(Observer):
    """Guesses evenly among the neighbours of the last hop."""

    name, sees = "neighbourly", "the last hop"

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> FloatArray:  # type: ignore[override]
        """Return a bare array of weights."""
        near = knowledge.graph.adjacency.toarray()[knowledge.sightings.last_hop[rows]].astype(np.float64)
        return np.asarray(near / near.sum(axis=1, keepdims=True))


class Unscaled(Neighbourly):
    """Returns weights that do not sum to one."""

    name = "unscaled"

    def posterior(self, knowledge: Knowledge, rows: IntArray) -> FloatArray:  # type: ignore[override]
        """Return twice the weights."""
        return 2 * super().posterior(knowledge, rows)


SCHEME: Scheme = choose_scheme(GRAPH, "uniform-node", support=(2, 3))


def test_observers_of_third_parties_stand_beside_built_in_ones() -> None:
    """As a class or an instance, with names, on an executor; what is no posterior is refused."""
    by_class, by_instance = (
        audit(SCHEME, updates=2_000, observers=("prior", entry)) for entry in (Neighbourly, Neighbourly())
    )
    assert list(by_class) == ["prior", "neighbourly"]
    with open_engine("process:2") as workers:
        elsewhere = audit(SCHEME, updates=2_000, observers=("prior", Neighbourly()), executor=workers)
    for result in (by_instance, elsewhere):
        np.testing.assert_array_equal(result["neighbourly"].scored.scores, by_class["neighbourly"].scored.scores)
    with pytest.raises(InvalidParameterError, match="unscaled"):
        audit(SCHEME, updates=200, observers=(Unscaled,))


def test_an_observer_that_cannot_travel_is_refused_on_an_executor() -> None:
    """A class inside a function has no name that another process could import."""

    class Local(Neighbourly):
        name = "local"

    with open_engine("process:2") as workers, pytest.raises(InvalidParameterError, match="local"):
        audit(SCHEME, updates=200, observers=(Local,), executor=workers)
