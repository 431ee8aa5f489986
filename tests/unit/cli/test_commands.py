"""Every verb of the command line: what it prints, what it writes, how it fails."""

from __future__ import annotations

import errno
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli, without_compiling

from veilwalk.design import DestinationLaw, DistanceLaw, load_law

PAPER = ["paper", "law", "--nodes", "300", "--degree", "3", "--support", "2:6", "--window", "5", "--tail", "0.3"]
LONG = "x" * 300
DESIGN_KEYS = {
    "return_time_design",
    "distance_pmf",
    "shell_sizes",
    "distance_entropy_nats",
    "node_entropy_nats",
    "anonymity_floor_nats",
    "mean_iteration_hops",
    "formulas",
    "warnings",
}


def test_design_json_has_the_promised_keys_and_the_papers_numbers(run: Cli) -> None:
    """The command of the paper's evaluation."""
    found = run.json(PAPER)
    assert set(found) >= DESIGN_KEYS
    assert found["return_time_design"] == 634
    assert found["distance_entropy_nats"] == pytest.approx(math.log(5), abs=1e-12)
    assert sum(found["distance_pmf"]) == pytest.approx(1, abs=1e-12)
    assert len(found["distance_pmf"]) == len(found["shell_sizes"]) == 5
    assert found["formulas"] == "corrected"


def test_design_prints_every_number_with_its_kind(run: Cli) -> None:
    """Distance or node, nats and bits, bound or notion, and the warnings."""
    code, out, _ = run(PAPER)
    assert code == 0
    for words in (
        "distance entropy",
        "node entropy",
        "nats",
        "bits",
        "proved lower bound",
        "hops per update",
        "warning: ass:frt",
        "warning: a relay next to the maker knows it for certain in 33.3% of updates",
    ):
        assert words in out


def test_design_printed_differs(run: Cli) -> None:
    """--formulas printed gives the paper's alpha."""
    found = run.json([*PAPER, "--formulas", "printed"])
    assert found["anonymity_floor_nats"] == pytest.approx(0.526, abs=1e-3)


def test_design_without_side_information(run: Cli) -> None:
    """--return-time inf designs for no return time seen; JSON has no infinity, so it says null."""
    found = run.json([*PAPER, "--return-time", "inf"])
    assert found["return_time_design"] is None


def test_design_on_a_graph_gives_a_law_per_node(run: Cli, tmp_path: Path) -> None:
    """destination_pmf is row-stochastic, zero outside the support, and equal to the file written."""
    out = tmp_path / "law.npz"
    found = run.json(["design", "--graph", "rrg:40:3:seed=2", "--support", "2:4", "--out", str(out)])
    matrix = np.array(found["destination_pmf"])
    assert set(found) >= DESIGN_KEYS | {"worst_destination", "graph_digest"}
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
    assert np.all(np.diag(matrix) == 0)
    law = load_law(out)
    assert isinstance(law, DestinationLaw)
    np.testing.assert_array_equal(law.matrix.toarray(), matrix)


def test_design_writes_a_distance_law(run: Cli, tmp_path: Path) -> None:
    """--out with closed forms: a law by distance, usable on any graph."""
    out = tmp_path / "law.npz"
    found = run.json([*PAPER, "--out", str(out)])
    law = load_law(out)
    assert isinstance(law, DistanceLaw)
    np.testing.assert_array_equal(law.distance_pmf, found["distance_pmf"])


def test_graph_info_tells_the_network(run: Cli) -> None:
    """As JSON and as a table."""
    found = run.json(["graph", "info", "torus:4:6"])
    assert (found["nodes"], found["edges"], found["diameter_upper"], found["bipartite"]) == (24, 48, 5, True)
    assert sum(found["mean_shell_sizes"]) == pytest.approx(24)
    code, out, _ = run(["graph", "info", "torus:4:6"])
    assert code == 0
    assert "spectral gap" in out
    assert re.search(r"^diameter +5 *$", out, re.MULTILINE)


def test_graph_info_speaks_of_nodes_by_name(run: Cli, tmp_path: Path) -> None:
    """Labels as they are, brackets included; bounds in words."""
    path = tmp_path / "named.csv"
    path.write_text("St. [red]Mary,b\nb,c\n")
    code, out, _ = run(["graph", "info", f"file:{path}"])
    assert code == 0
    assert "St. [red]Mary, b, c" in out
    assert "1 to 2, mean 1.33333" in out
    code, out, err = run(["graph", "info", str(path)])
    assert (code, out) == (2, "")
    assert f"file:{path}" in err


