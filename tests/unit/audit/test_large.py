"""The audit that looks candidates up, against what exact posteriors know of the same run."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from veilwalk.audit import Audit, AuditSettings, audit
from veilwalk.core.arrays import FloatArray
from veilwalk.design import DestinationLaw, choose_scheme
from veilwalk.graphs import Graph, barabasi_albert, random_regular

OBSERVERS = ("prior", "return-time", "last-hop")
SETTINGS = AuditSettings(updates=40_000, seed=3, posterior="by-class", observers=OBSERVERS)
REGULAR, HUBS = random_regular(80, 3, seed=1), barabasi_albert(60, 2, seed=1)


@cache
def looked_up(graph: Graph) -> Audit:
    """The audit that looks up, of what two tests play."""
    return audit(choose_scheme(graph, "uniform-node", support=(2, 3)), SETTINGS)


@pytest.mark.parametrize("graph", [REGULAR, HUBS])
def test_looked_up_candidates_know_no_more_than_exact_posteriors(graph: Graph) -> None:
    """The run and the prior are the same; posteriors by class lose some hits, are calibrated, and beat the prior."""
    scheme = choose_scheme(graph, "uniform-node", support=(2, 3))
    exact = audit(scheme, SETTINGS, posterior="exact")
    large = looked_up(graph)
    assert large.plan.looked_up
    assert large.hops_per_update == exact.hops_per_update
    for column in ("node_entropy_nats", "distance_entropy_nats", "hit_ratio", "ndcg"):
        low, high = large["prior"].overall[f"{column}_interval"]
        # The other's sampling error is about as large; rounding where an entropy is the same for all.
        width = high - low + 1e-9
        assert low - width < exact["prior"].overall[column] < high + width
    for name in ("return-time", "last-hop"):
        crude, fine = large[name].overall, exact[name].overall
        width = crude["hit_ratio_interval"][1] - crude["hit_ratio_interval"][0]
        assert crude["node_entropy_nats_interval"][1] > fine["node_entropy_nats"]
        assert 0.8 * fine["hit_ratio"] - width < crude["hit_ratio"] < fine["hit_ratio"] + width
        assert crude["top_posterior"] == pytest.approx(crude["hit_ratio"], abs=width)
    # The named mutant: an observer that does not look.
    blind = large["prior"].overall["node_entropy_nats_interval"][0]
    assert large["last-hop"].node_entropy_nats < blind


def test_a_graph_that_is_large_is_looked_up_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers as where by-class is asked for by name."""
    named = looked_up(REGULAR)
    monkeypatch.setattr("veilwalk.core.sizes.LARGE_NODES", 80)
    large = audit(choose_scheme(REGULAR, "uniform-node", support=(2, 3)), SETTINGS, posterior="auto")
    assert [one.report for one in named.findings.values()] == [one.report for one in large.findings.values()]


def test_the_stationary_law_by_powers_is_the_direct_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a graph where sources differ in how often they come."""
    law = choose_scheme(HUBS, "uniform-node", support=(2, 3)).law
    monkeypatch.setattr("veilwalk.design._law._DIRECT_NODES", 0)
    again = DestinationLaw(law.support, law.graph_digest, law.matrix)
    np.testing.assert_allclose(again.source_prior, stationary(law), atol=1e-11)
    assert np.ptp(again.source_prior) > 1e-3


def stationary(law: DestinationLaw) -> FloatArray:
    """By eigenvectors, in a way of its own."""
    values, vectors = np.linalg.eig(law.matrix.toarray().T)
    found = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return np.asarray(found / found.sum())
