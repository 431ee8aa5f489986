"""``veilwalk doctor``: what this machine lacks, in words, with what to do about it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def doctor(
    *,
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="A folder on the disk that runs or a node will use.", show_default=True)
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Look at this machine, and say what is wrong with it.

    Python, where compiled kernels are kept, threads, memory, disk and how long it takes to sync, TLS and sealing as
    nodes use them, and optional packages: a line each. ok is as it should be; note works, but slower or with less;
    fails must be mended, and the line says how. Nothing is sent, and nothing is left behind.

    Example: veilwalk doctor --state /var/lib/veilwalk

    Exit code 1 where something fails; notes are no failure.
    """
    from veilwalk.cli._doctor_checks import looked_at

    found = []
    for finding in looked_at(state):
        found.append(finding)
        if not as_json:
            cure = f"; {finding.cure}" if finding.cure else ""
            typer.echo(f"{finding.state:5}  {finding.name}: {' '.join(finding.what.split())}{cure}")
    well = all(finding.state != "fails" for finding in found)
    if as_json:
        typer.echo(json.dumps({"ok": well, "findings": [asdict(finding) for finding in found]}, indent=2))
    if not well:
        raise typer.Exit(1)
