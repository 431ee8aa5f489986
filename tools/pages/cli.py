"""Renews the lists of flags and settings in the reference pages, from the command line and its options.

Run ``python -m tools.pages.cli`` from the checkout. In ``docs/reference/cli.md`` every section ``## `veilwalk VERB` ``
has a list of flags, and the section *Common flags* those that several verbs have alike; in
``docs/reference/training.md`` the section *Settings* has a list of keys. Only these lists are written; the sentences
around them are not. A test holds both pages to what this would write.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from veilwalk.cli._design import SPEC_HELP
from veilwalk.cli._main import app
from veilwalk.cli._options import describe_default
from veilwalk.core.records import write_atomically
from veilwalk.training import TRAIN

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
#: Name, meaning, default.
Flag = tuple[str, str, str]
_DEFAULT = re.compile(r"\s*\[default: ([^]]*)\]$")
_LIST = re.compile(r"^- .*\n(?:- .*\n)*", re.MULTILINE)


def iter_verbs(group: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield every verb with its whole name, its command and its context."""
    for name, command in group.commands.items():
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "commands"):
            yield from iter_verbs(command, inner)
        else:
            yield inner.command_path, command, inner


def list_flags(command: Any, context: Any) -> list[Flag]:
    """Return the flags and arguments of a verb."""
    rows = []
    for parameter in command.get_params(context):
        if "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context)
        about = " ".join((record[1] if record else parameter.help or "").split())
        match = _DEFAULT.search(about)
        default = match[1] if match else "required" if parameter.required else ""
        about = about.removesuffix(" [required]").replace(SPEC_HELP, "a spec, as above.")
        name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar
        rows.append((f"`{name}`", _DEFAULT.sub("", about), default))
    return rows


def flag_list(flags: Sequence[Flag], settings: set[Flag], common: set[Flag]) -> str:
    """Return the flags of a verb as a list; those that stand elsewhere are only named."""
    own = [flag for flag in flags if flag not in settings | common]
    lines = format_list(own)
    for known, where in ((settings, "[settings of a run](training.md#settings)"), (common, "[common](#common-flags)")):
        names = ", ".join(flag[0] for flag in flags if flag in known)
        lines += f"- {where}: {names}\n" if names else ""
    return lines


def settings_list() -> str:
    """Return the settings of a training run as a list."""
    names = (f"`{one.key}`" if one.rare else f"`--{one.key}`" for one in TRAIN.options)
    return format_list(
        [(name, one.about, describe_default(one)) for name, one in zip(names, TRAIN.options, strict=True)]
    )


def format_list(flags: Sequence[Flag]) -> str:
    """Return a Markdown list of flags with their defaults in brackets."""
    return "".join(f"- {name}{f' [{default}]' if default else ''}: {about}\n" for name, about, default in flags)


def renew_section(page: str, heading: str, lines: str) -> str:
    """Return the page with the first list below ``heading`` replaced, or added at the end of the section."""
    start = page.find(f"{heading}\n")
    if start < 0:
        raise SystemExit(f"the page has no section {heading!r}: write one")
    end = page.find("\n## ", start + 1)
    end = len(page) if end < 0 else end
    section = page[start:end]
    match = _LIST.search(section)
    if match is None:
        return page[:start] + section.rstrip("\n") + f"\n\n{lines}" + page[end:]
    return page[:start] + section[: match.start()] + lines + section[match.end() :] + page[end:]


def renew_pages() -> dict[Path, str]:
    """Return both pages as they should be."""
    root: Any = typer.main.get_command(app)
    context: Any = root.make_context("veilwalk", [], resilient_parsing=True)
    verbs_path, training_path = REFERENCE / "cli.md", REFERENCE / "training.md"
    settings = {(f"`--{one.key}`", one.about, describe_default(one)) for one in TRAIN.options}
    verbs = {f"## `{name}`": list_flags(command, inner) for name, command, inner in iter_verbs(root, context)}
    counts = Counter(flag for flags in verbs.values() for flag in flags if flag not in settings)
    # Of one name only the meaning that most verbs have.
    most = dict(reversed([(flag[0], flag) for flag, count in counts.most_common() if count > 1]))
    common = [flag for flag in counts if flag in most.values()]
    page = renew_section(verbs_path.read_text(), "## Common flags", format_list(common))
    for heading, flags in verbs.items():
        if flags:
            page = renew_section(page, heading, flag_list(flags, settings, set(common)))
    if gone := [line for line in page.splitlines() if line.startswith("## `") and line not in verbs]:
        raise SystemExit(f"the page has sections of verbs that are gone: {', '.join(gone)}")
    return {verbs_path: page, training_path: renew_section(training_path.read_text(), "## Settings", settings_list())}


if __name__ == "__main__":
    for path, text in renew_pages().items():
        write_atomically(path, text.encode())
