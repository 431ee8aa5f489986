"""The command line: one thin module a verb. Parse, make one call, print."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a documented code."""
    words = sys.argv[1:] if arguments is None else arguments
    code = _run(words)
    # Where Ctrl-C met code made from text, as a dataclass makes it, Python would end by the signal and not with the
    # code. It forgets that when other such code runs.
    exec("")  # noqa: S102  nothing is executed
    sys.exit(code)


def _run(words: list[str]) -> int:
    # Only now, and not above: imports take a part of a second, in which Ctrl-C must end the process as at any time.
    try:
        from veilwalk.cli._interrupt import GUARD
    except KeyboardInterrupt:
        sys.stderr.write("veilwalk: interrupted: run the same command again to start over\n")
        return 130
    try:
        # A node and a page handle signals themselves.
        if words[:2] != ["node", "run"] and words[:1] != ["watch"]:
            GUARD.start()
        from veilwalk.cli._main import run

        code = run(words)
    except (KeyboardInterrupt, ImportError) as error:
        # A library in C that is interrupted while it imports another says that the import failed.
        if isinstance(error, ImportError) and not GUARD.is_signalled:
            raise
        code = GUARD.report()
    GUARD.finish(code)
    return code
