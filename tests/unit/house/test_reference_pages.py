"""The tables of the reference pages are what the command line and its options say."""

from __future__ import annotations

from tools.pages.cli import format_table, renew_pages, renew_section


def test_the_pages_are_what_the_tool_writes() -> None:
    """After a change of an option or a flag: python -m tools.pages.cli."""
    for path, text in renew_pages().items():
        assert path.read_text() == text, path.name


def test_only_the_table_of_a_section_is_replaced() -> None:
    """A section without one gets it at its end; sentences, and other sections, stay."""
    table = format_table(("flag", "meaning"), [("`--new`", "one | two")])
    page = "# Page\n## `a`\nWords.\n\n| flag |\n|---|\n| old |\n\nMore.\n\n## `b`\nOnly words.\n"
    renewed = renew_section(renew_section(page, "## `a`", table), "## `b`", table)
    assert renewed == f"# Page\n## `a`\nWords.\n\n{table}\nMore.\n\n## `b`\nOnly words.\n\n{table}"
    assert "one \\| two" in table
