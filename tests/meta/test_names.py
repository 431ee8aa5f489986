"""Names say what they hold: a deny-list of words that only say where a value came from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "veilwalk"
#: Packages that follow the rule.
PACKAGES: tuple[str, ...] = (
    "audit",
    "chains",
    "cli",
    "core",
    "design",
    "engine",
    "experiments",
    "graphs",
    "learning",
    "node",
    "report",
    "theory",
    "training",
    "walks",
    "watch",
)
#: Refused as the name of anything: a function, a class, an argument, an attribute, a local variable.
DENIED = frozenset(
    [
        "found",
        "told",
        "kept",
        "made",
        "seen",
        "one",
        "mine",
        "theirs",
        "taught",
        "alike",
        "apart",
        "asked",
        "wanted",
        "shown",
        "walked",
        "played",
        "said",
        "look",
        "look_at",
        "looked_at",
        "whoever",
    ]
)
#: Refused as the name of a function or a class: no verb with its object, and no noun of the field.
DENIED_DEFINITIONS = DENIED | frozenset(
    ["at", "of", "on", "here", "there", "part", "parts", "given", "drawn", "written", "others", "words"]
)


def names_of(tree: ast.AST) -> Iterator[tuple[str, int, frozenset[str]]]:
    """Yield every name with its line and the list that holds for it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno, DENIED_DEFINITIONS
        elif isinstance(node, ast.Name):
            yield node.id, node.lineno, DENIED
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno, DENIED
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno, DENIED


@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_what_they_hold(package: str) -> None:
    """No name of a package is on the list; a leading underscore does not hide it."""
    refused = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in sorted((SOURCE / package).rglob("*.py"))
        for name, line, denied in names_of(ast.parse(path.read_text()))
        if name.strip("_").lower() in denied
    ]
    assert refused == []


def test_the_list_finds_names_of_every_kind() -> None:
    """A function, an argument, a local variable and an attribute each count once."""
    tree = ast.parse("def told(found):\n    _made = found.kept\n")
    assert sorted(name for name, _, denied in names_of(tree) if name.strip("_") in denied) == [
        "_made",
        "found",
        "found",
        "kept",
        "told",
    ]
