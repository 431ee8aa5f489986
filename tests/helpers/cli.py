"""The command line, called as a user would and read as a user would."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from veilwalk.cli import main
from veilwalk.cli._output import COMPILING
from veilwalk.core.progress import SO_FAR


def without_compiling(said: str) -> str:
    """Return what was said but for this: what is compiled, and how long it takes, is the machine's."""
    return re.sub(f"^{SO_FAR}.*\n", "", said.replace(f"{COMPILING}\n", ""), flags=re.MULTILINE)


class Cli:
    """Calls ``veilwalk`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, arguments: list[str]) -> tuple[int, str, str]:
        """Return the exit code, and what was written to standard output and to standard error."""
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        shown = self._capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, shown.out, without_compiling(shown.err)

    def json(self, arguments: list[str]) -> Any:
        """Return what ``--json`` prints, where all goes well and nothing else is said."""
        code, out, err = self([*arguments, "--json"])
        assert (code, err) == (0, "")
        return json.loads(out)
