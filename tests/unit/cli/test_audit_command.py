"""``veilwalk audit``: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veilwalk.audit import OBSERVERS, SCORES, _settings
from veilwalk.cli import main

GRAPH = ["--graph", "rrg:30:3:seed=1"]
SMALL = ["audit", *GRAPH, "--support", "2:3", "--updates", "3000", "--colluders", "4"]
ROW = {"lo", "hi", "share", "distance_entropy_nats", "node_entropy_nats", "top_posterior", "hit_ratio"}
ROW |= {"blind_hit_ratio", "updates"} | {f"{name}_interval" for name in SCORES}


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


def test_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """hops_per_update, and for every observer an overall row and rows by return time, each with intervals."""
    found = run_json([*SMALL, "--law", "paper"], capsys)
    low, high = found["hops_per_update_interval"]
    assert low < found["hops_per_update"] < high
    assert found["hops_per_update"] == pytest.approx(found["hops_per_update_predicted"], rel=0.1)
    assert list(found["observers"]) == list(OBSERVERS)
    assert (found["seed"], found["updates"], found["complete"]) == (7, 3000, True)
    for name, observer in found["observers"].items():
        if name == "repeated":
            assert [row["linked"] for row in observer["by_linked_updates"]] == [1, 2, 4, 8]
            continue
        assert set(observer["overall"]) >= ROW
        assert observer["overall"]["share"] == 1
        assert len(observer["by_return_time"]) > 3
        for row in observer["by_return_time"]:
            assert set(row) >= ROW
            assert row["lo"] <= row["hi"]
        assert sum(row["share"] for row in observer["by_return_time"]) == pytest.approx(1, abs=1e-12)
        starts = [row["lo"] for row in observer["by_return_time"]]
        assert starts == sorted(starts)


def test_tables_name_observers_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Entropies in nats and bits, the blind guess beside the hit ratio, every observer."""
    code, out, err = run([*SMALL, "--law", "paper"], capsys)
    assert (code, err) == (0, "")
    for words in ("hops per update", "node entropy", "bits", "nats", "distance entropy", "blind", *OBSERVERS):
        assert words in out


def test_a_curve_over_colluders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Several numbers of colluders add a row each, and a figure; more colluders name more sources."""
    arguments = [*SMALL, "--law", "uniform-node", "--observers", "prior", "--colluders", "2,12"]
    found = run_json([*arguments, "--out", str(tmp_path)], capsys)
    few, many = found["by_colluders"]
    assert (few["colluders"], many["colluders"]) == (2, 12)
    for name in ("first-sight", "bridge", "predecessor"):
        assert few[name]["hit_ratio"] < many[name]["hit_ratio"]
    assert {"colluders.json", "colluders.png", "colluders.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_a_dry_run_tells_the_memory_and_runs_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the memory; the engine is not called and nothing is written."""
    monkeypatch.setattr("veilwalk.audit._run.iter_protocol", None)
    folder = tmp_path / "out"
    code, out, err = run([*SMALL, "--law", "paper", "--dry-run", "--out", str(folder)], capsys)
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
    assert "MiB beyond the program itself for 3000 updates on 30 nodes" in out
    assert not folder.exists()


def test_out_writes_the_record_and_its_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """audit.json and each figure as PNG and SVG; the record holds what was printed."""
    found = run_json([*SMALL, "--law", "paper", "--out", str(tmp_path / "new")], capsys)
    figures = {
        f"{stem}.{suffix}" for stem in ("entropy-by-return-time", "posterior-by-distance") for suffix in ("png", "svg")
    }
    assert {path.name for path in (tmp_path / "new").iterdir()} == figures | {"audit.json"}
    for path in (tmp_path / "new").iterdir():
        start = {".png": b"\x89PNG", ".svg": b"<?xml", ".json": b"{"}[path.suffix]
        assert path.read_bytes().startswith(start)
    record = json.loads((tmp_path / "new" / "audit.json").read_text())
    assert record["kind"] == "audit"
    assert record["seed"] == 7
    assert record["observers"] == found["observers"]


