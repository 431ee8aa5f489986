"""Next hops and destinations: the laws of the simulator, drawn by one node."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design import DistanceLaw, save_law
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.peer import DestinationRow, NextHop, OsDraws
from veilwalk.node.peer._routing import Law, read_law
from veilwalk.walks import run_protocol

PEERS = ("a", "b", "c", "d")


class Seeded(OsDraws):
    """Draws that can be repeated: fit for a test, not for a node."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311

    def below(self, count: int) -> int:
        """Return a whole number below ``count``."""
        return self._dice.randrange(count)

    def unit(self) -> float:
        """Return a number from 0 to 1."""
        return self._dice.random()


def roster_of(*edges: str) -> Any:
    """As much of a roster as a row looks at."""
    return SimpleNamespace(ids=tuple(sorted(set("".join(edges)))), version=1, is_overlay=False)


def shares(rule: NextHop, draws: int = 8000, **where: object) -> np.ndarray:
    source = Seeded(1)
    found = Counter(rule.choose(source, **where) for _ in range(draws))  # type: ignore[arg-type]
    return np.array([found[peer] for peer in PEERS])


def test_the_simple_walk_is_uniform() -> None:
    counts = shares(NextHop(walk=SIMPLE, neighbours=PEERS), came_from="b")
    assert stats.chisquare(counts).pvalue > 1e-6
    backless = shares(NextHop(walk=Walk("non-backtracking"), neighbours=PEERS), came_from="b")
    assert stats.chisquare(backless).pvalue < 1e-6


def test_the_non_backtracking_walk_turns_back_only_at_a_leaf() -> None:
    rule = NextHop(walk=Walk("non-backtracking"), neighbours=PEERS)
    counts = shares(rule, came_from="b")
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-6
    assert stats.chisquare(shares(rule, came_from=None)).pvalue > 1e-6
    assert NextHop(walk=Walk("non-backtracking"), neighbours=("a",)).choose(OsDraws(), came_from="a") == "a"


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_nodes_playing_their_rules_walk_as_the_simulator_does(walk: str) -> None:
    """Mean hops of a leg agree with the compiled protocol's, within four standard errors; another walk's do not."""
    graph = parse_graph_spec("rrg:12:3:seed=4")
    law = DistanceLaw(DistanceSupport(2, 3), np.array([0.5, 0.5])).place_on(graph)
    legs = played_by_nodes(graph, law, walk, 4000)
    hops = {
        kind: run_protocol(graph, law.matrix, updates=200_000, seed=1, walk=Walk(kind))["leg_hops"]
        for kind in ("simple", "non-backtracking")
    }
    error = float(np.hypot(legs.std() / len(legs) ** 0.5, hops[walk].std() / len(hops[walk]) ** 0.5))
    assert abs(legs.mean() - hops[walk].mean()) < 4 * error
    other = hops["simple"] if walk != "simple" else hops["non-backtracking"]
    assert abs(legs.mean() - other.mean()) > 4 * error


def played_by_nodes(graph: object, law: object, walk: str, updates: int) -> np.ndarray:
    """Hops of each leg when every node plays :class:`NextHop` with what it knows itself."""
    names = [f"n{index:02d}" for index in range(graph.n_nodes)]  # type: ignore[attr-defined]
    draws = Seeded(3)
    neighbours = [tuple(names[j] for j in graph.neighbours(i)) for i in range(len(names))]  # type: ignore[attr-defined]
    rules = [NextHop(walk=Walk(walk), neighbours=near) for near in neighbours]
    rows = [
        DestinationRow.from_shares({names[j]: share for j, share in enumerate(row) if share})
        for row in law.matrix.toarray()  # type: ignore[attr-defined]
    ]
    legs: list[int] = []
    node, came_from, now = 0, None, 0
    goal, since = names.index(rows[0].choose(draws)[0]), 0
    while len(legs) < updates:
        chosen = rules[node].choose(draws, came_from=came_from)
        now += 1
        came_from, node = names[node], names.index(chosen)
        if node == goal:
            legs.append(now - since)
            goal, since = names.index(rows[node].choose(draws)[0]), now
    return np.array(legs)


def test_destinations_follow_the_law() -> None:
    row = DestinationRow.from_shares({"a": 0.5, "b": 0.2, "c": 0.3})
    draws = Seeded(2)
    counts = Counter(row.choose(draws)[0] for _ in range(10_000))
    seen = np.array([counts[name] for name in "abc"])
    assert stats.chisquare(seen, np.array([0.5, 0.2, 0.3]) * 10_000).pvalue > 1e-6
    assert stats.chisquare(seen).pvalue < 1e-6


