"""Measured pages show their main rows, and no row is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.pages import rows

TEXT = "# Page\n\n## One\n\n| a | b |\n|---|---|\n| 1 | x |\n| 2 |  |\n\nWords.\n\n| a | b |\n|---|---|\n| 3 | y |\n"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rows, "LEFT_OUT", {"page": {"One": lambda number, row: number > 0 or row[0] == "9"}})
    path = tmp_path / "page.md"
    rows.write_page(path, TEXT)
    return path


def test_rows_left_out_stand_beside_the_page(page: Path) -> None:
    """Of the table that is named, and of no other."""
    assert page.read_text() == TEXT.replace("| 2 |  |\n", "")
    stored = json.loads(page.with_suffix(".json").read_text())
    assert stored == {"One": {"columns": ["a", "b"], "rows": [["1", "x"], ["2", ""]]}}


def test_a_short_page_written_again_loses_nothing(page: Path) -> None:
    """A section that is not measured anew stays short, with its rows in the file; one that is gets its new rows."""
    before = page.read_bytes(), page.with_suffix(".json").read_bytes()
    rows.write_page(page, page.read_text())
    assert (page.read_bytes(), page.with_suffix(".json").read_bytes()) == before
    rows.write_page(page, TEXT.replace("| 1 | x |", "| 1 | new |"))
    assert "| 1 | new |" in page.read_text()
    assert json.loads(page.with_suffix(".json").read_text())["One"]["rows"] == [["1", "new"], ["2", ""]]


def test_another_rule_brings_rows_back(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was left out before is still in the file."""
    monkeypatch.setattr(rows, "LEFT_OUT", {"page": {"One": lambda number, _: number == 0}})
    rows.write_page(page, page.read_text())
    assert page.read_text() == TEXT.replace("| 1 | x |\n", "")
    assert json.loads(page.with_suffix(".json").read_text())["One"]["rows"] == [["1", "x"], ["2", ""]]


def test_the_measured_pages_are_short() -> None:
    """Every rule has its table, and leaves something out of it: python -m tools.pages.rows."""
    for name, rules in rows.LEFT_OUT.items():
        stored = json.loads((rows.MEASURED / f"{name}.json").read_text())
        shown = (rows.MEASURED / f"{name}.md").read_text()
        assert list(stored) == list(rules)
        for title, rule in rules.items():
            out = [rule(number, row) for number, row in enumerate(stored[title]["rows"])]
            assert any(out)
            lines = [f"| {' | '.join(row)} |" for row, left in zip(stored[title]["rows"], out, strict=True) if not left]
            assert "\n".join(lines) in shown