def test_the_plain_walk_names_every_source(capsys: pytest.CaptureFixture[str]) -> None:
    """One hop, hit ratio one, no entropy, for every observer; a blind guess hits one neighbour in three."""
    found = run_json([*SMALL, "--law", "plain"], capsys)
    assert found["hops_per_update"] == 1
    assert list(found["observers"]) == list(OBSERVERS)
    for observer in found["observers"].values():
        row = observer["overall"]
        assert (row["hit_ratio"], row["top_posterior"], row["node_entropy_nats"]) == (1, 1, 0)
        assert row["blind_hit_ratio"] == pytest.approx(1 / 3, rel=1e-12)


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_law_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    """What design --out wrote for this graph is audited; its support comes with it."""
    path = tmp_path / f"law.{suffix}"
    assert run(["design", *GRAPH, "--support", "2:3", "--out", str(path)], capsys)[0] == 0
    arguments = ["audit", *GRAPH, "--law", str(path), "--updates", "3000", "--observers", "prior,last-hop"]
    found = run_json(arguments, capsys)
    assert found["params"]["support"] == "2:3"
    assert found["hops_per_update"] == pytest.approx(found["hops_per_update_predicted"], rel=0.1)
    assert list(found["observers"]) == ["prior", "last-hop"]


def test_a_distance_law_from_a_file_fits_any_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The closed form, written without a graph, is spread over the one that is audited."""
    path = tmp_path / "law.json"
    assert run(["design", "--nodes", "30", "--degree", "3", "--support", "2:3", "--out", str(path)], capsys)[0] == 0
    by_file = run_json([*SMALL, "--law", str(path), "--observers", "prior"], capsys)
    by_name = run_json([*SMALL, "--law", "paper", "--observers", "prior"], capsys)
    assert by_file["observers"] == by_name["observers"]


def test_the_seed_is_all_there_is_to_chance(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed prints the same JSON; another does not."""
    quick = [*SMALL, "--law", "paper", "--observers", "last-hop"]
    first, again, other = (run_json([*quick, "--seed", seed], capsys) for seed in ("3", "3", "4"))
    assert first == again
    assert first["observers"] != other["observers"]


def refused(arguments: list[str], culprit: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Exit 2, one line on stderr that names the culprit, nothing on stdout, nothing written."""
    before = sorted(folder.iterdir())
    code, out, err = run([*arguments, "--out", str(folder / "out")], capsys)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("veilwalk: ")
    assert culprit in err
    assert sorted(folder.iterdir()) == before


BAD = {
    "colluders, all": (["--colluders", "30"], "colluders = 30: must be from 1 to 29"),
    "colluders, none": (["--colluders", "0"], "colluders = 0"),
    "colluders, not a number": (["--colluders", "three"], "three"),
    "zero updates": (["--updates", "0"], "updates = 0"),
    "updates not a number": (["--updates", "many"], "--updates"),
    "unknown law": (["--law", "moon"], "law = 'moon'"),
    "law file missing": (["--law", "nowhere.json"], "nowhere.json"),
    "support that misses the graph": (["--law", "uniform-node", "--support", "20:25"], "20:25"),
    "support with neighbours": (["--support", "1:3"], "support lo = 1"),
    "support not a range": (["--support", "six"], "six"),
    "paper on an irregular graph": (["--graph", "ba:30:2:seed=1", "--law", "paper"], "regular"),
    "unknown observer": (["--observers", "prior,moon"], "moon"),
    "unknown walk": (["--walk", "moon"], "moon"),
    "unknown posterior": (["--posterior", "moon"], "moon"),
    "negative window": (["--window", "-1"], "window = -1"),
    "graph": (["--graph", "moon:3"], "moon:3"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_line(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 2, the culprit named, nothing written."""
    monkeypatch.chdir(tmp_path)
    arguments, culprit = BAD[case]
    refused([*SMALL, *arguments], culprit, capsys, tmp_path)


def test_a_law_for_another_graph_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same size and degree is not enough."""
    path = tmp_path / "law.npz"
    assert run(["design", "--graph", "rrg:30:3:seed=2", "--support", "2:3", "--out", str(path)], capsys)[0] == 0
    refused([*SMALL, "--law", str(path)], "the one the law was designed for", capsys, tmp_path)


def test_a_graph_too_large_for_exact_observers_is_told_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that offers the estimate; asked for, it runs and says that it is one."""
    monkeypatch.setattr(_settings, "EXACT_NODES", 20)
    refused([*SMALL, "--law", "paper"], "--posterior estimated", capsys, tmp_path)
    refused([*SMALL, "--law", "paper", "--dry-run"], "--posterior estimated", capsys, tmp_path)
    found = run_json([*SMALL, "--posterior", "estimated", "--observers", "return-time,last-hop"], capsys)
    assert found["observers"]["last-hop"]["posterior"].startswith("estimated")
