"""The manual page: every verb and flag, from the command's own help.

Run ``python -m tools.pages.man`` from the checkout. It writes ``docs/reference/veilwalk.1``, which the wheel
brings to ``share/man/man1``; a test holds the page to what this would write. (click-man, the library for this, reads
commands of click; Typer's are no longer those.)
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from veilwalk.cli._main import app
from veilwalk.core.records import write_atomically
from veilwalk.core.version import __version__

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "veilwalk.1"


def page() -> str:
    """Return the whole page, as man reads it."""
    root: Any = typer.main.get_command(app)
    context: Any = root.make_context("veilwalk", [], resilient_parsing=True)
    summary, *about = _paragraphs(root)
    lines = [
        f'.TH VEILWALK 1 "" "veilwalk {__version__}" "User Commands"',
        # Words are not broken: flags are among them.
        ".nh",
        *(".SH NAME", f"veilwalk \\- {_plain(summary.rstrip('.'))}"),
        *(".SH SYNOPSIS", r".B veilwalk", r".I COMMAND", r"[OPTIONS] [ARGUMENTS]"),
        ".SH DESCRIPTION",
    ]
    for paragraph in about:
        lines += [".PP", _plain(paragraph)]
    lines += [".SH OPTIONS", *_options(root, context), ".SH COMMANDS"]
    for command, its in _verbs(root, context):
        lines += [f".SS {_plain(' '.join(command.get_usage(its).removeprefix('Usage: ').split()))}"]
        for paragraph in _paragraphs(command):
            lines += [".PP", _plain(paragraph)]
        lines += _options(command, its)
    lines += [".SH SEE ALSO", _plain("The pages in docs/ of the source, or make docs there for all of them as a site.")]
    return "\n".join(lines) + "\n"


def _verbs(group: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    """Every command that does something, with its context: those of a group are below it."""
    for name, command in group.commands.items():
        its = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "commands"):
            yield from _verbs(command, its)
        else:
            yield command, its


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(command.help).split("\n\n")]


def _options(command: Any, context: Any) -> list[str]:
    """Return flags and arguments, as the help has them; --help itself is told once, of the whole command."""
    found = []
    for parameter in command.get_params(context):
        # Help only names flags for rare cases; this page says what they mean.
        parameter.hidden = False
        record = parameter.get_help_record(context)
        if record is not None and (context.parent is None or "--help" not in parameter.opts):
            found += [".TP", rf"\fB{_plain(record[0])}\fR", _plain(" ".join(record[1].split()))]
    return found


def _plain(text: str) -> str:
    """Return text that troff takes for nothing else: minus signs that can be copied, no line that is a request.

    A list without spaces may be broken after a comma.
    """
    shown = re.sub(r",(?=\S)", r",\\:", text.replace("\\", r"\e").replace("-", r"\-"))
    return rf"\&{shown}" if shown.startswith((".", "'")) else shown


if __name__ == "__main__":
    write_atomically(PAGE, page().encode())
