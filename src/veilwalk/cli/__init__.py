"""The command line: one thin module a verb. Parse, make one call, print."""

from veilwalk.cli._main import main

__all__ = ["main"]