def test_several_are_drawn_one_after_the_other() -> None:
    """Without replacement, each in the proportions of those left: the exact law of pairs, which others do not have."""
    shares = {"a": 0.5, "b": 0.2, "c": 0.3}
    row, draws = DestinationRow.from_shares(shares), Seeded(4)
    counts = Counter("".join(row.choose(draws, 2)) for _ in range(20_000))
    pairs = [one + other for one in shares for other in shares if one != other]
    seen = np.array([counts[pair] for pair in pairs])
    assert seen.sum() == 20_000
    exact = np.array([shares[pair[0]] * shares[pair[1]] / (1 - shares[pair[0]]) for pair in pairs])
    assert stats.chisquare(seen, 20_000 * exact).pvalue > 1e-6
    # The mutant draws every one of the rest alike.
    uniform = np.array([shares[pair[0]] / 2 for pair in pairs])
    assert stats.chisquare(seen, 20_000 * uniform).pvalue < 1e-6


@pytest.mark.parametrize("count", [3, 16])
def test_where_there_are_no_more_all_are_taken(count: int) -> None:
    assert set(DestinationRow.from_shares({"a": 0.5, "b": 0.2, "c": 0.3}).choose(Seeded(1), count)) == {"a", "b", "c"}


def test_rounding_never_leaves_a_draw_without_destination() -> None:
    row = DestinationRow.from_shares({f"n{i}": 1 / 10 for i in range(10)})

    class Top(Seeded):
        def unit(self) -> float:
            """Return the largest number there is."""
            return 1 - 2**-53

    assert row.choose(Top(0)) == ("n9",)
    assert row.choose(Top(0), 9) == tuple(f"n{i}" for i in range(9, 0, -1))
    assert np.array(row.shares) == pytest.approx(np.full(10, 0.1))


def test_who_leaves_the_roster_leaves_the_row() -> None:
    law = Law(shares={"a": 0.5, "b": 0.25, "c": 0.25})
    assert law.row(roster_of("ab", "bc", "cd"), "d") == DestinationRow.from_shares(law.shares)
    left = law.row(roster_of("ac", "cd"), "d")
    assert left.members == ("a", "c")
    assert left.shares == pytest.approx((2 / 3, 1 / 3))
    with pytest.raises(ConfigError, match="of those that d may seal for, roster version 1 has none"):
        law.row(roster_of("de"), "d")


def test_a_row_is_read_from_a_law_file(tmp_path: Path) -> None:
    graph = parse_graph_spec("ring:6")
    law = DistanceLaw(DistanceSupport(2, 3), np.array([0.75, 0.25])).place_on(graph)
    save_law(tmp_path / "law.npz", law)
    names = [f"n{i}" for i in range(6)]
    law_read = read_law(tmp_path / "law.npz", names, "n1")
    assert law_read.names == tuple(names)
    assert law_read.shares == pytest.approx({"n3": 0.375, "n4": 0.25, "n5": 0.375})
    with pytest.raises(ConfigError, match="6 nodes"):
        read_law(tmp_path / "law.npz", names[:5], "n1")
    save_law(tmp_path / "distance.npz", DistanceLaw(DistanceSupport(2, 3), np.array([0.75, 0.25])))
    with pytest.raises(InputFileError, match="not a destination law"):
        read_law(tmp_path / "distance.npz", names, "n1")
    (tmp_path / "other.npz").write_bytes(b"no archive")
    with pytest.raises(InputFileError, match="not a law file"):
        read_law(tmp_path / "other.npz", names, "n1")
    with pytest.raises(InputFileError):
        read_law(tmp_path / "missing.npz", names, "n1")


@pytest.mark.parametrize(
    "options",
    [
        {"walk": Walk("lazy")},
        {"walk": SIMPLE, "neighbours": ()},
    ],
)
def test_rules_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        NextHop(**({"neighbours": PEERS} | options))  # type: ignore[arg-type]


def test_rows_that_are_no_law_are_refused() -> None:
    for shares_ in ({}, {"a": 0.5}, {"a": 1.5, "b": -0.5}):
        with pytest.raises(InvalidParameterError):
            DestinationRow.from_shares(shares_)


def test_a_node_draws_from_the_operating_system() -> None:
    """The type of a node's source is not that of a seeded generator, and gives what is asked."""
    draws = OsDraws()
    assert {draws.below(3) for _ in range(200)} == {0, 1, 2}
    assert all(0 <= draws.unit() < 1 for _ in range(200))
    assert not isinstance(draws, np.random.Generator | random.Random)
