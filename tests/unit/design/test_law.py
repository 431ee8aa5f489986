"""Destination laws as values and as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from veilwalk.core.errors import InfeasibleDesignError, InputFileError, InvalidParameterError, RecordError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DestinationLaw, DistanceLaw, load_law, save_law
from veilwalk.graphs import Graph, complete, distances, hypercube, random_regular, ring

SUPPORT = DistanceSupport(2, 3)
LAW = DistanceLaw(SUPPORT, np.array([0.25, 0.75]))


def test_a_distance_law_shares_each_shell_evenly() -> None:
    """P_ij = p(l)/A_i(l), rows sum to one, nothing outside the support."""
    graph = random_regular(30, 3, seed=1)
    matrix = LAW.place_on(graph).matrix.toarray()
    apart = distances(graph)
    for node in range(30):
        for distance, share in ((2, 0.25), (3, 0.75)):
            there = apart[node] == distance
            np.testing.assert_allclose(matrix[node, there], share / there.sum(), rtol=1e-12)
        assert np.all(matrix[node, (apart[node] < 2) | (apart[node] > 3)] == 0)


def test_an_empty_shell_gives_its_share_to_the_others() -> None:
    """The middle of a path of five has nodes at distance 2 only: they get everything."""
    path = Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    np.testing.assert_allclose(LAW.place_on(path).matrix.toarray()[2], [0.5, 0, 0, 0, 0.5])


def test_a_node_with_nobody_in_the_support_makes_the_law_infeasible() -> None:
    """In a complete graph nobody is two hops away; the message names a node."""
    with pytest.raises(InfeasibleDesignError, match="node 0"):
        LAW.place_on(complete(6))


def test_the_source_prior_is_stationary() -> None:
    """pi P = pi on an irregular graph, where it is far from uniform."""
    path = Graph.from_edges(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 2)])
    law = LAW.place_on(path)
    np.testing.assert_allclose(law.source_prior @ law.matrix.toarray(), law.source_prior, atol=1e-14)
    assert law.source_prior.sum() == pytest.approx(1, abs=1e-14)
    assert np.ptp(law.source_prior) > 0.05


def test_a_law_that_cannot_leave_one_side_has_no_prior() -> None:
    """Even distances on a bipartite graph: updates stay on the side they started on."""
    law = DistanceLaw(DistanceSupport(2, 2), np.array([1.0])).place_on(hypercube(4))
    with pytest.raises(InfeasibleDesignError, match="widen the support"):
        _ = law.source_prior


def test_mean_hops_is_the_double_sum() -> None:
    """sum over i, j of P(i) p_Di(j) E[T_ij], on a ring where E = k (n - k)."""
    graph = ring(9)
    apart = distances(graph).astype(float)
    hitting = apart * (9 - apart)
    law = LAW.place_on(graph)
    assert law.mean_hops(hitting) == pytest.approx(0.25 * 2 * 7 + 0.75 * 3 * 6, rel=1e-12)


def test_laws_belong_to_their_graph() -> None:
    """Another graph of the same size is refused."""
    law = LAW.place_on(random_regular(30, 3, seed=1))
    law.check_graph(random_regular(30, 3, seed=1))
    with pytest.raises(InvalidParameterError, match="graph"):
        law.check_graph(random_regular(30, 3, seed=2))


def test_laws_come_back_from_files_unchanged(tmp_path: Path) -> None:
    """Both kinds, to the last bit."""
    by_node = LAW.place_on(random_regular(30, 3, seed=1))
    for law in (LAW, by_node):
        path = tmp_path / "law.npz"
        save_law(path, law)
        back = load_law(path)
        assert type(back) is type(law)
        assert back.support == law.support
        if isinstance(back, DestinationLaw):
            assert back.graph_digest == by_node.graph_digest
            np.testing.assert_array_equal(back.matrix.toarray(), by_node.matrix.toarray())
        else:
            np.testing.assert_array_equal(back.distance_pmf, LAW.distance_pmf)


def test_bad_law_files_are_refused_in_one_line(tmp_path: Path) -> None:
    """Missing, empty, something else, wrong format, wrong suffix."""
    law = {"format": "veilwalk-law-1", "kind": "destination", "support": [2, 3], "graph_digest": "x", "name": "x"}
    cases: dict[str, Any] = {
        "missing.npz": None,
        "bad.npz": "z",
        "nothing.npz": "",
        "cut.npz": "PK\x03\x04",
        "other.npz": {"format": "x"},
        "endless.npz": {"format": "veilwalk-law-1", "kind": "distance", "support": [2, np.inf]},
        "outside.npz": law | {"indptr": [0, 1, 2], "indices": [1, 7], "data": [1.0, 1.0]},
    }
    for name, content in cases.items():
        path = tmp_path / name
        if isinstance(content, str):
            path.write_text(content)
        elif content is not None:
            np.savez(path, **content)
        with pytest.raises(InputFileError) as caught:
            load_law(path)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
    for name in ("law.txt", "law.json"):
        with pytest.raises(InvalidParameterError, match=r"must be an \.npz file"):
            save_law(tmp_path / name, LAW)
        with pytest.raises(InvalidParameterError, match=r"must be an \.npz file"):
            load_law(tmp_path / name)
    assert not list(tmp_path.glob("law*"))


def test_an_unwritable_place_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    """A file where a folder should be."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="cannot write"):
        save_law(tmp_path / "file" / "law.npz", LAW)


@pytest.mark.parametrize("pmf", [[0.5], [0.7, 0.7], [-0.5, 1.5]])
def test_what_is_not_a_law_is_refused(pmf: list[float]) -> None:
    """Wrong length, wrong sum, negative."""
    with pytest.raises(InvalidParameterError, match="distance pmf"):
        DistanceLaw(SUPPORT, np.array(pmf))
    with pytest.raises(InvalidParameterError, match="row 1"):
        DestinationLaw(SUPPORT, "x", sparse.csr_array(np.array([[0.0, 1.0], [0.5, 0.0]])))
