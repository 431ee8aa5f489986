"""The command line reaches into no other room: it imports packages, and not their private modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

CLI = Path(__file__).parents[2] / "src" / "veilwalk" / "cli"


def private_imports(tree: ast.AST) -> list[str]:
    """Return the private modules and names of other rooms that a module imports."""
    imported = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    return [
        name
        for name in imported
        if name.startswith("veilwalk.")
        and not name.startswith("veilwalk.cli.")
        and any(word.startswith("_") and not word.endswith("__") for word in name.split("."))
    ]


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.name)
def test_the_command_line_imports_no_private_module(path: Path) -> None:
    """What it needs of a room, the room offers."""
    assert private_imports(ast.parse(path.read_text())) == []


def test_private_imports_of_every_kind_are_noticed() -> None:
    """By module and by name, at the top and inside functions; versions and own modules are no such thing."""
    text = (
        "import veilwalk.audit._plan\n"
        "from veilwalk.training._settings import USUAL\n"
        "def inside():\n    from veilwalk.graphs import _kernels\n"
        "from veilwalk.cli._output import say\n"
        "from veilwalk.core.version import __version__\n"
    )
    assert private_imports(ast.parse(text)) == [
        "veilwalk.audit._plan",
        "veilwalk.training._settings.USUAL",
        "veilwalk.graphs._kernels",
    ]
