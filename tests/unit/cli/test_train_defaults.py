"""``veilwalk train`` and ``paper`` as a newcomer meets them: defaults, narrow screens, a plain installation."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from tests.helpers.cli import Cli

import veilwalk
from veilwalk import experiments
from veilwalk.cli import _output
from veilwalk.cli._main import app
from veilwalk.cli._options import merge_settings
from veilwalk.core.records import Record
from veilwalk.core.walk import WALKS
from veilwalk.design import LAWS, choose_scheme, save_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.training import TRAIN, make_spec

SMALL = [
    "train", "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "120", "--attack", "40",
    "--set", "evaluations=5",
]  # fmt: skip


def without(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that a library is not installed, to a report that was not imported yet."""
    for name in [name for name in sys.modules if name.startswith("veilwalk.report")]:
        monkeypatch.delitem(sys.modules, name)
    # The package refers to it too, and must do so to the same one afterwards.
    monkeypatch.delattr(veilwalk, "report", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)


def test_every_default_shown_is_the_settings_own(run: Cli) -> None:
    """What --help shows of a setting, given as that setting, changes nothing; laws and walks are all there are."""
    options = {option.name: option for option in typer.main.get_command(app).commands["train"].params}  # type: ignore[attr-defined]
    shown = {name: re.search(r"\[default: (.*)\]$", option.help or "") for name, option in options.items()}
    chosen = {one.name for one in TRAIN.options if one.usual}
    given = {name: found[1] for name, found in shown.items() if found and name not in chosen}
    assert given.keys() == {one.name for one in TRAIN.options} - chosen
    assert (
        TRAIN.read(merge_settings(TRAIN, None, [f"{name}={text}" for name, text in given.items()], {})) == make_spec()
    )
    assert chosen == {one.name for one in TRAIN.options if one.default is None}
    for name in (*(law for law in LAWS if law != "plain"), *WALKS):
        assert re.search(rf"\b{name}\b", options["law" if name in LAWS else "walk"].help)


def test_tables_fit_eighty_columns(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut off, however narrow the screen; sentences between them wrap as the terminal likes."""
    monkeypatch.setattr(_output, "_PLAIN_WIDTH", 80)
    _, out, _ = run([*SMALL, "--noise", "1", "--clip", "0.2"])
    tables = [block.splitlines() for block in out.split("\n\n")]
    gained, content = (next(one for one in tables if word in "".join(one)) for word in ("plain-walk ", "names maker"))
    for title, *lines in (gained, content):
        assert title
        assert max(map(len, lines)) <= 80
    assert "…" not in out
    assert any(line.startswith("private-walk") and line.endswith("17.9") for line in gained)


def test_a_law_may_bring_its_walk(tmp_path: Path, run: Cli) -> None:
    """A law file's walk is used, and another one remarked upon."""
    bare = [*SMALL[:5], "--updates", "20", "--attack", "0", "--compare", "none", "--json"]
    path = tmp_path / "law.npz"
    save_scheme(path, choose_scheme(parse_graph_spec("rrg:30:3:seed=1"), "paper", support=(2, 3), walk="lazy"))
    wide = ["train", "--graph", "rrg:30:3:seed=1", *bare[5:], "--law", str(path)]
    _, out, err = run(wide)
    params = json.loads(out)["params"]
    assert (params["walk"], params["support"], err) == ("lazy", "2:3", "")
    _, out, err = run([*wide, "--walk", "simple"])
    assert json.loads(out)["params"]["walk"] == "simple"
    assert err == "note: the law was designed for the lazy walk, and this one is simple\n"


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_drawing_libraries_the_run_is_whole(
    missing: str, tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table, the record and metrics.csv; one line says what was left out."""
    without(missing, monkeypatch)
    bare = [*SMALL, "--attack", "0", "--compare", "none", "--out", str(tmp_path / "run")]
    code, out, err = run(bare)
    assert code == 0
    assert "private-walk" in out
    assert f"wrote {tmp_path / 'run' / 'metrics.csv'}" in out
    assert "report.html" not in out
    # Of links that are given, a line says what an overlay would give.
    assert "On a secret overlay (--graph overlay:30:3)" in " ".join(out.split())
    assert err.count("\n") == 1
    assert f"{missing} is missing" in err


def test_without_drawing_libraries_a_figure_is_its_record(
    tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was computed is kept, and one line says what is missing."""
    without("matplotlib", monkeypatch)
    made = Record(kind="paper figure: trade-off", params={}, result={"rows": []})
    monkeypatch.setattr(experiments, "reproduce", lambda *_args, **_options: made)
    code, out, err = run(["paper", "reproduce", "trade-off", "--out", str(tmp_path)])
    assert (code, out) == (0, f"wrote {tmp_path / 'trade-off.json'}\n")
    assert (tmp_path / "trade-off.json").read_text() == made.to_json()
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (["frontier", "--support", "2:3"], ["frontier.json"]),
        (["recommend", "--walk", "non-backtracking"], ["scheme.npz", "frontier.json"]),
    ],
)
def test_without_drawing_libraries_a_frontier_is_its_record(
    asked: list[str], names: list[str], tmp_path: Path, run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both kinds of frontier."""
    without("matplotlib", monkeypatch)
    code, out, err = run([*asked, "--graph", "rrg:20:3:seed=1", "--out", str(tmp_path)])
    assert (code, err.count("\n")) == (0, 1)
    assert out.endswith("".join(f"wrote {tmp_path / name}\n" for name in names))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_log_hears_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before a minute has passed, and not more often."""
    now = iter([0.0, 59.0, 60.0, 60.0, 119.0, 200.0, 200.0])
    monkeypatch.setattr("veilwalk.core.progress.time", SimpleNamespace(monotonic=lambda: next(now)))
    with _output.live_progress() as hear:
        hear("walking", 1, 9)
        hear("walking", 2, 9, "20 hops")
        hear("walking", 3, 9)
        hear("scoring")
    assert capsys.readouterr().err == "veilwalk: so far: walking, 2 of 9, 20 hops\nveilwalk: so far: scoring\n"


def test_sentences_keep_their_words_whole_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However narrow it is; a program that reads them gets one line."""
    words = "what is left of the receiver's doubt [red] about who made the update, " * 3
    _output.say(words)
    assert capsys.readouterr().out == f"{words}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    _output.say(words)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 30
    assert " ".join(lines).split() == words.split()


def test_a_network_of_two_is_one_line(tmp_path: Path, run: Cli) -> None:
    """Each knows that the other made it."""
    (tmp_path / "edges.txt").write_text("0 1\n")
    code, out, err = run(["train", "--graph", f"file:{tmp_path / 'edges.txt'}"])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "next to all others" in err


def test_any_graph_file_trains_without_further_flags(tmp_path: Path, run: Cli) -> None:
    """An irregular one: no law, no support."""
    graph = parse_graph_spec("ba:40:2:seed=1")
    lines = [f"{node} {other}" for node in range(40) for other in graph.neighbours(node) if node < other]
    (tmp_path / "edges.txt").write_text("\n".join(lines))
    asked = ["--graph", f"file:{tmp_path / 'edges.txt'}", "--updates", "40", "--attack", "0", "--json"]
    code, out, err = run(["train", *asked])
    assert (code, err) == (0, "")
    params = json.loads(out)["params"]
    assert (params["law"], params["walk"]) == ("far:2", "non-backtracking")
    assert params["recipients"] == json.loads(out)["network"]["recipients"]
