"""The rooms of the node: what each offers, and that nobody climbs in by a window."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "veilwalk"
ROOMS = sorted(path.parent.name for path in (SOURCE / "node").glob("*/__init__.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Every name a file imports from the node, with the module it comes from."""
    for found in ast.walk(ast.parse(path.read_text())):
        if isinstance(found, ast.ImportFrom) and (found.module or "").startswith("veilwalk.node"):
            for alias in found.names:
                yield str(found.module), alias.name


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_a_room_offers_exactly_what_it_lists(room: str) -> None:
    folder = SOURCE / "node" / room
    module = importlib.import_module(f"veilwalk.node.{room}".rstrip("."))
    offered = [name for _, name in imports(folder / "__init__.py")]
    assert sorted(module.__all__) == sorted(offered)


def test_other_rooms_use_the_door() -> None:
    """No private module of a room is imported from outside it."""
    strangers = [
        f"{path.relative_to(SOURCE)}: {module}.{name}"
        for path in SOURCE.rglob("*.py")
        for module, name in imports(path)
        if "._" in f"{module}.{name}" and path.parent.relative_to(SOURCE.parent).parts != tuple(module.split(".")[:3])
    ]
    assert strangers == []
