"""``veilwalk audit``: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tests.helpers.cli import Cli

from veilwalk.audit import OBSERVERS, SCORES, AuditSettings, Posterior
from veilwalk.audit._members import Coalition, FilterObserver
from veilwalk.audit._plan import INFERENCES
from veilwalk.audit._timings import PlainTiming
from veilwalk.cli import _output
from veilwalk.cli._main import app
from veilwalk.core.walk import WALKS
from veilwalk.design import LAWS
from veilwalk.graphs import parse_graph_spec
from veilwalk.training import build_scheme, make_spec

GRAPH = ["--graph", "rrg:30:3:seed=1"]
SMALL = ["audit", *GRAPH, "--support", "2:3", "--updates", "1500", "--colluders", "4"]
ASKED = [name for name in OBSERVERS if name != "path"]
ROW = {"lo", "hi", "share", "distance_entropy_nats", "node_entropy_nats", "top_posterior", "hit_ratio"}
ROW |= {"blind_hit_ratio", "updates"} | {f"{name}_interval" for name in SCORES}


def test_json_has_the_promised_keys(run: Cli) -> None:
    """hops_per_update, and for every observer an overall row and rows by return time, each with intervals."""
    found = run.json([*SMALL, "--law", "paper"])
    low, high = found["hops_per_update_interval"]
    assert low < found["hops_per_update"] < high
    assert found["hops_per_update"] == pytest.approx(found["hops_per_update_predicted"], rel=0.1)
    assert list(found["observers"]) == ASKED
    assert (found["seed"], found["updates"], found["complete"]) == (7, 1500, True)
    for name, observer in found["observers"].items():
        if OBSERVERS[name].links:
            counts = [row["linked"] for row in observer["by_linked_updates"]]
            assert counts == [1, 2, 4, 8, 16][: len(counts)]
            assert len(counts) > 2
            continue
        assert set(observer["overall"]) >= ROW
        assert observer["overall"]["share"] == 1
        multiple = observer["overall"]["hit_ratio"] / (4 / 30) if OBSERVERS[name].colluding else None
        assert observer["overall"].get("times_floor") == pytest.approx(multiple)
        assert observer["worst_percent"]["node_entropy_nats"] <= observer["overall"]["node_entropy_nats"]
        assert len(observer["by_return_time"]) > 3
        for row in observer["by_return_time"]:
            assert set(row) >= ROW
            assert row["lo"] <= row["hi"]
        assert sum(row["share"] for row in observer["by_return_time"]) == pytest.approx(1, abs=1e-12)
        starts = [row["lo"] for row in observer["by_return_time"]]
        assert starts == sorted(starts)


def test_several_recipients(run: Cli) -> None:
    """The record carries for how many was sealed, the table says it; more than anybody has is refused in a line."""
    asked = ["audit", *GRAPH, "--law", "far:3", "--walk", "non-backtracking", "--observers", "prior,path"]
    asked += ["--updates", "2000"]
    found = run.json([*asked, "--recipients", "4"])
    assert found["params"]["recipients"] == 4
    assert found["hops_per_update"] < run.json(asked)["hops_per_update"] / 2
    code, out, err = run([*asked, "--recipients", "4"])
    assert (code, err) == (0, "")
    assert "sealed for 4" in out
    code, _, err = run([*asked, "--recipients", "40"])
    assert code == 2
    assert "recipients" in err
    assert err.count("\n") == 1


def test_tables_name_observers_and_units(run: Cli) -> None:
    """Entropies in nats and bits, the blind guess beside the hit ratio, every observer."""
    code, out, err = run([*SMALL, "--law", "paper"])
    assert (code, err) == (0, "")
    for words in ("hops per update", "entropy", "bits", "nats", "blind", *ASKED):
        assert words in " ".join(out.split())
    assert " to " in out


@pytest.mark.parametrize("law", ["paper", "plain"])
def test_eighty_columns_suffice(law: str, run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer, none is cut off, and rows stay rows."""
    monkeypatch.setattr(_output, "_PLAIN_WIDTH", 80)
    code, out, _ = run([*SMALL, "--law", law, *(["--colluders", "4,12"] if law == "paper" else [])])
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    rows = [line.split() for line in out.splitlines() if line.startswith("last-hop")]
    assert [len(row) for row in rows] == [10]


