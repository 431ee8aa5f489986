"""The non-backtracking walk against rational arithmetic written here, sharing no code with what it checks."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numba
import numpy as np
import pytest
from tests.helpers.dense_walks import arc_hitting_law, arc_steps, hitting_law
from tests.helpers.graphs import PETERSEN_EDGES, clique_edges, cube_edges, cycle_edges, path_edges, star_edges

from veilwalk.chains._arc_chain import ArcChain
from veilwalk.chains._openings import SetPotentials
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import GraphError, InvalidParameterError, ResourceLimitError
from veilwalk.graphs import Graph, random_regular

Arc = tuple[int, int]
ONE, NONE = Fraction(1), Fraction(0)
HORIZON = 40


EDGES: dict[str, list[Arc]] = {
    "pair": [(0, 1)],
    "path": path_edges(range(5)),
    "star": star_edges(4),
    "odd ring": cycle_edges(5),
    "even ring": cycle_edges(6),
    "clique": clique_edges(range(5)),
    "petersen": PETERSEN_EDGES,
    "cube": cube_edges(3),
    "lollipop": [*clique_edges(range(4)), *path_edges([3, 4, 5])],
    # Every cycle is a multiple of three long, so that the walk has period three.
    "period three": [
        step
        for number, (a, b) in enumerate(clique_edges(range(4)))
        for step in path_edges([a, 4 + 2 * number, 5 + 2 * number, b])
    ],
    # A cut vertex whose parts have decays of their own, a leaf, a hub.
    "two parts": [*clique_edges(range(4)), (3, 4), *path_edges([4, 5, 6, 7, 4]), (5, 7), (4, 8)],
}
TURNING = [name for name in EDGES if "ring" not in name]


class Oracle:
    """The walk as a dictionary from arc to next arcs, in fractions."""

    def __init__(self, edges: list[Arc]) -> None:
        around: dict[int, set[int]] = {}
        for one, other in edges:
            around.setdefault(one, set()).add(other)
            around.setdefault(other, set()).add(one)
        self.around = around
        self.arcs = [(came, node) for node in sorted(around) for came in sorted(around[node])]
        self.following = {arc: self._next(arc) for arc in self.arcs}

    def _next(self, arc: Arc) -> dict[Arc, Fraction]:
        came, node = arc
        onward = sorted(self.around[node] - {came}) or [came]
        return {(node, there): Fraction(1, len(onward)) for there in onward}

    def law(self, target: int, horizon: int) -> list[dict[Arc, Fraction]]:
        """P(T = t) from every arc, t = 0 to horizon: what has not been there by t, differenced."""
        alive = {arc: ONE if arc[1] != target else NONE for arc in self.arcs}
        table = [{arc: ONE - alive[arc] for arc in self.arcs}]
        for _ in range(horizon):
            later = {
                arc: sum((p * alive[there] for there, p in self.following[arc].items()), NONE) if alive[arc] else NONE
                for arc in self.arcs
            }
            table.append({arc: alive[arc] - later[arc] for arc in self.arcs})
            alive = later
        return table

    def means(self, target: int) -> dict[Arc, Fraction]:
        """E[T] from every arc, by elimination: h = 1 + B h off the target."""
        others = [arc for arc in self.arcs if arc[1] != target]
        rows = {arc: {**{k: -p for k, p in self.following[arc].items() if k[1] != target}, None: ONE} for arc in others}
        for arc in others:
            rows[arc][arc] = rows[arc].get(arc, NONE) + ONE
        for pivot in others:
            lead = rows[pivot][pivot]
            rows[pivot] = {k: v / lead for k, v in rows[pivot].items()}
            for arc in others:
                factor = rows[arc].get(pivot, NONE)
                if arc != pivot and factor:
                    for k, v in rows[pivot].items():
                        rows[arc][k] = rows[arc].get(k, NONE) - factor * v
        return {arc: rows[arc][None] if arc[1] != target else NONE for arc in self.arcs}

    def returns(self, node: int, horizon: int) -> list[Fraction]:
        """P(R = t), having come by a uniform arc: one step, then a hitting time."""
        hits = self.law(node, horizon)
        mine = [arc for arc in self.arcs if arc[1] == node]
        steps = [(there, p / len(mine)) for arc in mine for there, p in self.following[arc].items()]
        return [NONE, *(sum((p * hits[t][there] for there, p in steps), NONE) for t in range(horizon))]


@cache
def oracle(name: str) -> Oracle:
    return Oracle(EDGES[name])


@cache
def chain_on(name: str) -> ArcChain:
    return ArcChain(Graph.from_edges(1 + max(max(edge) for edge in EDGES[name]), np.array(EDGES[name])))


def column(name: str, values: dict[Arc, Fraction]) -> FloatArray:
    return np.array([float(values[arc]) for arc in oracle(name).arcs])


def by_node(name: str, values: FloatArray) -> FloatArray:
    """The mean over the arcs into each node, rows being arcs."""
    heads = np.array([node for _, node in oracle(name).arcs])
    return np.stack([values[heads == node].mean(axis=0) for node in range(chain_on(name).n_nodes)])


@cache
def exact_laws(name: str) -> FloatArray:
    """P(T = t), (time, arc, target)."""
    n_nodes = chain_on(name).n_nodes
    tables = [oracle(name).law(target, HORIZON) for target in range(n_nodes)]
    return np.stack([[column(name, row) for row in table] for table in tables], axis=2)


@pytest.mark.parametrize("name", EDGES)
def test_arcs_are_numbered_and_move_as_documented(name: str) -> None:
    """Heads, tails, reverses, every transition, and the uniform law that stays as it is."""
    chain, want = chain_on(name), oracle(name)
    assert list(zip(chain.graph.indices.tolist(), chain.heads.tolist(), strict=True)) == want.arcs
    assert [want.arcs[k] for k in chain.reverse] == [(b, a) for a, b in want.arcs]
    matrix = chain.transition_matrix.toarray()
    for row, arc in enumerate(want.arcs):
        assert {want.arcs[k]: matrix[row, k] for k in np.flatnonzero(matrix[row])} == pytest.approx(
            {there: float(p) for there, p in want.following[arc].items()}
        )
    np.testing.assert_allclose(chain.stationary @ matrix, chain.stationary, atol=1e-15)
    np.testing.assert_allclose(arc_steps(chain.graph), matrix, atol=1e-15)


@pytest.mark.parametrize("name", EDGES)
def test_mean_hitting_times_are_exact(name: str) -> None:
    """From every node, come to by a uniform arc, by the geometric tail or by the dense solve."""
    chain = chain_on(name)
    want = by_node(name, np.stack([column(name, oracle(name).means(node)) for node in range(chain.n_nodes)], axis=1))
    np.testing.assert_allclose(chain.mean_hitting_times(), want, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(chain.mean_hitting_times([1]), want[:, [1]], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", TURNING)
def test_the_dense_solve_is_exact_and_knows_where_nodes_are_entered(name: str) -> None:
    """Means, and entries against the law summed over the arcs by which the target is reached."""
    chain, potentials = chain_on(name), SetPotentials(chain_on(name).states)
    step = chain.transition_matrix.toarray()
    for node in range(chain.n_nodes):
        means, entries = potentials.solve_hits(node)
        np.testing.assert_allclose(means, column(name, oracle(name).means(node)), rtol=1e-11, atol=1e-11)
        into = chain.heads == node
        slow = np.linalg.solve(np.eye(chain.n_arcs) - np.where(into, 0.0, step), np.where(into, step, 0.0))
        np.testing.assert_allclose(entries[~into], slow[~into][:, into], atol=1e-12)
        np.testing.assert_array_equal(entries[into], np.eye(int(into.sum())))


@pytest.mark.parametrize("name", EDGES)
def test_hitting_laws_are_exact_and_zero_where_they_must_be(name: str) -> None:
    """Every time, node and target; impossible times are exactly zero, possible ones never are."""
    chain, laws = chain_on(name), exact_laws(name)
    want = np.stack([by_node(name, law) for law in laws])
    parts = list(chain.hitting_laws(HORIZON))
    assert np.concatenate([targets for targets, _ in parts]).tolist() == list(range(chain.n_nodes))
    got = np.concatenate([pmf for _, pmf in parts], axis=2)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=0)
    np.testing.assert_array_equal(got == 0, want == 0)


@pytest.mark.parametrize("kappa", [0.0, 3.0, 7.5, 40.0])
@pytest.mark.parametrize("name", EDGES)
def test_truncated_means_are_exact(name: str, kappa: float) -> None:
    """E[T | T <= kappa]; infinite where kappa is too short."""
    chain, law = chain_on(name), exact_laws(name)[: math.floor(kappa) + 1]
    mass, moment = by_node(name, law.sum(axis=0)), by_node(name, np.tensordot(np.arange(len(law)), law, axes=1))
    with np.errstate(invalid="ignore"):
        want = np.where(mass > 0, moment / mass, np.inf)
    np.testing.assert_allclose(chain.truncated_means(kappa), want, rtol=1e-11)


@pytest.mark.parametrize("name", EDGES)
def test_window_masses_are_exact(name: str) -> None:
    """Every pair its own window, empty ones and those at time 0 included."""
    chain, law = chain_on(name), exact_laws(name)
    rng = np.random.default_rng(5)
    times = np.arange(HORIZON + 1)[:, np.newaxis, np.newaxis]
    lo = rng.integers(-2, 12, (chain.n_nodes, chain.n_nodes))
    hi = lo + rng.integers(-2, 25, lo.shape)
    inside = (lo[chain.heads] <= times) & (times <= hi[chain.heads])
    want = by_node(name, (law * inside).sum(axis=0))
    np.testing.assert_allclose(chain.window_masses(lo, hi), want, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", EDGES)
def test_return_laws_are_exact(name: str) -> None:
    """Survivals; the mean, summed until nothing is left, is the number of arcs over the degree."""
    chain = chain_on(name)
    survival = chain.return_survival(np.arange(HORIZON + 1))
    for node in range(chain.n_nodes):
        want = oracle(name).returns(node, HORIZON)
        left = [float(1 - sum(want[: t + 1], NONE)) for t in range(HORIZON + 1)]
        np.testing.assert_allclose(survival[:, node], left, rtol=1e-11, atol=1e-15)
    total = chain.return_survival(np.arange(6000)).sum(axis=0)
    np.testing.assert_allclose(total, chain.n_arcs / chain.graph.degrees, rtol=1e-9)


def test_late_times_cost_no_more_and_lose_no_digits() -> None:
    """On RRG(60, 3) the tail takes over after some dozens of steps: against plain steps to 2000."""
    chain, targets = ArcChain(random_regular(60, 3, seed=4)), [0, 7, 30]
    uniform = 1 / chain.graph.degrees[chain.heads]
    law = np.stack([arc_hitting_law(chain.graph, target, 2000, uniform) for target in targets], axis=2)
    times = np.arange(2001)
    for kappa in (300, 2000):
        mass, moment = law[: kappa + 1].sum(axis=0), np.tensordot(times[: kappa + 1], law[: kappa + 1], axes=1)
        np.testing.assert_allclose(chain.truncated_means(kappa, targets), moment / mass, rtol=1e-12, atol=1e-12)
    window = chain.window_masses(1500, 1507, targets)
    np.testing.assert_allclose(window, law[1500:1508].sum(axis=0), rtol=1e-11, atol=0)
    survival = chain.return_survival([500, 501, 2000, 10**6], targets)
    for place, target in enumerate(targets):
        # A return is a step to a neighbour and a hitting time from the arc that leads there.
        into = np.flatnonzero(chain.heads == target)
        hits = hitting_law(arc_steps(chain.graph), into, 2000)
        returns = np.append(0.0, hits[:2000] @ arc_steps(chain.graph)[into].mean(axis=0))
        left = 1 - returns.cumsum()
        np.testing.assert_allclose(survival[:3, place], left[[500, 501, 2000]], atol=1e-12)
    assert np.all(survival[3] < 1e-300)


def test_from_the_neighbours_the_mean_is_known_on_every_regular_graph() -> None:
    """1/c + (1 - 1/c) (N - 1) over the neighbours of a node: straight there, or as after having left it."""
    for degree in (3, 4):
        chain = ArcChain(random_regular(40, degree, seed=2))
        means = chain.mean_hitting_times()
        for node in range(40):
            around = means[chain.graph.neighbours(node), node].mean()
            assert around == pytest.approx(1 / degree + (1 - 1 / degree) * 39, rel=1e-11)


def test_threads_change_no_bit(two_threads: int) -> None:
    """Means, windows and returns on one thread and on two."""
    chain = ArcChain(random_regular(80, 3, seed=3))
    answers = []
    for threads in (1, two_threads):
        numba.set_num_threads(threads)
        answers.append((chain.mean_hitting_times(), chain.window_masses(10, 90), chain.return_survival(np.arange(50))))
    for one, other in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, other)


def test_unfit_requests_are_refused() -> None:
    """Nodes that are not there, times below zero, too much memory, rings."""
    chain = chain_on("petersen")
    with pytest.raises(InvalidParameterError, match="target = 10"):
        chain.mean_hitting_times([10])
    with pytest.raises(InvalidParameterError, match="horizon = -1"):
        next(chain.hitting_laws(-1))
    with pytest.raises(InvalidParameterError, match="kappa = -1"):
        chain.truncated_means(-1.0)
    with pytest.raises(InvalidParameterError, match="times"):
        chain.return_survival([-1])
    with pytest.raises(InvalidParameterError, match="lo"):
        chain.window_masses(0.5, 3)
    with pytest.raises(ResourceLimitError, match="need 2400 bytes"):
        chain.mean_hitting_times(memory_bytes=2399)
    with pytest.raises(GraphError, match="ring"):
        SetPotentials(chain_on("odd ring").states)
