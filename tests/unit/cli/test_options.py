"""Options of a specification as flags, keys and help: an option is written in one place."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from veilwalk.cli._main import app
from veilwalk.cli._options import format_settings, merge_settings, take_options
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.options import Option, change_spec, list_options, option
from veilwalk.training import CLUSTER, MANIFEST, TRAIN, View

VERBS = {"train": TRAIN, "cluster up": CLUSTER, "node manifest": MANIFEST}


@dataclass(frozen=True, kw_only=True)
class Oven:
    """One part of a toy specification."""

    heat_c: float = option(180.0, "Degrees inside.", "DEGREES", key="heat")
    fan: bool = option(False, "Let the fan run.")  # noqa: FBT003
    rack_height: int | None = option(None, "Where the tin stands.", "PLACE", usual="in the middle")
    door_gap: float = option(0.0, "Gap of the door.", "MM", rare=True)


@dataclass(frozen=True, kw_only=True)
class Cake:
    """A toy specification of a run: all that it says of an option is in the option."""

    name: str = option("sponge", "What is baked.", "NAME")
    scheme: Oven = field(default_factory=Oven)

    @property
    def options(self) -> dict[str, Option]:
        """All options by name."""
        return list_options(self)


VIEW: Any = View(defaults=Cake(), left_out=frozenset())  # type: ignore[arg-type]


@pytest.fixture
def baked() -> tuple[typer.Typer, list[dict[str, Any]]]:
    """A command with a flag for each option, and what it was called with."""
    calls: list[dict[str, Any]] = []
    bakery = typer.Typer(rich_markup_mode=None)

    @bakery.command()
    @take_options(VIEW)
    def bake(place: str, *, timer: int = 5, **values: Any) -> None:
        """Bake.

        Flags for rare cases: {rare}.
        """
        calls.append({"place": place, "timer": timer, **values})

    return bakery, calls


def test_an_option_is_a_flag_a_key_and_help(baked: tuple[typer.Typer, list[dict[str, Any]]]) -> None:
    """Help names rare ones without a word; what is not given is None, so that files and --set may say it."""
    bakery, calls = baked
    runner = CliRunner()
    given = ["here", "--heat", "200.5", "--fan", "--rack-height", "3", "--timer", "9"]
    assert runner.invoke(bakery, given).exit_code == 0
    assert calls == [
        {"place": "here", "timer": 9, "name": None, "heat_c": 200.5, "fan": True, "rack_height": 3, "door_gap": None},
    ]
    shown = " ".join(runner.invoke(bakery, ["--help"]).stdout.split())
    assert "--heat DEGREES Degrees inside. [default: 180]" in shown
    assert "Where the tin stands. [default: in the middle]" in shown
    assert "--no-fan" not in shown
    assert shown.count("--door-gap") == 1
    assert "Flags for rare cases: --door-gap." in shown
    assert runner.invoke(bakery, ["here", "--door-gap", "1.5"]).exit_code == 0
    assert calls[-1]["door_gap"] == 1.5
    text = format_settings(VIEW, {"fan": True})
    assert tomllib.loads(text) == {"fan": True}
    assert "# Gap of the door.\n# door-gap = 0.0\n" in text
    assert "# Where the tin stands. Default: in the middle.\n# rack-height = ...\n" in text


def test_flags_win_over_sets_and_sets_over_files_by_any_spelling(tmp_path: Path) -> None:
    """Names and keys are one option."""
    (tmp_path / "c.toml").write_text("heat_c = 1\nrack_height = 1\ndoor-gap = 1\n")
    sets, flags = ["heat=2", "rack-height=2"], {"rack_height": 3, "fan": None}
    values = merge_settings(VIEW, tmp_path / "c.toml", sets, flags)
    assert values == {"heat_c": 2, "rack_height": 3, "door_gap": 1}
    assert change_spec(Cake(), values) == Cake(scheme=Oven(heat_c=2.0, rack_height=3, door_gap=1.0))


@pytest.mark.parametrize(
    ("values", "error", "named"),
    [
        ({"heat": "hot"}, InvalidParameterError, "heat"),
        ({"fan": 1}, InvalidParameterError, "fan"),
        ({"rack_height": 1.5}, InvalidParameterError, "rack-height"),
        ({"heet": 1}, ConfigError, "heet"),
        ({"heat": 1, "heat_c": 2}, ConfigError, "heat"),
    ],
)
def test_bad_values_are_refused_by_key(values: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        change_spec(Cake(), values)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_a_view_is_a_flag_of_its_verb(verb: str) -> None:
    """Shown with what it says of itself, or named as rare."""
    command: Any = typer.main.get_command(app)
    for word in verb.split():
        command = command.commands[word]
    shown = {flag: parameter for parameter in command.params for flag in parameter.opts}
    for one in VERBS[verb].options:
        assert shown[f"--{one.key}"].hidden == one.rare
    (rare,) = re.findall(r"Flags for rare cases: ([^.]*)\.", command.help)
    assert [flag.strip() for flag in rare.split(",")] == [f"--{one.key}" for one in VERBS[verb].options if one.rare]


def test_help_of_train_fits_two_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 lines, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["train", "--help"], terminal_width=80)
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert len(shown.stdout.splitlines()) <= 80