def test_what_a_file_holds_beyond_edges_is_said_once_on_stderr(tmp_path: Path) -> None:
    """As a process, where nothing has set up logging: the line alone, and the answer untouched."""
    path = tmp_path / "weights.csv"
    path.write_text("source,target,weight\na,b,1\nb,c,2\n")
    script = Path(sys.executable).parent / "veilwalk"
    done = subprocess.run(
        [script, "graph", "info", f"file:{path}", "--json"], capture_output=True, text=True, check=True
    )
    expected = "line 1 (source, target, weight) is taken for a header; columns after the second are ignored"
    assert without_compiling(done.stderr) == f"{path}: {expected}\n"
    assert json.loads(done.stdout)["edges"] == 2


def test_paper_claims_lists_every_claim_with_its_status(run: Cli) -> None:
    """Table and JSON agree."""
    found = run.json(["paper", "claims"])
    code, out, _ = run(["paper", "claims"])
    assert code == 0
    for claim in found:
        assert claim["label"].split()[0] in out
    assert {claim["status"] for claim in found} == {"as-printed", "corrected", "not-reproduced"}


def test_paper_reproduce_writes_four_files_a_figure(run: Cli, tmp_path: Path) -> None:
    """PNG, SVG, CSV and JSON; the trade-off rows carry the promised keys at the promised tolerances."""
    code, _, _ = run(["paper", "reproduce", "trade-off", "--out", str(tmp_path), "--graphs", "1"])
    assert code == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"trade-off.{s}" for s in ("png", "svg", "csv", "json")}
    rows = json.loads((tmp_path / "trade-off.json").read_text())["rows"]
    published = [row for row in rows if row["degree"] == 3]
    assert [row["support"] for row in published] == [f"2:{hi}" for hi in range(4, 10)]
    for row in published:
        assert row["recipe_hops"] == pytest.approx(row["published_hops"], rel=2e-5)
        assert row["integer_window_hops"] == pytest.approx(row["published_hops"], rel=1e-9)
        assert row["formula_hops"] == pytest.approx(row["published_hops"], rel=0.01)
        assert row["exact_hops"] == pytest.approx(row["formula_hops"], rel=0.02)


BAD = {
    "degree below 3": ([*PAPER[:4], "--degree", "2"], "degree = 2"),
    "odd edge ends": (["paper", "law", "--nodes", "301", "--degree", "3"], "nodes * degree = 903"),
    "support beyond the diameter": ([*PAPER, "--support", "2:12"], "2:12"),
    "support beyond the graph": (["design", "--graph", "rrg:40:3", "--support", "2:40"], "2:40"),
    "neighbours without the flag": (
        [*PAPER, "--support", "1:6"],
        "--support = 1: must be >= 2 (direct",
    ),
    "support backwards": ([*PAPER, "--support", "6:2"], "6:2"),
    "support not a range": ([*PAPER, "--support", "six"], "six"),
    "kappa within the support": ([*PAPER, "--return-time", "6"], "--return-time = 6.0"),
    "kappa not a number": ([*PAPER, "--return-time", "nan"], "--return-time = nan"),
    "tail zero": ([*PAPER, "--tail", "0"], "tail = 0.0"),
    "tail one": ([*PAPER, "--tail", "1"], "tail = 1.0"),
    "tail not a number": ([*PAPER, "--tail", "nan"], "tail = nan"),
    "window beyond all walks": ([*PAPER, "--window", str(10**12)], "--window = 1000000000000: must be at most 300000"),
    "support beyond all arrays": (
        [*PAPER, "--support", "2:99999999999"],
        "--support = '2:99999999999': must be within",
    ),
    "window negative": ([*PAPER, "--window", "-1"], "window = -1"),
    "nodes not a number": (["paper", "law", "--nodes", "many", "--degree", "3"], "--nodes = 'many': must be a whole"),
    "nothing to design for": (["design"], "give --graph or --roster"),
    "nothing to print a law for": (["paper", "law", "--degree", "3"], "give both --nodes and --degree"),
    "nothing to recommend for": (["recommend"], "give --graph or --roster"),
    "two networks": (["recommend", "--graph", "ring:9", "--members", "20"], "--members = 20"),
    "too few members": (["recommend", "--members", "2"], "--members = 2"),
    "a number left out": (["graph", "info"], "SPEC is not given"),
    "more colluders than nodes": (["audit", "--graph", "rrg:12:3:seed=1", "--colluders", "200%"], "colluders = '200%'"),
    "a figure before its folder": (["paper", "reproduce", "fig9"], "figure = 'fig9'"),
    "formulas": ([*PAPER, "--formulas", "guessed"], "guessed"),
    "graph kind": (["graph", "info", "moon:3"], "moon:3"),
    "graph file missing": (["graph", "info", "file:nowhere.txt"], "nowhere.txt"),
    "one node": (["graph", "info", "complete:1"], "1"),
    "odd regular graph": (["graph", "info", "rrg:301:3"], "301"),
    "figure": (["paper", "reproduce", "moon", "--out", "x"], "moon"),
    "figure without graphs": (["paper", "reproduce", "trade-off", "--out", "x", "--graphs", "0"], "graphs = 0"),
    "figure of no degree": (["paper", "reproduce", "all", "--out", "x", "--degree", "three"], "--degree = 'three'"),
    "no folder": (["paper", "reproduce", "all"], "out"),
    "flag": (["design", "--moon"], "--moon"),
    "verb": (["moon"], "moon"),
    "law suffix": ([*PAPER, "--out", "law.txt"], "law.txt"),
    "graph name too long": (["graph", "info", LONG], "File name too long"),
    "graph file's name too long": (["graph", "info", f"file:{LONG}"], "File name too long"),
    "run's name too long": (["export", LONG, "--to", "model.npz"], "File name too long"),
    "folder's name too long": (["init", LONG], "File name too long"),
    "watched name too long": (["watch", LONG], "File name too long"),
}


