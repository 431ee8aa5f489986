"""What ``--help`` says of itself: whole summaries, every choice, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, get_args

import pytest
import typer
from tests.helpers.cli import Cli

from veilwalk.audit._plan import INFERENCES
from veilwalk.audit._settings import PLACEMENTS
from veilwalk.cli._main import app
from veilwalk.core.geometry import SuiteChoice, SuiteName
from veilwalk.design._channel import OBSERVERS
from veilwalk.design._paper import FORMULAS
from veilwalk.training import SCHEMES

GROUPS = ((), ("cluster",), ("graph",), ("keys",), ("node",), ("paper",), ("roster",))
SUITES = set(get_args(SuiteChoice))
CHOICES = {
    ("keys new", "--suite"): set(get_args(SuiteName)),
    ("cluster up", "--suite"): SUITES,
    ("audit", "--posterior"): {"auto", "by-class", *INFERENCES},
    ("audit", "--placement"): set(PLACEMENTS),
    ("audit", "--scheme"): set(SCHEMES),
    ("train", "--scheme"): set(SCHEMES),
    ("design", "--observer"): set(OBSERVERS),
    ("frontier", "--observer"): set(OBSERVERS),
    ("design", "--suite"): SUITES,
    ("recommend", "--suite"): SUITES,
    ("paper law", "--formulas"): set(FORMULAS),
}


def command_of(verb: str) -> Any:
    command: Any = typer.main.get_command(app)
    for word in verb.split():
        command = command.commands[word]
    return command


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_no_summary_of_a_verb_is_cut_off(group: tuple[str, ...], run: Cli) -> None:
    """The list of verbs has the whole first line of each, at the width of any terminal."""
    code, out, _ = run([*group, "-h"])
    assert code == 0
    listed = out.partition("Commands:\n")[2]
    assert "..." not in listed
    for name, command in command_of(" ".join(group)).commands.items():
        first = str(command.help).partition("\n")[0]
        assert len(first) < 60
        assert f"{name} {first}" in " ".join(listed.split())


@pytest.mark.parametrize(("verb", "flag"), CHOICES)
def test_choices_are_listed(verb: str, flag: str, run: Cli) -> None:
    """Beside the flag, and exactly those that the library takes."""
    (option,) = (each for each in command_of(verb).params if flag in each.opts)
    assert set(option.metavar.split("|")) == CHOICES[verb, flag]
    assert f"{flag} {option.metavar}" in run([*verb.split(), "--help"])[1]


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_no_flag_asks_for_a_type(group: tuple[str, ...], run: Cli) -> None:
    """What is written behind a flag is a word for it, or its choices."""
    for name, command in command_of(" ".join(group)).commands.items():
        if not hasattr(command, "commands"):
            shown = run([*group, name, "--help"])[1]
            assert not [line for line in shown.splitlines() if line.strip().startswith("--") and "<str>" in line]


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_fits_two_screens(group: tuple[str, ...], run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two screens of 40 lines, 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in command_of(" ".join(group)).commands.items():
        if not hasattr(command, "commands") and name not in {"train", "up"}:
            assert len(run([*group, name, "--help"])[1].splitlines()) <= 80, name


def test_the_module_is_the_command() -> None:
    """Python -m veilwalk -h says what veilwalk -h says."""
    shown = subprocess.run([sys.executable, "-m", "veilwalk", "-h"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: python -m veilwalk [OPTIONS] COMMAND")
    assert "--install-completion" in shown.stdout


def test_a_shell_is_told_the_verbs_that_begin_so() -> None:
    """What bash asks when TAB is pressed after ``veilwalk au``."""
    asked = {"_VEILWALK_COMPLETE": "complete_bash", "COMP_WORDS": "veilwalk au", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['veilwalk']; from veilwalk.cli import main; main()"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | asked
    )
    assert shown.stdout.split() == ["audit"]
