"""``veilwalk design`` with laws for any graph, and the frontier: what they print and write, how they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.cli import main
from veilwalk.design import DestinationLaw, load_law

GRAPH = ["design", "--graph", "ba:30:2:seed=1", "--support", "2:4"]


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    shown = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, shown.out, shown.err


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    code, out, err = run([*arguments, "--json"], capsys)
    assert (code, err) == (0, "")
    return json.loads(out)


KEYS = {"law", "walk", "n_nodes", "graph_digest", "support", "balanced", "mean_iteration_hops", "prior_range"}
KEYS |= {"prior_range_nodes", "observer", "channel", "node_entropy_nats", "hit_ratio", "blind_node_entropy_nats"}
KEYS |= {"blind_hit_ratio", "worst_destinations", "best_known_sources", "window", "certificates"}


@pytest.mark.parametrize("law", ["uniform-node", "equalised", "optimal"])
def test_json_has_the_promised_keys(law: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for every law, and what belongs to one kind only."""
    found = run_json([*GRAPH, "--law", law], capsys)
    extra = {"equalised": {"equalised"}, "optimal": {"rounds"}}.get(law, set())
    assert set(found) == KEYS | extra
    assert found["balanced"] == (law == "optimal")
    assert found["node_entropy_nats"] < found["blind_node_entropy_nats"]
    assert found["channel"]["kind"] == "exact"
    assert len(found["worst_destinations"]) == 5
    assert set(found["worst_destinations"][0]) == {"node", "degree", "node_entropy_nats", "hit_ratio"}
    assert set(found["window"]) == {
        "return_time",
        "chosen_by",
        "node_entropy_nats",
        "worst_destinations",
        "weight_ratio",
    }
    for one in found["certificates"]:
        assert {"law", "objective", "prior", "budget_hops", "value", "best_found", "bound", "shortfall"} < set(one)
        assert one["in_words"].startswith(one["law"])


