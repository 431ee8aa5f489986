"""Renews the tables of flags and settings in the reference pages, from the command line and its options.

Run ``python -m tools.pages.cli`` from the checkout. In ``docs/reference/cli.md`` every section ``## `veilwalk VERB` ``
has a table of flags; in ``docs/reference/training.md`` the section *Settings* has a table of keys. Only these tables
are written; the sentences around them are not. A test holds both pages to what this would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from veilwalk.cli._main import app
from veilwalk.cli._options import describe_default
from veilwalk.core.records import write_atomically
from veilwalk.training import TRAIN

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_DEFAULT = re.compile(r"\s*\[default: ([^]]*)\]$")
_TABLE = re.compile(r"^\|.*\|\n(?:\|.*\|\n)+", re.MULTILINE)


def iter_verbs(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every verb with its whole name, its command and its context."""
    for name, command in group.commands.items():
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "commands"):
            yield from iter_verbs(command, inner)
        else:
            yield inner.command_path, command, inner


def flag_table(verb: str, command: Any, context: Any, shown: dict[tuple[str, str, str], str]) -> str:
    """Return the flags and arguments of a verb as a table; a flag that an earlier verb has alike is only named."""
    rows, alike = [], dict[str, list[str]]()
    for parameter in command.get_params(context):
        if "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context)
        about = " ".join((record[1] if record else parameter.help or "").split())
        match = _DEFAULT.search(about)
        default = match[1] if match else "required" if parameter.required else ""
        about = about.removesuffix(" [required]")
        name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar
        row = (f"`{name}`", _DEFAULT.sub("", about), default)
        first = shown.setdefault(row, f"`{verb}`")
        if first == f"`{verb}`":
            rows.append(row)
        else:
            alike.setdefault(first, []).append(row[0])
    rows += [(", ".join(names), f"as of {first}", "") for first, names in alike.items()]
    return format_table(("flag", "meaning", "default"), rows)


def settings_table() -> str:
    """Return the settings of a training run as a table."""
    rows = []
    for one in TRAIN.options:
        key = f"`{one.key}`" if one.rare else f"`--{one.key}`"
        rows.append((key, one.about, describe_default(one)))
    return format_table(("key", "meaning", "default"), rows)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    cells = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells)


def renew_section(page: str, heading: str, table: str) -> str:
    """Return the page with the first table below ``heading`` replaced, or added at the end of the section."""
    start = page.find(f"{heading}\n")
    if start < 0:
        raise SystemExit(f"the page has no section {heading!r}: write one, with an empty table of flags")
    end = page.find("\n## ", start + 1)
    end = len(page) if end < 0 else end
    section = page[start:end]
    match = _TABLE.search(section)
    if match is None:
        return page[:start] + section.rstrip("\n") + f"\n\n{table}" + page[end:]
    return page[:start] + section[: match.start()] + table + section[match.end() :] + page[end:]


def renew_pages() -> dict[Path, str]:
    """Return both pages as they should be."""
    root: Any = typer.main.get_command(app)
    context: Any = root.make_context("veilwalk", [], resilient_parsing=True)
    verbs_path, training_path = REFERENCE / "cli.md", REFERENCE / "training.md"
    settings = {(f"`--{one.key}`", one.about, describe_default(one)) for one in TRAIN.options}
    page, shown = verbs_path.read_text(), dict.fromkeys(settings, "the [settings of a run](training.md#settings)")
    for name, command, inner in iter_verbs(root, context):
        if any("--help" not in parameter.opts for parameter in command.get_params(inner)):
            page = renew_section(page, f"## `{name}`", flag_table(name, command, inner, shown))
    return {verbs_path: page, training_path: renew_section(training_path.read_text(), "## Settings", settings_table())}


if __name__ == "__main__":
    for path, text in renew_pages().items():
        write_atomically(path, text.encode())
