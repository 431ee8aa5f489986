"""Designs by closed form, and what they say about themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veilwalk import theory
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw, design_regular

MODEL = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=300, degree=3), support=DistanceSupport(2, 6))


def test_the_papers_design_comes_out() -> None:
    """kappa = 634, log 5 nats at the design, a floor above 1.4 nats, about 575 hops."""
    found = design_regular(MODEL)
    assert found.return_time_design == 634
    assert found.distance_entropy_nats == pytest.approx(math.log(5), abs=1e-12)
    assert 1.4 < found.anonymity_floor_nats < math.log(5)
    assert found.mean_iteration_hops == pytest.approx(574.949, abs=1e-3)
    assert isinstance(found.law, DistanceLaw)
    np.testing.assert_array_equal(found.law.distance_pmf, found.distance_pmf)


def test_printed_formulas_give_the_papers_own_numbers_and_say_so() -> None:
    """alpha = 0.53 and the law with the printed truncated mean, under a warning."""
    found = design_regular(MODEL, formulas="printed")
    assert found.anonymity_floor_nats == pytest.approx(0.53, abs=5e-3)
    assert found.mean_iteration_hops == pytest.approx(575.77, abs=5e-3)
    assert any("printed" in warning for warning in found.warnings)


def test_bending_assumptions_are_named_with_their_size() -> None:
    """At c = 3 a quarter of the returns retrace their way; the warning says so."""
    warnings = design_regular(MODEL).warnings
    assert any(w.startswith("ass:frt ignores 25.0%") for w in warnings)
    assert not any(w.startswith("ass:fht") for w in warnings)
    short = design_regular(MODEL, return_time=30.0)
    assert any(w.startswith("ass:fht") for w in short.warnings)


def test_a_high_degree_leaves_no_assumption_bent() -> None:
    """With many neighbours the walk gets lost at once: no warning remains."""
    walk = theory.WalkModel(n_nodes=10_000, degree=20)
    model = theory.AnonymityModel(walk=walk, support=DistanceSupport(2, 3))
    assert design_regular(model).warnings == ()


@pytest.mark.parametrize(
    ("nodes", "degree", "warned"), [(300, 3, False), (300, 20, False), (300, 40, True), (300, 150, True), (20, 3, True)]
)
def test_graphs_too_dense_for_trees_are_warned_of(nodes: int, degree: int, warned: bool) -> None:
    """Shell sizes that miss neighbours, or hold more nodes than there are, make every closed form wrong."""
    model = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=nodes, degree=degree), support=DistanceSupport(2, 2))
    found = [line for line in design_regular(model).warnings if line.startswith("ass:tree")]
    assert bool(found) == warned


def test_a_complete_graph_has_no_far_nodes() -> None:
    """c = 299 on 300 nodes: refused, where the formulas would find 110 nodes two hops away."""
    model = theory.AnonymityModel(walk=theory.WalkModel(n_nodes=300, degree=299), support=DistanceSupport(2, 2))
    with pytest.raises(InvalidParameterError, match="complete graph"):
        design_regular(model)


@pytest.mark.parametrize("kappa", [6.0, 0.0, -3.0, math.nan])
def test_return_times_within_the_support_are_refused(kappa: float) -> None:
    """In either set of formulas."""
    for formulas in ("corrected", "printed"):
        with pytest.raises(InvalidParameterError, match="return time"):
            design_regular(MODEL, return_time=kappa, formulas=formulas)


def test_unknown_formulas_are_refused_by_name() -> None:
    """One line that lists what there is."""
    with pytest.raises(InvalidParameterError, match="corrected, printed"):
        design_regular(MODEL, formulas="guessed")