def test_a_curve_over_colluders(run: Cli, tmp_path: Path) -> None:
    """Several numbers of colluders add a row each, and a figure; more colluders name more sources."""
    arguments = [*SMALL, "--law", "uniform-node", "--observers", "prior", "--colluders", "2,12"]
    found = run.json([*arguments, "--out", str(tmp_path)])
    few, many = found["by_colluders"]
    assert (few["colluders"], many["colluders"]) == (2, 12)
    for name in ("first-sight", "coalition"):
        assert few[name]["hit_ratio"] < many[name]["hit_ratio"]
    assert {"colluders.json", "colluders.png", "colluders.svg"} <= {path.name for path in tmp_path.iterdir()}
    drawn = (tmp_path / "colluders.svg").read_text()
    assert re.search(r"<!-- \d+ colluders name \d+% of sources; blind, [\d.]+% -->", drawn)
    bands = re.findall(r'<g id="\w*PolyCollection_\d+">', drawn)
    assert len(bands) == 2, "the interval of each coalition"


def test_the_strongest_coalition_is_run_or_said_not_to_be(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the table of observers and in the curve, with the reason; standard error names the others too."""
    for kind in (FilterObserver, Coalition):
        monkeypatch.setattr(kind, "answers_per_minute", lambda _observer, _plan: 3.0)
    code, out, err = run([*SMALL, "--law", "paper", "--colluders", "4,12"])
    assert code == 0
    words = " ".join(out.split())
    assert "coalition not run" in words
    assert "strongest coalition not run: 64 answers" in words
    assert "strongest coalition of 12 not run: 64 answers" in words
    assert "not run: memory, neighbour, coalition:" in err


def test_a_dry_run_tells_the_memory_and_runs_nothing(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the memory; the engine is not called and nothing is written."""
    monkeypatch.setattr("veilwalk.design._scheme.iter_protocol", None)
    folder = tmp_path / "out"
    code, out, err = run([*SMALL, "--law", "paper", "--dry-run", "--out", str(folder)])
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    assert "MiB beyond the program itself for 1500 updates on 30 nodes" in out
    assert not folder.exists()


def test_out_writes_the_record_and_its_figures(run: Cli, tmp_path: Path) -> None:
    """audit.json and each figure as PNG and SVG; the record holds what was printed."""
    found = run.json([*SMALL, "--law", "paper", "--out", str(tmp_path / "new")])
    figures = {f"entropy-by-return-time.{suffix}" for suffix in ("png", "svg")}
    assert {path.name for path in (tmp_path / "new").iterdir()} == figures | {"audit.json"}
    for path in (tmp_path / "new").iterdir():
        start = {".png": b"\x89PNG", ".svg": b"<?xml", ".json": b"{"}[path.suffix]
        assert path.read_bytes().startswith(start)
    record = json.loads((tmp_path / "new" / "audit.json").read_text())
    assert record["kind"] == "audit"
    assert record["seed"] == 7
    assert record["observers"] == found["observers"]


def names_every_source(found: Any) -> bool:
    """Whether the last hop is certain and right, and the prior alone a guess among three neighbours."""
    blind, certain = (found["observers"][name]["overall"] for name in ("prior", "last-hop"))
    third = all(abs(row["blind_hit_ratio"] - 1 / 3) < 1e-12 for row in (blind, certain))
    guesses = abs(blind["hit_ratio"] - 1 / 3) < 1e-12 and abs(blind["node_entropy_nats"] - np.log(3)) < 1e-12
    return third and guesses and (certain["hit_ratio"], certain["node_entropy_nats"]) == (1, 0)


def test_the_plain_walk_names_every_source(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hop, certain by the last hop and not without; the named mutant, who does not look at it, is not certain."""
    plain = [*SMALL, "--law", "plain"]
    found = run.json(plain)
    assert found["hops_per_update"] == found["hops_per_update_predicted"] == 1
    assert list(found["observers"]) == ["prior", "last-hop"]
    assert names_every_source(found)

    def blindfolded(local: PlainTiming, seen: Any, *, use_last_hop: bool) -> Posterior:
        return Posterior(np.full((len(seen), len(local.candidates)), 1 / len(local.candidates)), f"{use_last_hop}")

    monkeypatch.setattr(PlainTiming, "posterior", blindfolded)
    assert not names_every_source(run.json(plain))


def test_a_law_from_a_file(run: Cli, tmp_path: Path) -> None:
    """What design --out wrote for this graph is audited; its support comes with it."""
    path = tmp_path / "law.npz"
    assert run(["design", *GRAPH, "--support", "2:3", "--out", str(path)])[0] == 0
    arguments = ["audit", *GRAPH, "--law", str(path), "--updates", "3000", "--observers", "prior,last-hop"]
    found = run.json(arguments)
    assert found["params"]["support"] == "2:3"
    assert found["hops_per_update"] == pytest.approx(found["hops_per_update_predicted"], rel=0.1)
    assert list(found["observers"]) == ["prior", "last-hop"]


def test_a_distance_law_from_a_file_fits_any_graph(run: Cli, tmp_path: Path) -> None:
    """The closed form, written without a graph, is spread over the one that is audited."""
    path = tmp_path / "law.npz"
    assert run(["paper", "law", "--nodes", "30", "--degree", "3", "--support", "2:3", "--out", str(path)])[0] == 0
    by_file = run.json([*SMALL, "--law", str(path), "--observers", "prior"])
    by_name = run.json([*SMALL, "--law", "paper", "--observers", "prior"])
    assert by_file["observers"] == by_name["observers"]


def test_the_seed_is_all_there_is_to_chance(run: Cli) -> None:
    """The same seed prints the same JSON; another does not."""
    quick = [*SMALL, "--law", "paper", "--observers", "last-hop"]
    first, again, other = (run.json([*quick, "--seed", seed]) for seed in ("3", "3", "4"))
    assert first == again
    assert first["observers"] != other["observers"]


def refused(arguments: list[str], culprit: str, run: Cli, folder: Path) -> None:
    """Exit 2, one line on stderr that names the culprit, nothing on stdout, nothing written."""
    before = sorted(folder.iterdir())
    code, out, err = run([*arguments, "--out", str(folder / "out")])
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("veilwalk: ")
    assert culprit in err
    assert sorted(folder.iterdir()) == before


BAD = {
    "colluders, all": (["--colluders", "30"], "colluders = '30': must be fewer than all 30"),
    "colluders, none": (["--colluders", "0"], "colluders = 0"),
    "colluders, not a number": (["--colluders", "three"], "three"),
    "colluders, no share": (["--colluders", "0%"], "colluders = 0"),
    "a curve of a plain walk": (["--law", "plain", "--colluders", "2,4"], "the receiver of a plain walk knows"),
    "memory, not a size": (["--memory", "much"], "memory = 'much'"),
    "memory, too little": (["--memory", "1k"], "may take 9.54e-07 GiB"),
    "removed walk": (["--walk", "least-recent:0.2"], "walk = 'least-recent'"),
    "zero updates": (["--updates", "0"], "updates = 0"),
    "updates not a number": (["--updates", "many"], "--updates"),
    "unknown law": (["--law", "moon"], "law = 'moon'"),
    "law file missing": (["--law", "nowhere.json"], "nowhere.json"),
    "support that misses the graph": (["--law", "uniform-node", "--support", "20:25"], "20:25"),
    "support with neighbours": (["--support", "1:3"], "--support = 1"),
    "support not a range": (["--support", "six"], "six"),
    "paper on an irregular graph": (["--graph", "ba:30:2:seed=1", "--law", "paper"], "regular"),
    "unknown observer": (["--observers", "prior,moon"], "moon"),
    "unknown walk": (["--walk", "moon"], "moon"),
    "unknown posterior": (["--posterior", "moon"], "moon"),
    "removed posterior": (["--posterior", "estimated"], "removed in version 0.3"),
    "negative window": (["--window", "-1"], "--window = -1"),
    "graph": (["--graph", "moon:3"], "moon:3"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_line(case: str, run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2, the culprit named, nothing written."""
    monkeypatch.chdir(tmp_path)
    arguments, culprit = BAD[case]
    refused([*SMALL, *arguments], culprit, run, tmp_path)


def test_a_law_for_another_graph_is_refused(run: Cli, tmp_path: Path) -> None:
    """The same size and degree is not enough."""
    path = tmp_path / "law.npz"
    assert run(["design", "--graph", "rrg:30:3:seed=2", "--support", "2:3", "--out", str(path)])[0] == 0
    refused([*SMALL, "--law", str(path)], "the one the law was designed for", run, tmp_path)


def test_a_graph_too_large_for_all_destinations_is_attacked_at_some(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to itself it is, and says so; a walk that cannot have exact posteriors there is told what can be had."""
    monkeypatch.setattr("veilwalk.audit.AuditSettings", partial(AuditSettings, exact_nodes=20))
    found = run.json([*SMALL, "--law", "paper", "--observers", "prior,last-hop"])
    assert found["params"]["posterior"] == "exact"
    assert found["observers"]["last-hop"]["posterior"].startswith("exact at up to 64 destinations")
    turning = [*SMALL, "--law", "uniform-node", "--walk", "non-backtracking"]
    for extra in ([], ["--dry-run"]):
        culprit = "posterior = 'exact': must be rehearsed or by-class"
        refused([*turning, "--posterior", "exact", *extra], culprit, run, tmp_path)


def test_a_law_file_brings_its_walk(run: Cli, tmp_path: Path) -> None:
    """Unless another is asked for, and then one line says that they differ."""
    from veilwalk.design import choose_scheme, save_scheme
    from veilwalk.graphs import parse_graph_spec

    path = tmp_path / "law.npz"
    scheme = choose_scheme(parse_graph_spec(GRAPH[1]), "uniform-node", support=(2, 3), walk="non-backtracking")
    save_scheme(path, scheme)
    arguments = ["audit", *GRAPH, "--law", str(path), "--updates", "1000", "--observers", "prior", "--json"]
    code, out, err = run(arguments)
    assert (code, err, json.loads(out)["params"]["walk"]) == (0, "", "non-backtracking")
    code, out, err = run([*arguments, "--walk", "lazy"])
    assert (code, json.loads(out)["params"]["walk"]) == (0, "lazy")
    assert err == ("veilwalk: the law was designed for the non-backtracking walk, and this one is lazy\n")


def test_the_floor_belongs_to_the_papers_law_and_walk(run: Cli) -> None:
    """For others nothing is promised."""
    quick = [*SMALL, "--observers", "prior"]
    floors = [
        run.json([*quick, *extra])["params"]["anonymity_floor_nats"]
        for extra in (["--law", "paper"], ["--law", "paper", "--walk", "lazy"], ["--law", "uniform-node"])
    ]
    assert floors[0] > 0
    assert floors[1:] == [None, None]


def test_any_graph_is_audited_without_further_flags(run: Cli) -> None:
    """Law and support fit it; a tenth of its nodes collude."""
    found = run.json(["audit", "--graph", "ba:40:2:seed=1", "--scheme", "paper", "--updates", "1000"])
    assert (found["params"]["law"], found["params"]["colluders"]) == ("uniform-node", 4)
    assert list(found["observers"]) == ASKED


def test_without_a_word_on_the_scheme_it_attacks_what_train_uses(run: Cli) -> None:
    """And its first line says so; a part that is given asks for another scheme, recipients alone for as many."""
    spec = "rrg:60:3:seed=1"
    graph, quick = parse_graph_spec(spec), ["--graph", spec, "--updates", "600", "--observers", "prior"]
    trained = build_scheme(graph, make_spec(graph=spec))
    found = run.json(["audit", *quick])["params"]
    assert (found["law"], found["walk"], found["recipients"]) == (
        trained.law.name,
        trained.walk.kind,
        trained.recipients,
    )
    assert trained.recipients > 1
    first = run(["audit", *quick])[1].partition("\n")[0]
    assert f"recommended scheme, law {trained.law.name}, {trained.walk} walk, sealed for {trained.recipients}:" in first
    assert "scheme paper, law paper, simple walk:" in run(["audit", *quick, "--scheme", "paper"])[1].partition("\n")[0]
    found = run.json(["audit", *quick, "--recipients", "1"])["params"]
    assert (found["law"], found["walk"], found["recipients"]) == (trained.law.name, trained.walk.kind, 1)
    for part in (["--law", "paper"], ["--support", "2:3"], ["--walk", "simple"]):
        found = run.json(["audit", *quick, *part])["params"]
        assert (found["law"], found["walk"], found.get("recipients", 1)) == ("paper", "simple", 1)


def test_a_scheme_that_is_none_is_refused(run: Cli) -> None:
    """In one line that names the flag."""
    code, out, err = run(["audit", *GRAPH, "--scheme", "best"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "scheme = 'best'" in err


def test_intervals_of_shares_are_shares(run: Cli) -> None:
    """Every one of them, in a run so short that normal ones would leave 0 to 1."""
    found = run.json([*SMALL, "--updates", "300"])
    rows = [row for one in found["observers"].values() for row in one.get("by_return_time", [])]
    ends = [row[f"{name}_interval"] for row in rows for name in ("hit_ratio", "top_posterior", "inverse_rank", "ndcg")]
    assert len(ends) > 100
    for (low, high), name in zip(ends, ["hit_ratio"] * len(ends), strict=True):
        assert 0 <= low <= high <= 1, name
    assert any(low > 0 for low, _ in ends)


def test_help_lists_what_there_is() -> None:
    """Observers, posteriors, laws and walks: the registries and the help say the same."""
    command = typer.main.get_command(app).commands["audit"]  # type: ignore[attr-defined]
    texts = {option.name: option.help for option in command.params}
    registries = {"observers": [*OBSERVERS], "posterior": [*INFERENCES], "law": [*LAWS], "walk": [*WALKS]}
    for option, names in registries.items():
        # An audit attacks the plain walk too, which is nothing to train with.
        listed = re.split(r"[^a-z-]+", f"{texts[option]} {command.help}")
        assert [name for name in names if name not in listed] == []


def test_an_unwritable_folder_is_noticed_before_anything_is_walked(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file stands where the folder should be."""
    monkeypatch.setattr("veilwalk.design._scheme.iter_protocol", None)
    (tmp_path / "file").write_text("")
    code, out, err = run([*SMALL, "--out", str(tmp_path / "file" / "deeper")])
    assert (code, out) == (4, "")
    assert err.startswith("veilwalk: cannot write into ")
    assert len(err.splitlines()) == 1


def test_without_matplotlib_the_record_is_written_all_the_same(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says that figures are left out."""

    def missing(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr("veilwalk.report.audit_figures", missing)
    code, out, err = run([*SMALL, "--observers", "prior", "--out", str(tmp_path)])
    assert code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["audit.json"]
    assert out.endswith(f"wrote {tmp_path / 'audit.json'}\n")
    assert err.startswith("figures are left out: matplotlib is missing")


def test_what_is_counted_over_all_members_says_that_it_is_not_sampled(run: Cli) -> None:
    """No number stands beside an empty interval."""
    _, out, _ = run(["audit", "--graph", "complete:5", "--updates", "500"])
    rows = [line for line in out.splitlines() if "neighbours know it for certain" in line]
    assert rows
    assert all(re.search(r"not sampled|\d% to \d", line) for line in rows), rows
