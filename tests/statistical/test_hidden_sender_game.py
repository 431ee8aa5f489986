"""A game against the epsilon for hidden senders: an attacker with every model, no route, and the law of the makers.

It follows the makers, a hidden chain, exactly: the likelihood of all it sees in either world is a forward sum. The
others' updates are as far away as they can be. The threshold and the bound are those of the other game.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

from tests.statistical.test_epsilon_game import DELTA, least_epsilon
from tools.accounting.hidden_sender import between_neighbours, hidden_sender_epsilon
from tools.accounting.mixtures import ObserverAccountant

from veilwalk.core.arrays import FloatArray
from veilwalk.core.randomness import task_generator
from veilwalk.learning import epsilon_of


def law(nodes: int, spread: float) -> FloatArray:
    """The next maker: the next on a ring, or with probability ``spread`` anybody."""
    return np.asarray((1 - spread) * np.roll(np.eye(nodes), 1, axis=1) + spread / nodes)


def evidence(kernel: FloatArray, z: float, updates: int, games: int) -> tuple[FloatArray, FloatArray]:
    """Return the log-likelihood ratios of games in which node 0's data are used, and of those in which not."""
    rng, nodes = task_generator(31), len(kernel)
    line = np.cumsum(kernel, axis=1)
    makers = [rng.integers(nodes, size=2 * games)]
    for _ in range(updates - 1):
        makers.append((rng.random((2 * games, 1)) > line[makers[-1]]).sum(axis=1))
    used = np.repeat([1.0, 0.0], games)
    seen = np.where(np.array(makers) == 0, used, -1.0) + z * rng.standard_normal((updates, 2 * games))
    totals = []
    for mine in (1.0, 0.0):
        belief, total = np.full((2 * games, nodes), 1 / nodes), np.zeros(2 * games)
        for update in range(updates):
            belief[:, 0] *= np.exp(((seen[update] + 1) ** 2 - (seen[update] - mine) ** 2) / (2 * z**2))
            scale = belief.sum(axis=1, keepdims=True)
            total += np.log(scale[:, 0])
            belief = (belief / scale) @ kernel
        totals.append(total)
    ratio = totals[0] - totals[1]
    return ratio[:games], ratio[games:]


@pytest.mark.parametrize(("nodes", "updates", "spread"), [(6, 12, 0.5), (6, 12, 1.0), (16, 48, 0.001)])
def test_the_epsilon_for_hidden_senders_holds_against_who_follows_the_makers(
    nodes: int, updates: int, spread: float
) -> None:
    """From makers drawn evenly to makers in a ring, which once its phase is found is as good as to be told."""
    z, kernel = 2.0, law(nodes, spread)
    claimed = hidden_sender_epsilon(kernel, noise_multiplier=z, updates=updates, most_updates=updates, delta=DELTA)
    truth = least_epsilon(*evidence(kernel, z, updates, 12_000), DELTA)
    assert truth < claimed
    # Named mutant: to forget that makers are a chain, and count the share of one among all each time.
    blind = ObserverAccountant().observed(z, np.full(updates, 1 / nodes)).get_epsilon(DELTA)
    assert (truth > blind) == (spread < 0.01)


def test_it_is_less_than_with_the_sender_known_where_makers_spread() -> None:
    """An even law over many: the halves together stay far below; a ring gives what the known sender gives."""
    asked: dict[str, Any] = {"noise_multiplier": 3.5, "updates": 600, "most_updates": 12, "delta": 1e-5}
    known = epsilon_of(3.5, 1e-5, updates=12)
    assert hidden_sender_epsilon(np.full((100, 100), 0.01), **asked) < 0.7 * known
    assert hidden_sender_epsilon(np.roll(np.eye(100), 1, axis=1), **asked) == known
    assert between_neighbours(np.full((100, 100), 0.01)) == pytest.approx(0.01)
