"""The audit that looks candidates up, against the one that has tables of all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from veilwalk.audit import AuditSettings, audit
from veilwalk.core.arrays import FloatArray
from veilwalk.design import DestinationLaw, choose_scheme
from veilwalk.graphs import Graph, barabasi_albert, random_regular

OBSERVERS = ("prior", "return-time", "last-hop")
SETTINGS = AuditSettings(updates=40_000, seed=3, posterior="by-class", observers=OBSERVERS)


@pytest.mark.parametrize("graph", [random_regular(80, 3, seed=1), barabasi_albert(60, 2, seed=1)])
def test_both_audits_say_the_same(graph: Graph) -> None:
    """The same run, the same prior; classes are counted on other updates, so posteriors agree within intervals."""
    scheme = choose_scheme(graph, "uniform-node", support=(2, 3))
    small = audit(scheme, SETTINGS).record().result
    large = audit(scheme, SETTINGS, large_nodes=1).record().result
    assert small["posterior_by_distance"] == large["posterior_by_distance"] == []
    assert large["hops_per_update"] == small["hops_per_update"]
    for name in OBSERVERS:
        one, other = small["observers"][name]["overall"], large["observers"][name]["overall"]
        for column in ("node_entropy_nats", "distance_entropy_nats", "hit_ratio", "ndcg"):
            low, high = other[f"{column}_interval"]
            # The other's sampling error is about as large; rounding where an entropy is the same for all.
            width = high - low + 1e-9
            assert low - width < one[column] < high + width
    # The named mutant: an observer that does not look.
    blind = large["observers"]["prior"]["overall"]["node_entropy_nats_interval"][0]
    assert large["observers"]["last-hop"]["overall"]["node_entropy_nats"] < blind


def test_the_stationary_law_by_powers_is_the_direct_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a graph where sources differ in how often they come."""
    graph = barabasi_albert(60, 2, seed=1)
    law = choose_scheme(graph, "uniform-node", support=(2, 3)).law
    monkeypatch.setattr("veilwalk.design._law._DIRECT_NODES", 0)
    again = DestinationLaw(law.support, law.graph_digest, law.matrix)
    np.testing.assert_allclose(again.source_prior, stationary(law), atol=1e-11)
    assert np.ptp(again.source_prior) > 1e-3


def stationary(law: DestinationLaw) -> FloatArray:
    """By eigenvectors, in a way of its own."""
    values, vectors = np.linalg.eig(law.matrix.toarray().T)
    found = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return np.asarray(found / found.sum())