MOVED = {
    "--nodes": "paper law",
    "--formulas": "paper law",
    "--tail": "paper law",
    "--frontier": "frontier",
    "--keep": "recommend",
    "--engine": "sampled",
    "--objective": "node entropy",
}


@pytest.mark.parametrize("flag", MOVED)
def test_a_flag_that_moved_names_its_place(flag: str, run: Cli) -> None:
    """In one line, whatever else is given."""
    code, out, err = run(["design", "--graph", "ring:9", flag, "3"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{flag} is " in err
    assert MOVED[flag] in err


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_line(case: str, run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2, one line on stderr that names the culprit, nothing on stdout, nothing written."""
    monkeypatch.chdir(tmp_path)
    arguments, culprit = BAD[case]
    code, out, err = run(arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("veilwalk: ")
    assert culprit in err
    assert not list(tmp_path.iterdir())


BAD_FILES = {
    "empty": ("", "no edges"),
    "words": ("0 1\none two three four\n", "line 2"),
    "loop": ("0 1\n1 1\n", "1"),
    "one column": ("0\n1\n", "line 1"),
    "two parts": ("0 1\n2 3\n", "2, 2"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_edge_lists_get_one_clear_line(case: str, run: Cli, tmp_path: Path) -> None:
    """The line number, or the component sizes."""
    content, culprit = BAD_FILES[case]
    path = tmp_path / "edges.txt"
    path.write_text(content)
    code, out, err = run(["graph", "info", f"file:{path}"])
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert culprit in err


def test_an_unwritable_folder_is_a_storage_error(run: Cli, tmp_path: Path) -> None:
    """Exit 4: the parameters were fine."""
    (tmp_path / "file").write_text("x")
    code, _, err = run([*PAPER, "--out", str(tmp_path / "file" / "law.npz")])
    assert code == 4
    assert "cannot write" in err


def test_a_place_that_may_not_be_entered_is_not_our_fault(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even to ask whether something is there is refused in somebody else's folder."""

    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    code, _, err = run(["export", "theirs/run", "--to", "model.npz"])
    assert (code, err) == (2, "veilwalk: theirs/run: Permission denied\n")


def test_a_disk_that_is_full_is_not_our_fault(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to an open file names no file, and gets its line all the same."""

    def full(path: Path) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "exists", full)
    code, _, err = run(["export", "run", "--to", "model.npz"])
    assert (code, err) == (4, "veilwalk: No space left on device\n")


def test_our_own_faults_are_told_apart(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 70 with the traceback, which only a bug may show."""
    import veilwalk.design

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(veilwalk.design, "design_regular", broken)
    code, _, err = run(PAPER)
    assert code == 70
    assert "RuntimeError: boom" in err


def test_groups_without_a_verb_print_their_help(run: Cli) -> None:
    """On standard output, ending like any usage error."""
    for arguments in ([], ["graph"], ["paper"]):
        code, out, err = run(arguments)
        assert (code, err) == (2, "")
        assert "Usage" in out


def test_version(run: Cli) -> None:
    """One line."""
    from veilwalk.core.version import __version__

    assert run(["--version"]) == (0, f"veilwalk {__version__}\n", "")


def test_the_installed_command_and_a_closed_pipe() -> None:
    """The console script runs as a process, and a reader that leaves early is not an error."""
    script = Path(sys.executable).parent / "veilwalk"
    with subprocess.Popen(
        [script, "paper", "claims"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "claims" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0
