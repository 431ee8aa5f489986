"""First contact: ``veilwalk init``, and ``veilwalk demo`` where it can be told without a minute's training."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.cli import _train
from veilwalk.cli._options import format_settings
from veilwalk.training import CLUSTER, TRAIN, Scenario, View, make_spec


def test_a_new_user_trains_on_own_files_as_they_were_written(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Init, then the very command it names: better than guessing among three kinds, and a report."""
    monkeypatch.chdir(tmp_path)
    code, out, err = run(["init", "mine"])
    assert (code, err) == (0, "")
    step = re.search(r"^next: cd mine && veilwalk (.*)$", out, re.MULTILINE)
    assert step is not None
    monkeypatch.chdir("mine")
    code, out, err = run(step[1].split())
    assert code == 0
    assert [line.partition(":")[0] for line in err.splitlines()] == ["note"]
    found = re.search(r"^private-walk +([\d.]+)%", out, re.MULTILINE)
    assert found is not None
    assert float(found[1]) > 60
    assert Path("run/report.html").is_file()


@pytest.mark.parametrize("view", [TRAIN, CLUSTER])
def test_the_starter_shows_every_setting_with_its_true_default(view: View) -> None:
    """Each line taken out of its comment is the default; what has none is shown without a value."""
    known, live = {one.key: one.default for one in view.options}, {"updates": 9, "graph": "ring:8"}
    text = format_settings(view, live)
    shown = dict(re.findall(r"^# ([a-z-]+) = (.+)$", text, re.MULTILINE))
    assert tomllib.loads(text) == live
    assert live.keys() | shown.keys() == known.keys()
    assert {key for key, value in shown.items() if value == "..."} == {key for key in known if known[key] is None}
    defaults = {key: tomllib.loads(f"value = {value}")["value"] for key, value in shown.items() if value != "..."}
    assert defaults == {key: known[key] for key in defaults}
    assert view.read(live | defaults) == view.defaults.change(**live)


def test_the_starter_has_words_for_every_setting(run: Cli, tmp_path: Path) -> None:
    """What each option says of itself, and in which group it is; all keys are real, and the file is read as it is."""
    assert run(["init", str(tmp_path / "mine")])[0] == 0
    text = (tmp_path / "mine" / "train.toml").read_text()
    words = " ".join(text.replace("\n# ", " ").split())
    for one in TRAIN.options:
        assert " ".join(one.about.split()) in words
    assert TRAIN.read(tomllib.loads(text)).graph == "file:peers.csv"


def test_init_touches_nothing_that_is_there(run: Cli, tmp_path: Path) -> None:
    """A folder with something in it is refused in one line, and left as it was."""
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = run(["init", str(tmp_path)])
    assert (code, err) == (2, f"veilwalk: {tmp_path} is not an empty folder: choose another\n")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_demo_is_train_with_nothing_said(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First it trains, then it goes on with what is there; another run in its folder is refused, not shown as it."""
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(_train, "train", lambda **given: calls.append(given))
    folder = tmp_path / "demo"
    assert run(["demo", "--out", str(folder)])[0] == 0
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    (folder / "config.toml").write_text(Scenario.from_spec(make_spec()).spec.to_toml(TRAIN))
    assert run(["demo", "--out", str(folder)])[0] == 0
    assert calls == [{"out": folder, "resume": resume, "watch": False, "as_json": False} for resume in (False, True)]
    (folder / "config.toml").write_text(make_spec(seed=8).to_toml(TRAIN))
    code, _, err = run(["demo", "--out", str(folder)])
    assert (code, "holds another run than the demo" in err, len(calls)) == (2, True, 2)
