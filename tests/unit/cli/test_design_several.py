"""``veilwalk design --recipients`` and ``recommend``: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec

SPEC = "rrg:40:3:seed=1"
GRAPH = ["design", "--graph", SPEC]
ASKED = [*GRAPH, "--recipients", "4", "--law", "far:3", "--walk", "non-backtracking"]
KEYS = {
    "law",
    "walk",
    "recipients",
    "n_nodes",
    "graph_digest",
    "eligible",
    "mean_iteration_hops",
    "model_bytes",
    "suite",
}
KEYS |= {"mean_iteration_hops_interval", "mean_iteration_hops_kind", "message_bytes", "bytes_per_update"}
KEYS |= {"node_entropy_nats", "node_entropy_interval", "node_entropy_kind", "node_entropy_share", "prior_range"}
KEYS |= {"certain_to_a_relay", "eclipse", "read_by_colluders", "blind_node_entropy_nats", "blind_node_entropy_interval"}
KEYS |= {"hit_ratio", "worst_percent_hit_ratio", "worst_arc_hit_ratio", "predecessor", "colluders_first_sight"}
KEYS |= {"hit_ratio_interval", "worst_percent_hit_ratio_interval", "worst_arc_hit_ratio_interval"}
KEYS |= {"observer", "support", "return_hit_ratio", "return_hit_ratio_interval"}


def test_json_has_the_promised_keys(run: Cli) -> None:
    """And bytes are hops times the length of a message."""
    found = run.json(ASKED)
    assert set(found) == KEYS
    assert found["bytes_per_update"] == pytest.approx(found["mean_iteration_hops"] * found["message_bytes"])
    assert found["certain_to_a_relay"] == 0.0
    assert found["node_entropy_nats"] < found["blind_node_entropy_nats"]
    assert [one["share"] for one in found["colluders_first_sight"]] == [0.025, 0.05, 0.1, 0.2]
    assert run.json([*ASKED, "--suite", "x25519"])["message_bytes"] < found["message_bytes"]


def test_the_scheme_is_written_and_read(run: Cli, tmp_path: Path) -> None:
    """With its walk and its number of recipients; design reads it too."""
    path = str(tmp_path / "scheme.npz")
    code, out, err = run([*ASKED, "--out", path])
    assert (code, err) == (0, "")
    for words in (
        "sealed for 4, law far:3",
        "hops per update",
        "nats",
        "times the floor",
        "predecessor",
        f"wrote {path}",
    ):
        assert words in out
    scheme = choose_scheme(parse_graph_spec(SPEC), path)
    assert (scheme.recipients, str(scheme.walk)) == (4, "non-backtracking")


def test_a_recommendation_prints_and_draws_the_whole_frontier(run: Cli, tmp_path: Path) -> None:
    """What was looked at, the best, and the figure; on so small a network it says that nothing keeps the floor."""
    folder = tmp_path / "several"
    arguments = ["recommend", "--graph", SPEC, "--walk", "non-backtracking"]
    code, out, err = run([*arguments, "--keep", "0.9", "--out", str(folder)])
    assert (code, err) == (0, "")
    assert "best: sealed for" in out
    assert {path.name for path in folder.iterdir()} == {"frontier.json", "frontier.png", "frontier.svg", "scheme.npz"}
    record = json.loads((folder / "frontier.json").read_text())
    assert record["meets_floor"] is True
    assert {row["law"] for row in record["rows"]} >= {"far:2", "far:3"}
    code, out, _ = run(["recommend", "--graph", "ring:9"])
    assert code == 0
    assert "nothing keeps 0.97 of log(N - 1)" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--recipients", "0"], "recipients = 0: must be >= 1"),
        (["--recipients", "-1"], "recipients = -1: must be >= 1"),
        (["--recipients", "500"], "recipients = 500: must be at most 36"),
        (["--recipients", "39", "--law", "far:3"], "recipients = 39: must be at most"),
        (["--recipients", "many"], "recipients = 'many': must be a whole number"),
        (["--recipients", "auto"], "veilwalk recommend"),
        (["--recipients", "4", "--budget-hops", "9"], "--budget-hops = 9.0"),
        (["--recipients", "4", "--memory", "8G"], "--memory = '8G'"),
        (["--recipients", "3", "--law", "plain"], "law = 'plain': must be a law that seals for somebody"),
        (["--recipients", "4", "--model-bytes", "0"], "--model-bytes = 0: must be >= 1"),
        (["--recipients", "4", "--suite", "rot13"], "suite = 'rot13'"),
        (["--law", "far:1"], "far = 1: must be 2 or more"),
        (["--recipients", "4", "--out", "scheme.txt"], "must be an .npz file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str], words: str, run: Cli) -> None:
    """Naming the parameter, its value and what is needed."""
    code, out, err = run([*GRAPH, *arguments])
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize("keep", ["0", "1.5"])
def test_a_floor_that_is_no_share_is_refused(keep: str, run: Cli) -> None:
    """In one line."""
    code, out, err = run(["recommend", "--graph", SPEC, "--keep", keep])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"--keep = {float(keep)}" in err


@pytest.mark.parametrize("members", [20, 15])
def test_members_without_a_network_get_one(members: int, run: Cli) -> None:
    """Three links each, or four where their number is odd."""
    record = run.json(["recommend", "--members", str(members)])
    assert record["design"]["n_nodes"] == members
    assert record["best"]["recipients"] == record["design"]["recipients"]


def test_a_scheme_file_of_several_is_designed_again(run: Cli, tmp_path: Path) -> None:
    """It brings its walk and its number of recipients."""
    path = str(tmp_path / "scheme.npz")
    assert run([*ASKED, "--out", path])[0] == 0
    again = run.json([*GRAPH, "--law", path])
    assert (again["recipients"], again["walk"]) == (4, "non-backtracking")


def test_a_law_of_another_graph_is_refused(run: Cli, tmp_path: Path) -> None:
    """Its rows would say nothing here."""
    path = str(tmp_path / "scheme.npz")
    assert run([*ASKED, "--out", path])[0] == 0
    code, out, err = run(["design", "--graph", "rrg:40:3:seed=2", "--recipients", "4", "--law", path])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "graph" in err
