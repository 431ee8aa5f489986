"""A law of your own: a matrix or a function of the graph goes through design, scheme and audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from veilwalk.audit import audit
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import choose_scheme, design, save_scheme
from veilwalk.graphs import Graph, distances, random_regular

GRAPH = random_regular(20, 3, seed=1)


def by_square(graph: Graph) -> np.ndarray:
    """Weights that grow with the square of the distance, from two hops on."""
    hops = distances(graph).astype(np.float64)
    weights = np.where(hops >= 2, hops**2, 0.0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


DENSE = by_square(GRAPH)


@pytest.mark.parametrize(
    "law",
    [DENSE, DENSE.tolist(), sparse.csr_array(DENSE), sparse.lil_array(DENSE), by_square],
    ids=lambda law: type(law).__name__,
)
def test_every_form_of_a_law_is_the_same_law(law: Any) -> None:
    """Dense, nested lists, sparse of any kind, and a function; the support is read from the entries."""
    result = design(GRAPH, law)
    np.testing.assert_array_equal(result.scheme.law.matrix.toarray(), DENSE)
    assert (result.scheme.law.support.lo, result.scheme.law.support.hi) == (2, distances(GRAPH).max())
    assert result.price.kind == result.exposure.how == "exact"
    assert result.certificates[0].value == pytest.approx(result.exposure.node_entropy.mean)


def test_it_takes_the_options_of_a_law_by_name() -> None:
    """Balance and budget are met; another number of recipients is sampled."""
    free = design(GRAPH, by_square, balanced=True)
    tight = design(GRAPH, by_square, balanced=True, budget_hops=0.98 * free.price.hops)
    assert tight.price.hops == pytest.approx(0.98 * free.price.hops, rel=1e-6)
    assert tight.prior_range == pytest.approx((1.0, 1.0))
    several = design(GRAPH, by_square, recipients=4)
    assert several.price.hops < free.price.hops / 2
    assert several.exposure.observer == "opener"


def test_it_is_audited_and_saved(tmp_path: Path) -> None:
    """The scheme goes to the audit, and comes back from its file with its number of recipients."""
    scheme = choose_scheme(GRAPH, by_square, recipients=2)
    assert scheme.law.name == "by_square"
    report = audit(scheme, updates=2_000, observers=("prior", "last-hop"))
    assert report["last-hop"].hit_ratio > report["prior"].hit_ratio
    save_scheme(tmp_path / "own.npz", scheme)
    again = design(GRAPH, str(tmp_path / "own.npz"))
    assert again.scheme.recipients == 2
    assert again.exposure.observer == "opener"


@pytest.mark.parametrize(
    "law",
    [
        DENSE[:5],
        2 * DENSE,
        -DENSE,
        np.eye(20),
        np.full((20, 20), np.nan),
        [0.5, 0.5],
        5,
        lambda _: None,
    ],
)
def test_what_is_not_a_law_is_refused_in_one_line(law: Any) -> None:
    """By the name of the parameter."""
    for call in (design, choose_scheme):
        with pytest.raises(InvalidParameterError) as refused:
            call(GRAPH, law)
        assert refused.value.name.split(",")[0] == "law"
        assert "\n" not in str(refused.value)
