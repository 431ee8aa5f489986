"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import importlib
import math
import re
import shlex
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from veilwalk.cli._main import app
from veilwalk.design import exposed_share

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
CODE = [*SOURCES, *(path for folder in ("benchmarks", "tools") for path in sorted((ROOT / folder).rglob("*.py")))]
#: Every package by its dotted name, also those inside packages.
PACKAGES = {".".join(path.parent.relative_to(ROOT / "src").parts): path for path in SOURCES if path.stem == "__init__"}
DOCS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "paper").glob("*.md")]


def offered(module: ast.Module) -> set[str]:
    """Return the public names that a package binds: its own and what it takes from veilwalk, now or when asked."""
    found: set[str] = set()
    inside = [node for block in module.body if isinstance(block, ast.If) for node in block.body]
    for node in [*module.body, *inside]:
        if isinstance(node, ast.ImportFrom) and node.module == "veilwalk.core.rooms":
            continue  # how a room opens is not what it offers
        if isinstance(node, ast.ImportFrom) and (node.level or str(node.module).startswith("veilwalk")):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    # A package that must import nothing says what type checkers read without the module typing.
    return {name for name in found - {"TYPE_CHECKING"} if not name.startswith("_") or name == "__version__"}


def in_order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Return ruff's key (RUF022): constants, classes, the rest; numbers inside names by their value."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_listed_sorted_and_there(package: str) -> None:
    """__all__ is exactly what a package offers, in ruff's order; modules may be listed, but need not be."""
    module = importlib.import_module(package)
    listed = list(getattr(module, "__all__", []))
    assert listed == sorted(set(listed), key=in_order)
    modules = {name for name in listed if isinstance(getattr(module, name), ModuleType)}
    names = {
        name
        for name in offered(ast.parse(PACKAGES[package].read_text()))
        if not isinstance(getattr(module, name), ModuleType)
    }
    assert set(listed) - modules == names


def test_modules_hold_one_idea() -> None:
    """At most 600 lines; kernels 800, because numba wants them together. A guard against accidents, not a goal."""
    for path in CODE:
        limit = 800 if path.name.startswith("_kernels") else 600
        assert len(path.read_text().splitlines()) <= limit, path


def test_functions_fit_a_screen() -> None:
    """80 lines from docstring to end; kernels excepted. Signatures that list command-line options do not count."""
    long = [
        f"{path.name}:{node.name}"
        for path in CODE
        if not path.name.startswith("_kernels")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.body[0].lineno >= 80
    ]
    assert long == []


def test_no_machine_path_no_loose_end() -> None:
    """Nothing tracked names a folder of some machine or leaves a note to finish later."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    loose = re.compile(r"(?<![\w.])/(work|farm|home|root)/|\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt"} and path.is_file():
            assert not loose.search(path.read_text()), name


def commands(group: typer.main.Typer | object, prefix: str = "veilwalk") -> dict[str, object]:
    """Every verb with its click command."""
    found: dict[str, object] = {}
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{prefix} {name}")
        else:
            found[f"{prefix} {name}"] = command
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_flag_is_documented_and_every_documented_flag_exists(verb: str) -> None:
    """docs/reference/cli.md has a section for each verb that names exactly its flags."""
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    sections = dict(re.findall(r"^## `(veilwalk[^`]*)`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert verb in sections
    flags = {
        option
        for parameter in getattr(COMMANDS[verb], "params", [])
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }
    documented = set(re.findall(r"`(--[a-z-]+)", sections[verb]))
    assert documented == flags


def test_every_error_has_its_line_in_the_docs() -> None:
    """docs/reference/cli.md names every error class."""
    from veilwalk.core import errors

    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, errors.VeilwalkError):
            assert f"`{name}`" in text


def test_the_readme_shows_the_two_commands() -> None:
    """make demo and make test, and the figure it shows exists."""
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (ROOT / image).is_file()


def test_commands_of_the_readme_can_be_given_as_they_stand() -> None:
    """Every line of its shell block is parsed: no option is unknown, none that is required is missing."""
    block = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        program, *words = shlex.split(line, comments=True)
        context: Any = typer.main.get_command(app).make_context(program, words)
        while hasattr(context.command, "resolve_command"):
            name, command, words = context.command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, words, parent=context)
        assert program == "veilwalk"
        assert context.command.params
        # What is watched is a folder: this the verb itself looks at.
        assert context.params.get("out") or not context.params.get("watch"), line


def test_figures_of_the_readme_are_those_of_the_tables() -> None:
    """What it quotes of learning stands in the page that tools write; else one of them is old."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    learning = (ROOT / "docs" / "measured" / "learning.md").read_text()
    compared = learning.partition("**Beside gossip and FedAvg**")[2].partition("**Seconds")[0].splitlines()
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in compared if line.startswith("| ")}
    quoted = re.search(r"80% after (\S+ \[\S+\]) hops: (\S+) times\sthe transfers of .*?, (\S+) times those", readme)
    ends = re.search(r"It ends at (\S+%), gossip at (\S+)%", readme)
    assert quoted is not None
    assert ends is not None
    assert (quoted[1], ends[1]) == (rows["private-walk"][2], rows["private-walk"][4].split()[0])
    hops, sparse, server = (float(rows[name][2].split()[0]) for name in ("private-walk", "gossip-matching", "fedavg"))
    assert [float(quoted[2]), float(quoted[3])] == pytest.approx([hops / sparse, hops / server], abs=0.05)
    assert float(ends[2]) == pytest.approx(float(rows["gossip-matching"][4].partition("%")[0]), abs=0.5)
    noise = re.search(r"MNIST iid, epsilon 8: (\S+%) and (\S+%)\)", readme)
    assert noise is not None
    for unit, accuracy in zip(("node", "record"), noise.groups(), strict=True):
        assert re.search(rf"^\| {unit} \| 8 \|.*\| iid \|.*\| {re.escape(accuracy)}", learning, re.MULTILINE), unit


