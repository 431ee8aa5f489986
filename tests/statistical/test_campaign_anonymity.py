"""The campaign's attacker names as many sources as its own posteriors predict, and no fewer or more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.campaigns import campaign_anonymity

from veilwalk.core.arrays import FloatArray
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import parse_graph_spec

GRAPH = parse_graph_spec("rrg:16:3:seed=1")
LAW = DistanceLaw(DistanceSupport(2, 2), np.ones(1)).place_on(GRAPH).matrix.toarray()
NAMES = [f"n{node}" for node in range(GRAPH.n_nodes)]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Notes of a simulated walk, as nodes of the campaign write them."""
    rng = np.random.default_rng(7)
    folder = tmp_path_factory.mktemp("notes")
    seen: dict[str, list[str]] = {name: [] for name in NAMES}
    made: dict[str, list[str]] = {name: [] for name in NAMES}
    at, clock = 0, 0
    for number in range(4000):
        clock += 1
        made[NAMES[at]].append(f"{number:064x} {clock} 1")
        goal = rng.choice(GRAPH.n_nodes, p=LAW[at])
        while True:
            following = int(rng.choice(GRAPH.neighbours(at)))
            clock += 1
            seen[NAMES[following]].append(f"{number:064x} {NAMES[at]} {clock} {int(following == goal)}")
            at = following
            if at == goal:
                break
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "seen.log").write_text("\n".join(seen[name]))
        (folder / name / "made.log").write_text("\n".join(made[name]))
    return folder


@pytest.mark.parametrize("bridge", [False, True])
def test_hits_are_as_predicted(logs: Path, bridge: bool) -> None:
    found = campaign_anonymity.attack(logs, NAMES, GRAPH, LAW, range(4), bridge=bridge)
    assert found.updates > 200
    assert found.hits > 1.5 * found.blind
    assert abs(found.z) < 3


def resting(step: FloatArray) -> FloatArray:
    """A walk that stays where it is every other time."""
    return (np.eye(len(step)) + step) / 2


def leaning(step: FloatArray) -> FloatArray:
    """A walk that likes neighbours with high numbers."""
    leant = step * np.arange(1, len(step) + 1)
    return np.asarray(leant / leant.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("believed", "bridge"), [(leaning, False), (resting, True)])
def test_an_attacker_with_a_wrong_walk_is_noticed(
    logs: Path, monkeypatch: pytest.MonkeyPatch, believed: Callable[[FloatArray], FloatArray], bridge: bool
) -> None:
    """The mutants believe in another walk: the hits they promise are not those they make."""
    right = campaign_anonymity.Attacker.__init__

    def wrong(self: campaign_anonymity.Attacker, *arguments: Any) -> None:
        right(self, *arguments)
        self._step = believed(self._step)
        self._hidden = self._avoiding(self._colluders)

    monkeypatch.setattr(campaign_anonymity.Attacker, "__init__", wrong)
    found = campaign_anonymity.attack(logs, NAMES, GRAPH, LAW, range(4), bridge=bridge)
    assert abs(found.z) > 3


def test_an_attacker_that_forgets_is_noticed(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant ignores where the old ciphertext was seen: honest about its own odds, it misses what can be had."""

    def careless(self: campaign_anonymity.Attacker, old: object, source: int) -> float:
        del self, old, source
        return 1.0

    right = campaign_anonymity.attack(logs, NAMES, GRAPH, LAW, range(4), bridge=True)
    monkeypatch.setattr(campaign_anonymity.Attacker, "_old", careless)
    found = campaign_anonymity.attack(logs, NAMES, GRAPH, LAW, range(4), bridge=True)
    assert (found.hits - right.predicted) / right.spread < -3


def test_auc_is_the_chance_to_rank_one_above_another() -> None:
    auc, error = campaign_anonymity.auc_of([1.0, 2.0, 3.0], [0.0, 2.0])
    assert auc == pytest.approx(4.5 / 6)
    assert error == pytest.approx((6 / 72) ** 0.5)
    assert np.isnan(campaign_anonymity.auc_of([], [1.0])[0])
    dice = np.random.default_rng(1)
    found = [
        campaign_anonymity.auc_of(dice.normal(size=40).tolist(), dice.normal(size=60).tolist()) for _ in range(400)
    ]
    assert np.std([auc for auc, _ in found]) == pytest.approx(found[0][1], rel=0.15)
