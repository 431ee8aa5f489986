"""The lists of the reference pages are what the command line and its options say."""

from __future__ import annotations

from tools.pages.cli import flag_list, format_list, renew_pages, renew_section


def test_the_pages_are_what_the_tool_writes() -> None:
    """After a change of an option or a flag: python -m tools.pages.cli."""
    for path, text in renew_pages().items():
        assert path.read_text() == text, path.name


def test_only_the_list_of_a_section_is_replaced() -> None:
    """A section without one gets it at its end; sentences, and other sections, stay."""
    lines = format_list([("`--new`", "one or two", "two"), ("`--other`", "three", "")])
    page = "# Page\n## `a`\nWords.\n\n- old\n- older\n\nMore.\n\n## `b`\nOnly words.\n"
    renewed = renew_section(renew_section(page, "## `a`", lines), "## `b`", lines)
    assert renewed == f"# Page\n## `a`\nWords.\n\n{lines}\nMore.\n\n## `b`\nOnly words.\n\n{lines}"
    assert lines == "- `--new` [two]: one or two\n- `--other`: three\n"


def test_a_flag_that_stands_elsewhere_is_only_named() -> None:
    """A flag of the same name with another meaning or default is the verb's own."""
    alike, other, setting = ("`--out`", "A folder.", ""), ("`--out`", "A file.", ""), ("`--seed`", "A seed.", "1")
    assert flag_list([alike, setting], {setting}, {alike}).count("\n") == 2
    assert flag_list([other, setting], {setting}, {alike}).startswith("- `--out`: A file.\n")
