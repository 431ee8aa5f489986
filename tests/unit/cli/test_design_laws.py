"""``veilwalk design`` with laws for any graph, and the frontier: what they print and write, how they fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.design import DestinationLaw, load_law

GRAPH = ["design", "--graph", "ba:30:2:seed=1", "--support", "2:4"]


KEYS = {"law", "walk", "n_nodes", "graph_digest", "support", "balanced", "mean_iteration_hops", "prior_range"}
KEYS |= {"prior_range_nodes", "observer", "channel", "node_entropy_nats", "hit_ratio", "blind_node_entropy_nats"}
KEYS |= {"blind_hit_ratio", "worst_destinations", "best_known_sources", "window", "certificates"}
KEYS |= {"mean_iteration_hops_kind", "certain_to_a_relay", "recipients", "node_entropy_kind", "node_entropy_share"}
KEYS |= {"eclipse", "eligible", "model_bytes", "suite", "message_bytes", "bytes_per_update"}


@pytest.mark.parametrize("law", ["uniform-node", "optimal"])
def test_json_has_the_promised_keys(law: str, run: Cli) -> None:
    """The same for every law, and what belongs to one kind only."""
    found = run.json([*GRAPH, "--law", law])
    assert set(found) == KEYS
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
    }
    for one in found["certificates"]:
        assert {"law", "prior", "budget_hops", "value", "best_found", "bound", "shortfall"} < set(one)
        assert one["in_words"].startswith(one["law"])


def test_tables_say_what_each_number_is(run: Cli) -> None:
    """Units, observer, prior, guarantee with the worst nodes, channel, and the certificate in words."""
    code, out, err = run([*GRAPH, "--law", "uniform-node"])
    assert (code, err) == (0, "")
    for words in (
        "hops per update",
        "nats",
        "bits",
        "return-time observer, exact",
        "window notion",
        "the paper's rule",
    ):
        assert words in out
    for words in (
        "the worst, at",
        "knows only that it opened",
        "observation channel: exact",
        "hit ratio",
    ):
        assert words in out
    assert "uniform-node is within" in out
    assert "for this walk and observation channel" in out


def test_the_optimal_law_is_written_and_keeps_its_budget(run: Cli, tmp_path: Path) -> None:
    """What --out wrote is the law described: balanced, within the hops asked for, on another walk."""
    path = tmp_path / "law.npz"
    options = ["--law", "optimal", "--walk", "non-backtracking", "--budget-hops", "36.5", "--out", str(path)]
    found = run.json([*GRAPH, *options])
    # The search goes by arrivals at the source by any arc alike, the price by the exact long run: 2 parts in 10^4.
    assert 36.49 < found["mean_iteration_hops"] < 36.51
    law = load_law(path)
    assert isinstance(law, DestinationLaw)
    np.testing.assert_allclose(np.asarray(law.matrix.sum(axis=0)).ravel(), 1.0, atol=1e-8)
    assert found["walk"] == "non-backtracking"
    assert found["certificates"][0]["shortfall"] < 1e-5


@pytest.mark.parametrize("walk", ["simple", "non-backtracking"])
def test_the_audit_measures_what_the_design_promises(walk: str, run: Cli, tmp_path: Path) -> None:
    """Hops and entropies of both observers, played and attacked: within four standard errors; a mutant is not.

    The mutant takes what a blind destination is left with for what the observer is.
    """
    path, graph = str(tmp_path / "law.npz"), GRAPH[1:3]
    design = [*GRAPH, "--law", "optimal", "--walk", walk, "--out", path]
    audit = ["audit", *graph, "--law", path, "--walk", walk, "--observers", "return-time,last-hop"]
    run.json(design)
    played = run.json([*audit, "--updates", "60000", "--seed", "11"])
    for observer in ("return-time", "last-hop"):
        promised = run.json([*design, "--observer", observer])
        low, high = played["hops_per_update_interval"]
        assert abs(played["hops_per_update"] - promised["mean_iteration_hops"]) < high - low
        measured = played["observers"][observer]["overall"]
        for score in ("node_entropy_nats", "hit_ratio"):
            low, high = measured[f"{score}_interval"]
            assert abs(measured[score] - promised[score]) < high - low
        low, high = measured["node_entropy_nats_interval"]
        assert abs(measured["node_entropy_nats"] - promised["blind_node_entropy_nats"]) > high - low


def test_observer_and_balance_are_passed_on(run: Cli) -> None:
    """The last-hop observer; and an optimal law that need not be balanced."""
    small = ["design", "--graph", "rrg:12:3:seed=1", "--support", "2:3", "--law", "optimal"]
    assert run.json([*small, "--observer", "last-hop"])["observer"] == "last-hop"
    loose = run.json([*GRAPH, "--law", "optimal", "--no-balanced"])
    assert loose["prior_range"][1] > loose["prior_range"][0] + 0.05
    even = run.json([*GRAPH, "--law", "uniform-node", "--balanced"])
    assert even["prior_range"] == pytest.approx([1, 1], abs=1e-8)


def test_the_papers_law_walks_any_chain_too(run: Cli) -> None:
    """The default law with another walk costs fewer hops; without --walk it is the simple one as ever."""
    arguments = ["design", "--graph", "rrg:30:3:seed=1", "--support", "2:3"]
    simple, named, better = (
        run.json([*arguments, *walk]) for walk in ([], ["--walk", "simple"], ["--walk", "non-backtracking"])
    )
    assert simple == named
    assert better["mean_iteration_hops"] < 0.6 * simple["mean_iteration_hops"]


def test_the_frontier_puts_walks_and_laws_side_by_side(run: Cli, tmp_path: Path) -> None:
    """A row for each, bounds that hold, JSON as written, and the figure."""
    arguments = ["frontier", *GRAPH[1:], "--walk", "simple,non-backtracking", "--out", str(tmp_path)]
    found = run.json(arguments)
    assert json.loads((tmp_path / "frontier.json").read_text()) == found
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        assert (tmp_path / f"frontier{suffix}").read_bytes().startswith(start)
    rows = found["rows"]
    assert {row["walk"] for row in rows} == {"simple", "non-backtracking"}
    for walk in ("simple", "non-backtracking"):
        mine = [row for row in rows if row["walk"] == walk]
        assert [(row["law"], row["balanced"]) for row in mine[:2]] == [
            ("uniform-node", False),
            ("uniform-node", True),
        ]
        best = mine[2:]
        assert all(row["law"] == "optimal" and row["balanced"] for row in best)
        assert len(best) >= 3
        assert np.all(np.diff([row["node_entropy_nats"] for row in best]) < 0)
        assert all(row["node_entropy_nats"] <= row["node_entropy_bound_nats"] for row in best)
        assert mine[1]["node_entropy_nats"] < best[0]["node_entropy_bound_nats"]
    code, out, err = run(arguments)
    assert (code, err) == (0, "")
    for words in ("at most", "hit ratio", "optimal", "uniform-node, balanced", "wrote"):
        assert words in out


BAD = {
    "removed walk": (["--law", "optimal", "--walk", "least-recent"], "walk = 'least-recent'"),
    "a law that was removed": (["--law", "equalised"], "paper-exact or optimal"),
    "unknown law": (["--law", "moon"], "law = 'moon'"),
    "unknown walk": (["--law", "optimal", "--walk", "moon"], "walk = 'moon'"),
    "a flag that was removed": (["--law", "optimal", "--objective", "hit-ratio"], "is gone"),
    "unknown observer": (["--law", "optimal", "--observer", "moon"], "observer = 'moon'"),
    "budget too small": (["--law", "optimal", "--budget-hops", "10"], "budget of 10 hops"),
    "budget not positive": (["--law", "optimal", "--budget-hops", "0"], "--budget-hops = 0.0"),
    "balance of the paper's law": (["--balanced"], "--balanced = True: must be left out: the law paper-exact"),
    "budget of the paper's law": (
        ["--budget-hops", "100"],
        "--budget-hops = 100.0: must be left out: the law",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_line(case: str, run: Cli, tmp_path: Path) -> None:
    """Exit 2, the culprit named, nothing written."""
    arguments, culprit = BAD[case]
    code, out, err = run([*GRAPH, *arguments, "--out", str(tmp_path / "out.npz")])
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert culprit in err
    assert not list(tmp_path.iterdir())


def test_a_bad_walk_of_a_frontier_is_named(run: Cli, tmp_path: Path) -> None:
    """Before anything is computed or written."""
    code, out, err = run(["frontier", *GRAPH[1:], "--walk", "simple,moon", "--out", str(tmp_path / "frontier")])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "walk = 'moon'" in err
    assert not list(tmp_path.iterdir())
