"""The best laws and their certificates, against a general convex solver on small graphs."""

from __future__ import annotations

import math
from typing import Any

import cvxpy
import numpy as np
import numpy.typing as npt
import pytest

from veilwalk.chains import NodeChain
from veilwalk.core.arrays import normalised
from veilwalk.core.support import DistanceSupport
from veilwalk.design import Channel
from veilwalk.design import _optimal as subject
from veilwalk.design._law import law_by_distance
from veilwalk.design._optimal import Problem, entropy_gradient
from veilwalk.graphs import Graph, barabasi_albert, erdos_renyi, random_regular

Floats = npt.NDArray[np.float64]
# Its own annotations leave most of it out.
cp: Any = cvxpy
GRAPHS = {
    "rrg": (random_regular(8, 3, seed=2), DistanceSupport(2, 3)),
    "ba": (barabasi_albert(10, 2, seed=4), DistanceSupport(2, 4)),
    "er": (erdos_renyi(12, 3.5, seed=2), DistanceSupport(2, 5)),
}


def sample_problem(name: str, *, share: float = math.inf, even: bool = True, observations: int = 4) -> Problem:
    """A small problem with a channel drawn at random, strongly informative so that the best law is far from simple."""
    graph, support = GRAPHS[name]
    law = law_by_distance(graph, support, np.ones(support.hi + 1))
    law = law.balance() if even else law
    rng = np.random.default_rng(7)
    usable = np.ascontiguousarray(law.matrix.toarray().T > 0)
    sources = tuple(np.flatnonzero(row) for row in usable)
    tables = tuple(
        np.ascontiguousarray(normalised(rng.gamma(0.7, size=(len(nodes), observations))).T) for nodes in sources
    )
    hops = NodeChain.simple(graph).mean_hitting_times()
    budget = share * law.mean_hops(hops)
    channel = Channel("return-time", "random", 0, sources, tables)
    return Problem(channel, usable, law.source_prior, np.ascontiguousarray(hops.T), budget)


def solved_by_cvxpy(problem: Problem) -> float:
    """The best value by a general solver, the objective spelt out."""
    usable = problem.usable
    joint = cp.Variable(usable.shape, nonneg=True)
    constraints = [joint[~usable] == 0, cp.sum(joint, axis=0) == problem.prior, cp.sum(joint, axis=1) == problem.prior]
    if math.isfinite(problem.budget):
        constraints.append(cp.sum(cp.multiply(joint, problem.hops)) <= problem.budget)
    parts = []
    for node, (nodes, table) in enumerate(zip(problem.channel.sources, problem.channel.tables, strict=True)):
        for weights in table:
            seen = cp.multiply(joint[node, nodes], weights)
            parts.append(-cp.sum(cp.rel_entr(seen, cp.sum(seen) * np.ones(len(nodes)))))
    return float(cp.Problem(cp.Maximize(sum(parts)), constraints).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("share", [math.inf, 0.99])
@pytest.mark.parametrize("name", GRAPHS)
def test_most_entropy_is_what_a_general_solver_finds(name: str, share: float) -> None:
    """Value and bound enclose the solver's optimum, and lie within the gap printed, a millionth."""
    problem = sample_problem(name, share=share)
    found = problem.solve()
    best = solved_by_cvxpy(problem)
    assert found.gap <= 1e-6
    assert found.value - 1e-6 <= best <= found.bound + 1e-6
    assert float((found.joint * problem.hops).sum()) <= problem.budget * (1 + 1e-9)


def test_a_prior_that_is_not_uniform_is_kept() -> None:
    """The best law with the prior of uniform-node on an irregular graph, against the solver."""
    problem = sample_problem("ba", even=False)
    assert np.ptp(problem.prior) > 0.01
    found = problem.solve()
    np.testing.assert_allclose(found.joint.sum(axis=0), problem.prior, rtol=1e-9)
    np.testing.assert_allclose(found.joint.sum(axis=1), problem.prior, rtol=1e-9)
    assert solved_by_cvxpy(problem) == pytest.approx(found.value, abs=1e-5)


def without_what_is_seen(joint: Floats, channel: Channel) -> tuple[float, Floats]:
    """Named mutant: the gradient forgets how often each observation is made, the value is right."""
    value, _ = entropy_gradient(joint, channel)
    _, gradient = entropy_gradient(joint, channel)
    for node, (nodes, table) in enumerate(zip(channel.sources, channel.tables, strict=True)):
        gradient[node, nodes] -= np.log(table @ joint[node, nodes]) @ table
    return value, gradient


@pytest.mark.parametrize("name", GRAPHS)
def test_a_wrong_gradient_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mutant in its place the certificate no longer encloses the solver's optimum, or does not close."""
    problem = sample_problem(name)
    best = solved_by_cvxpy(problem)
    monkeypatch.setattr(subject, "entropy_gradient", without_what_is_seen)
    monkeypatch.setattr(subject, "_ASCENT_STEPS", 30)
    found = problem.solve()
    assert not (found.gap <= 1e-6 and found.value - 1e-6 <= best <= found.bound + 1e-6)


def test_the_gradient_is_that_of_finite_differences() -> None:
    """Along a random direction."""
    problem = sample_problem("ba")
    rng = np.random.default_rng(3)
    joint = np.where(problem.usable, rng.uniform(0.5, 1.5, problem.usable.shape), 0.0) / problem.usable.sum()
    way = np.where(problem.usable, rng.standard_normal(problem.usable.shape), 0.0) * 1e-7
    _, gradient = entropy_gradient(joint, problem.channel)
    ahead, behind = (entropy_gradient(joint + sign * way, problem.channel)[0] for sign in (1, -1))
    assert (ahead - behind) / 2 == pytest.approx(float((gradient * way).sum()), rel=1e-4)


def test_bounds_hold_for_other_laws() -> None:
    """No law tried at random passes the bound; linear bounds hold for any multipliers."""
    problem = sample_problem("er", share=0.99)
    most = problem.solve()
    rng = np.random.default_rng(5)
    for _ in range(50):
        other = problem.nearest(rng.normal(scale=2.0, size=problem.hops.shape)).joint
        assert entropy_gradient(other, problem.channel)[0] <= most.bound
        score, rows, price = rng.normal(size=problem.hops.shape), rng.normal(size=len(problem.hops)), rng.random()
        assert float((score * other).sum()) <= problem.bound_linear(score, rows, price) + 1e-12


def test_the_full_step_never_descends() -> None:
    """Entropy along the ascent is monotone, as its smoothness promises."""
    problem = sample_problem("er", share=0.98)
    joint = problem.nearest(np.zeros_like(problem.hops)).joint
    values = []
    for _ in range(8):
        value, gradient = entropy_gradient(joint, problem.channel)
        values.append(value)
        joint = problem.nearest(np.log(np.maximum(joint, 1e-300)) + gradient).joint
    assert np.all(np.diff(values) > -1e-12)
    assert values[-1] > values[0] + 1e-3


def test_with_nothing_to_see_the_balanced_uniform_law_is_best() -> None:
    """One observation only: the entropy is that of the prior, and scaling the uniform law already maximises it."""
    problem = sample_problem("ba", observations=1)
    graph: Graph = GRAPHS["ba"][0]
    law = law_by_distance(graph, GRAPHS["ba"][1], np.ones(5)).balance()
    np.testing.assert_allclose(problem.solve().joint.T * graph.n_nodes, law.matrix.toarray(), atol=1e-6)