def test_attackers_of_the_readme_are_those_of_the_pages() -> None:
    """Each share that it quotes stands in the rows of the pages on attackers, rounded, or is that of the theorem."""
    readme = (ROOT / "README.md").read_text()
    leaks = (ROOT / "docs" / "explanation" / "what-really-leaks.md").read_text()
    overlays = (ROOT / "docs" / "measured" / "overlay-attackers.md").read_text()
    others = 300 - 1 - 3
    uniform = f"{100 / others:.4f}% {math.log(others):.4f} nats"
    # Of the coalitions that seize: the columns of what they read, and name of one, four and eight linked updates.
    seizing = r"^\| (?:cartographer \| 64|published graph, named keys \| 16) \| [\d.]+ \| (.*)$"
    columns = [line.split(" | ")[:4] for line in re.findall(seizing, overlays, re.MULTILINE)]
    assert len(columns) == 2
    read, one, four, eight = map(list, zip(*columns, strict=True))
    rows: dict[str, tuple[str, list[str]]] = {
        "who opens": (r"\| opener, return time and last hop.*", []),
        "a tenth of": (r"\| \*\*`coalition`\*\*, of updates.*", one),
        "the same": (r"\| 4 \|.*", four),
        "of eight": (r"\| 8 \|.*", eight),
        "who made the update before and is": (r"\| who sealed before.*", []),
        "a tenth with shared": (r"\| \*\*read\*\*, sharing keys.*", read),
    }
    for shown, (pattern, seized) in rows.items():
        row = re.search(rf"^\| {shown}.*$", readme, re.MULTILINE)
        lines = re.findall(f"^{pattern}$", leaks, re.MULTILINE)
        assert row is not None
        assert lines
        found = lines + seized
        shares = re.findall(r"[\d.]+(?=%| nats|-)", "|".join(row[0].split("|")[2:]))
        exposed = f"{exposed_share(0.1, 3):.4%}"
        exact = [float(share) for share in re.findall(r"[\d.]+(?=%| nats)", " ".join([uniform, exposed, *found]))]
        assert shares
        for share in shares:
            step = 10.0 ** -len(share.partition(".")[2])
            assert any(abs(float(share) - one) <= 0.51 * step for one in exact), (shown, share)


def test_links_between_documents_resolve() -> None:
    """Every relative link of every page points at a file."""
    for page in DOCS:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_of_pages_has_all_of_them() -> None:
    """Every page stands there."""
    listed = set(re.findall(r"\]\(([^)#:]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    for folder in ("tutorials", "how-to", "reference", "explanation", "measured", "decisions"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"{folder}/{page.name}" in listed, page.name


def test_the_changelog_knows_the_version() -> None:
    """A version without a heading in the changelog is not released."""
    from veilwalk.core.version import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()


def test_spec_help_names_every_kind_of_graph() -> None:
    """--help is written by hand, to be quick; it must not fall behind the parser."""
    from veilwalk.cli._design import SPEC_HELP
    from veilwalk.graphs._spec import GRAPH_KINDS

    for kind in GRAPH_KINDS:
        assert f"{kind}:" in SPEC_HELP
