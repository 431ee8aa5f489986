"""First contact: ``veilwalk init``, and ``veilwalk demo`` where it can be told without a minute's training."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path

import pytest
from tests.helpers.cli import Cli

from veilwalk.cli import _first
from veilwalk.core.config import key_of
from veilwalk.training import Scenario, TrainSettings

TEMPLATE = resources.files("veilwalk.cli").joinpath("train.toml").read_text()
#: Shown with a value that is not the default, for the default is that there is none.
EXAMPLES = {"recipients", "law", "walk", "target-accuracy", "max-hops", "max-bytes"}


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


def test_the_starter_shows_every_setting_with_its_true_default() -> None:
    """Each line taken out of its comment is the default, or one of a few examples of what has none."""
    known = {key_of(one): one.default for one in fields(TrainSettings)}
    live = tomllib.loads(TEMPLATE)
    shown = {
        key: value
        for line in re.findall(r"^# ([a-z-]+ = .+)$", TEMPLATE, re.MULTILINE)
        for key, value in tomllib.loads(line).items()
    }
    assert not live.keys() & shown.keys()
    # Seldom wanted, or said by another key.
    assert known.keys() - live.keys() - shown.keys() == {
        "support",
        "exact-nodes",
        "accept",
        "poison",
        "poisoners",
    }
    for key, value in shown.items():
        assert value == known[key] or (key in EXAMPLES and known[key] is None), key
    TrainSettings.of(live | shown)


def test_init_touches_nothing_that_is_there(run: Cli, tmp_path: Path) -> None:
    """A folder with something in it is refused in one line, and left as it was."""
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = run(["init", str(tmp_path)])
    assert (code, err) == (2, f"veilwalk: {tmp_path} is not an empty folder: choose another\n")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_demo_is_train_with_nothing_said(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First it trains, then it goes on with what is there; another run in its folder is refused, not shown as it."""
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(_first, "train", lambda **given: calls.append(given))
    folder = tmp_path / "demo"
    assert run(["demo", "--out", str(folder)])[0] == 0
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    chosen = replace(TrainSettings(), **Scenario.of(TrainSettings()).words())
    (folder / "config.toml").write_text(chosen.to_toml())
    assert run(["demo", "--out", str(folder)])[0] == 0
    assert calls == [{"out": folder, "resume": resume, "as_json": False} for resume in (False, True)]
    (folder / "config.toml").write_text(TrainSettings(seed=8).to_toml())
    code, _, err = run(["demo", "--out", str(folder)])
    assert (code, "holds another run than the demo" in err, len(calls)) == (2, True, 2)