def test_tables_say_what_each_number_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Units, observer, prior, guarantee with the worst nodes, channel, and the certificate in words."""
    code, out, err = run([*GRAPH, "--law", "uniform-node"], capsys)
    assert (code, err) == (0, "")
    for words in ("hops per update", "nats", "bits", "return-time observer, expected", "source prior", "Definition 1"):
        assert words in out
    for words in ("the worst, at", "told only that it was chosen", "observation channel: exact", "hit ratio"):
        assert words in out
    assert "uniform-node is within" in out
    assert "for this walk and observation channel" in out


def test_the_optimal_law_is_written_and_keeps_its_budget(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What --out wrote is the law described: balanced, within the hops asked for, on another walk."""
    path = tmp_path / "law.npz"
    options = ["--law", "optimal", "--walk", "non-backtracking", "--budget-hops", "36.5", "--out", str(path)]
    found = run_json([*GRAPH, *options], capsys)
    assert 36.49 < found["mean_iteration_hops"] <= 36.5
    law = load_law(path)
    assert isinstance(law, DestinationLaw)
    np.testing.assert_allclose(np.asarray(law.matrix.sum(axis=0)).ravel(), 1.0, atol=1e-8)
    assert found["walk"] == "non-backtracking"
    assert found["certificates"][0]["shortfall"] < 1e-5


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_the_audit_measures_what_the_design_promises(
    walk: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Hops and entropies of both observers, played and attacked: within four standard errors; a mutant is not.

    The mutant takes what a blind destination is left with for what the observer is.
    """
    path, graph = str(tmp_path / "law.npz"), GRAPH[1:3]
    design = [*GRAPH, "--law", "optimal", "--walk", walk, "--out", path]
    audit = ["audit", *graph, "--law", path, "--walk", walk, "--observers", "return-time,last-hop"]
    run_json(design, capsys)
    played = run_json([*audit, "--updates", "60000", "--seed", "11"], capsys)
    for observer in ("return-time", "last-hop"):
        promised = run_json([*design, "--observer", observer], capsys)
        low, high = played["hops_per_update_interval"]
        assert abs(played["hops_per_update"] - promised["mean_iteration_hops"]) < high - low
        measured = played["observers"][observer]["overall"]
        for score in ("node_entropy_nats", "hit_ratio"):
            low, high = measured[f"{score}_interval"]
            assert abs(measured[score] - promised[score]) < high - low
        low, high = measured["node_entropy_nats_interval"]
        assert abs(measured["node_entropy_nats"] - promised["blind_node_entropy_nats"]) > high - low


def test_objective_observer_and_balance_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Fewest hits of the last-hop observer; and an optimal law that need not be balanced."""
    small = ["design", "--graph", "rrg:12:3:seed=1", "--support", "2:3", "--law", "optimal"]
    hits = run_json([*small, "--objective", "hit-ratio", "--observer", "last-hop"], capsys)
    entropy = run_json([*small, "--observer", "last-hop"], capsys)
    assert hits["observer"] == entropy["observer"] == "last-hop"
    assert {one["objective"] for one in hits["certificates"]} == {"hit-ratio"}
    assert hits["hit_ratio"] < entropy["hit_ratio"]
    assert hits["node_entropy_nats"] < entropy["node_entropy_nats"]
    loose = run_json([*GRAPH, "--law", "optimal", "--no-balanced"], capsys)
    assert loose["prior_range"][1] > loose["prior_range"][0] + 0.05
    even = run_json([*GRAPH, "--law", "uniform-node", "--balanced"], capsys)
    assert even["prior_range"] == pytest.approx([1, 1], abs=1e-8)


def test_an_exact_equalised_law_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """On a torus all sources look alike; on an irregular graph it says by how much they do not."""
    _, out, _ = run(["design", "--graph", "torus:5:6", "--support", "2:4", "--law", "equalised"], capsys)
    assert (
        "exact solution: at the return time designed for one source of a destination outweighs another by up to 1.000"
        in out
    )
    _, out, _ = run([*GRAPH, "--law", "equalised"], capsys)
    assert "no exact solution; the nearest" in out


def test_the_papers_law_walks_any_chain_too(capsys: pytest.CaptureFixture[str]) -> None:
    """The default law with another walk costs fewer hops; without --walk it is the simple one as ever."""
    arguments = ["design", "--graph", "rrg:30:3:seed=1", "--support", "2:3"]
    simple, named, better = (
        run_json([*arguments, *walk], capsys) for walk in ([], ["--walk", "simple"], ["--walk", "non-backtracking"])
    )
    assert simple == named
    assert better["mean_iteration_hops"] < 0.6 * simple["mean_iteration_hops"]


def test_the_frontier_puts_walks_and_laws_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A row for each, bounds that hold, JSON as written, and the figure."""
    arguments = [*GRAPH, "--frontier", "--walk", "simple,non-backtracking", "--out", str(tmp_path)]
    found = run_json(arguments, capsys)
    assert json.loads((tmp_path / "frontier.json").read_text()) == found
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        assert (tmp_path / f"frontier{suffix}").read_bytes().startswith(start)
    rows = found["rows"]
    assert {row["walk"] for row in rows} == {"simple", "non-backtracking"}
    for walk in ("simple", "non-backtracking"):
        mine = [row for row in rows if row["walk"] == walk]
        assert [(row["law"], row["balanced"]) for row in mine[:4]] == [
            ("uniform-node", False),
            ("uniform-node", True),
            ("equalised", False),
            ("equalised", True),
        ]
        best = mine[4:]
        assert all(row["law"] == "optimal" and row["balanced"] for row in best)
        assert len(best) >= 3
        assert np.all(np.diff([row["node_entropy_nats"] for row in best]) < 0)
        assert all(row["node_entropy_nats"] <= row["node_entropy_bound_nats"] for row in best)
        assert mine[1]["node_entropy_nats"] < best[0]["node_entropy_bound_nats"]
    code, out, err = run(arguments, capsys)
    assert (code, err) == (0, "")
    for words in ("at most", "hit ratio", "is within", "by the law alone costs", "wrote"):
        assert words in out


BAD = {
    "least-recent has no chain": (["--law", "optimal", "--walk", "least-recent"], "veilwalk audit --walk least-recent"),
    "unknown law": (["--law", "moon"], "law = 'moon'"),
    "unknown walk": (["--law", "optimal", "--walk", "moon"], "walk = 'moon'"),
    "unknown objective": (["--law", "optimal", "--objective", "fame"], "objective = 'fame'"),
    "unknown observer": (["--law", "optimal", "--observer", "moon"], "observer = 'moon'"),
    "budget too small": (["--law", "optimal", "--budget-hops", "10"], "budget of 10 hops"),
    "budget not positive": (["--law", "optimal", "--budget-hops", "0"], "budget_hops = 0.0"),
    "balance of the paper's law": (["--balanced"], "law = 'paper'"),
    "budget of the paper's law": (["--budget-hops", "100"], "law = 'paper'"),
    "closed forms with a law": (["--law", "optimal", "--nodes", "300"], "without --nodes"),
    "return time within the support": (["--law", "equalised", "--return-time", "3"], "return time = 3.0"),
    "one bad walk of the frontier": (["--frontier", "--walk", "simple,moon"], "walk = 'moon'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_line(case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit 2, the culprit named, nothing written."""
    arguments, culprit = BAD[case]
    code, out, err = run([*GRAPH, *arguments, "--out", str(tmp_path / "out.npz")], capsys)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert culprit in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--law", "optimal"], ["--frontier"]])
def test_without_a_graph_there_is_nothing_to_design_on(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The closed forms know none of this."""
    code, _, err = run(["design", "--nodes", "300", "--degree", "3", *arguments], capsys)
    assert code == 2
    assert "given with --graph" in err
    code, _, err = run(["design", "--nodes", "300", "--degree", "3", "--walk", "metropolis"], capsys)
    assert code == 2
    assert "walk = 'metropolis'" in err
