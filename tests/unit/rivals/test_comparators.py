"""Routes of others: closed forms against drawn paths, stems against the chain, first-spy by hand."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tools.rivals.comparators import RouteSettings, compared
from tools.rivals.mixnets import Mixnet
from tools.rivals.spies import batches_of, expected_scores, score_batches
from tools.rivals.stems import RULES, _table, out_edges, per_message_blame, stem_blame
from tools.rivals.sweep import RoutePlan, main

from veilwalk.audit import choose_colluders
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import choose_scheme
from veilwalk.design._openings import estimate_coalition
from veilwalk.experiments import sweep
from veilwalk.graphs import random_regular

GRAPH = random_regular(40, 4, seed=2)


def spying(count: int, seed: int = 3) -> np.ndarray:
    """Return a mask of spies."""
    spies = np.zeros(GRAPH.n_nodes, dtype=np.bool_)
    spies[choose_colluders(GRAPH, count, seed)] = True
    return spies


def test_first_spy_by_hand() -> None:
    """Two of three honest messages at one door: one right, shared by two; the third was never seen."""
    spies = np.array([False, False, True, False])
    found = score_batches(np.array([[1, 1, -1]]), spies)
    assert (found.recall, found.precision) == pytest.approx((1 / 3, 1 / 6))
    assert (found.recall_floor, found.precision_floor) == (0.25, 0.0625)


def test_batches_take_the_same_number_of_every_honest_node() -> None:
    """What the busiest sent beyond is left out, in the order it was sent."""
    spies = np.array([False, True, False])
    batches = batches_of(np.array([0, 2, 0, 0, 2]), np.array([10, 20, 11, 12, 21]), spies)
    assert batches.tolist() == [[10, 20], [11, 21]]
    with pytest.raises(InvalidParameterError, match="updates"):
        batches_of(np.array([0, 0]), np.array([1, 1]), spies)


def test_expected_scores_are_those_of_all_outcomes() -> None:
    """Three senders, every outcome weighed by hand."""
    spies = np.array([False, False, False, True])
    blame = np.array([[0.5, 0.3, 0.0], [0.2, 0.6, 0.2], [0.4, 0.3, 0.3]])
    chances = np.column_stack((blame, 1 - blame.sum(axis=1)))
    recall = precision = 0.0
    for doors in product(range(4), repeat=3):
        chance = float(np.prod([chances[row, door] for row, door in enumerate(doors)]))
        one = score_batches(np.array([[-1 if door == 3 else door for door in doors]]), spies)
        recall, precision = recall + chance * one.recall, precision + chance * one.precision
    found = expected_scores(blame, spies)
    assert (found.recall, found.precision) == pytest.approx((recall, precision))


def test_stems_have_as_many_edges_in_as_out() -> None:
    """Two and two of four, every edge once."""
    out = out_edges(GRAPH, seed=1)
    assert out.shape == (40, 2)
    assert set(Counter(out.ravel().tolist()).values()) == {2}
    kept = {(min(a, int(b)), max(a, int(b))) for a, heads in enumerate(out) for b in heads}
    assert len(kept) == GRAPH.n_edges
    with pytest.raises(InvalidParameterError, match="even degree"):
        out_edges(random_regular(20, 3, seed=1), seed=1)


def test_drawn_stems_are_the_chains() -> None:
    """Recall and precision of fresh choices, by two roads; a rule that never changes its mind is told apart."""
    out, spies = out_edges(GRAPH, seed=1), spying(8)
    exact = expected_scores(per_message_blame(out, spies), spies)
    sent = {"per-message": 1_000, "per-edge": 100, "one-to-one": 100, "all-to-one": 1_000}
    drawn = {
        rule: score_batches(stem_blame(out, spies, rule=rule, batches=sent[rule], seed=5)[0], spies) for rule in RULES
    }
    fresh = drawn["per-message"]
    # Standard errors over batches are 0.0022 and 0.0014.
    assert fresh.recall == pytest.approx(exact.recall, abs=0.0066)
    assert fresh.precision == pytest.approx(exact.precision, abs=0.0042)
    # The mutant: one edge out for all is another law, and the same comparison sees it.
    assert abs(drawn["all-to-one"].precision - exact.precision) > 0.0042
    for found in drawn.values():
        assert found.recall > found.recall_floor - 0.02
        assert found.precision > found.precision_floor - 0.01


def test_one_to_one_shares_no_edge_out() -> None:
    """What comes in by the two edges leaves by two."""
    out = out_edges(GRAPH, seed=1)
    table = _table(out, "one-to-one", np.random.default_rng(1))
    assert table is not None
    for node in range(40):
        before = np.flatnonzero((out == node).any(axis=1))
        assert sorted(table[node, before]) == sorted(out[node])


@pytest.mark.parametrize(("nodes", "relays"), [(6, 2), (12, 4), (4, 4)])
def test_a_mixnets_last_hop_by_two_roads(nodes: int, relays: int) -> None:
    """The maker in one of K + 1, the rest even among the others: closed form, and paths drawn by the rule."""
    mixnet = Mixnet(nodes=nodes, relays=relays)
    maker, last, hops = mixnet.drawn(20_000, seed=1)
    named = float((maker == last).mean())
    assert named == pytest.approx(mixnet.hit_ratio, abs=0.012)
    assert hops.mean() == pytest.approx(mixnet.hops, abs=0.05)
    table = np.zeros((nodes, nodes))
    np.add.at(table, (last, maker), 1 / len(maker))
    counted = -(table[table > 0] * np.log(table[table > 0])).sum() - np.log(nodes - 1)
    assert counted == pytest.approx(mixnet.node_entropy_nats, abs=0.02)
    # The mutant: relays from 1 to K, no direct delivery, would never name the maker.
    assert abs(float((maker[hops > 1] == last[hops > 1]).mean()) - mixnet.hit_ratio) > 0.1


def test_linked_fragments_by_two_roads() -> None:
    """The commonest last hop of several fragments; one is as before, and no direct delivery leaves nothing."""
    mixnet = Mixnet(nodes=6, relays=2)
    assert mixnet.linked_hit_ratio(1) == pytest.approx(1 / 3)
    rows = compared(RouteSettings(route="mixnet:2", graph="complete:6", fragments="1, 4,9", updates=36_000))
    assert [row["linked"] for row in rows] == [1, 4, 9]
    for row in rows:
        assert row["last_hop_is_maker_drawn"] == pytest.approx(row["hit_ratio"], abs=0.02)
    assert rows[0]["hit_ratio"] < rows[1]["hit_ratio"] < rows[2]["hit_ratio"]


def test_our_recall_is_the_designs() -> None:
    """One road plays batches, the other counts first sights over placements."""
    row = compared(
        RouteSettings(
            route="veilwalk", observer="first-spy", graph="rrg:40:4:seed=2", walk="non-backtracking", updates=20_000
        )
    )[0]
    scheme = choose_scheme(GRAPH, walk="non-backtracking")
    _, named, _ = estimate_coalition(scheme, 0.1, hops=40)
    assert row["recall"] == pytest.approx(named.mean, abs=0.03)
    assert row["precision"] > row["precision_floor"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"route": "tunnel"},
        {"route": "mixnet:two"},
        {"route": "stem:twice"},
        {"route": "stem:per-edge"},
        {"route": "mixnet:2", "observer": "first-spy"},
        {"route": "veilwalk", "observer": "everybody"},
        {"route": "mixnet:2", "fragments": "0"},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    """By name, before anything is run."""
    with pytest.raises(InvalidParameterError):
        RoutePlan(kind="routes", settings=wrong, grid={})


def test_a_sweep_of_routes() -> None:
    """Rows by observer and number of fragments, exact beside drawn."""
    cases = [{"route": "mixnet:2", "graph": "complete:6"}]
    found = sweep(RoutePlan(kind="routes", settings={"updates": 600}, grid={}, cases=cases))
    (row,) = found.summary()
    assert (row["observer"], row["hit_ratio"], row["hops_per_update"]) == ("last-hop", pytest.approx(1 / 3), 2.0)


def test_the_command_runs_a_file_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, figure and page are written; a case that fails is the exit code."""
    file, out = tmp_path / "routes.toml", tmp_path / "out"
    file.write_text('kind = "routes"\n[settings]\nupdates = 600\ngraph = "complete:6"\n[grid]\nroute = ["mixnet:2"]\n')
    monkeypatch.setattr("sys.argv", ["sweep", str(file), "--out", str(out), "--engine", "process:2"])
    assert main() == 0
    assert {path.name for path in out.iterdir()} >= {
        "record.json",
        "summary.csv",
        "sweep.csv",
        "sweep.png",
        "report.html",
    }
    file.write_text(file.read_text().replace('"mixnet:2"', '"veilwalk"').replace("complete:6", "complete:2"))
    assert main() == 1


@pytest.mark.parametrize("colluders", ["5%,10%", "100%", "0"])
def test_spies_are_some_and_not_all(colluders: str) -> None:
    """Neither several numbers of them at once, nor nobody or everybody."""
    asked = RouteSettings(route="stem:per-message", observer="first-spy", graph="rrg:20:4:seed=1", colluders=colluders)
    with pytest.raises(InvalidParameterError, match=f"^colluders = '{colluders}': "):
        compared(asked)
