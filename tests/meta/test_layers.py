"""The drawing of the rooms is the contract that import-linter checks, line by line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "decisions" / "decisions.md").read_text().partition("## Layers")[2]
CONTRACTS = {
    contract["containers"][0]: contract["layers"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if contract["type"] == "layers"
}


def drawn() -> list[list[str]]:
    """The large drawing, top to bottom: the rooms that stand side by side in each line."""
    block = re.search(r"\n\n((?: {4}\S.*\n)+)\n", PAGE)
    assert block is not None
    return [re.split(r" {2,}", line.strip())[0].split(" | ") for line in block[1].splitlines()]


def test_the_drawing_is_the_contract() -> None:
    """Same rooms, same order, same siblings; nothing is drawn or checked alone."""
    assert drawn() == [layer.split(" | ") for layer in CONTRACTS["veilwalk"]]


def test_the_drawing_inside_the_node_is_its_contract() -> None:
    """Top to bottom in one line."""
    line = re.search(r"^ {4}node: +(.*?)(?: {2,}|;|$)", PAGE, re.MULTILINE)
    assert line is not None
    assert line[1].split(" > ") == CONTRACTS["veilwalk.node"]


def test_every_contract_of_layers_is_drawn() -> None:
    """A room that gets layers of its own gets a line here."""
    assert set(CONTRACTS) == {"veilwalk", "veilwalk.node"}


def test_every_room_is_drawn() -> None:
    """Packages of the house and of the node that are on disk stand in the drawing."""
    house = ROOT / "src" / "veilwalk"
    assert {place.parent.name for place in house.glob("*/__init__.py")} == {room for line in drawn() for room in line}
    inside = {place.parent.name for place in (house / "node").glob("*/__init__.py")}
    assert inside == set(CONTRACTS["veilwalk.node"])
