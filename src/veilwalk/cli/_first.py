"""``veilwalk demo | init``: a first look, and a start with one's own data and network."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli._train import train
from veilwalk.core.errors import ConfigError
from veilwalk.core.records import require_writable, write_atomically

_PEERS, _NEIGHBOURS, _ROWS_OF_A_PEER, _FEATURES = 30, 4, 20, 5
_KINDS = ("low", "middle", "high")


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the run is kept.", show_default=True)] = Path(
        "veilwalk-demo"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON instead of tables.")] = False,
) -> None:
    """Show it: 300 peers learn to read digits, privately.

    The same as veilwalk train with nothing said: about a minute on two cores, offline, on data that come with the
    package. Called again it shows the finished run, or goes on with one that was stopped.

    Example: veilwalk demo
    """
    from veilwalk.training import RunFolder, Scenario, TrainSettings

    folder, usual = RunFolder(out), TrainSettings()
    # A run keeps what was chosen for it, too.
    if folder.started and folder.settings() != replace(usual, **Scenario.of(usual).words()):
        raise ConfigError(f"{out} holds another run than the demo: choose another folder with --out")
    train(out=out, resume=folder.started, as_json=as_json)
    if not as_json:
        page = out / "report.html"
        look = f"open {page} in a browser; " if page.exists() else ""
        typer.echo(f"next: {look}veilwalk init DIR starts with data and a network of your own")


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
) -> None:
    """Write settings for your own data and network.

    DIR gets train.toml, every setting with a comment, and a small made-up table and network in the form that yours must
    have, with which it runs as it stands. Nothing that is there already is touched.

    Example: veilwalk init mine
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not an empty folder: choose another")
    require_writable(folder)
    for name, text in _starter().items():
        write_atomically(folder / name, text.encode())
    about = {
        "train.toml": "every setting, with what it means",
        "rows.csv": "made-up rows: a label, whose row it is, numbers",
        "peers.csv": "a made-up network: two names a line",
    }
    for name, what in about.items():
        typer.echo(f"wrote {folder / name}: {what}")
    typer.echo(f"next: cd {folder} && veilwalk train --config train.toml --out run")


def _starter() -> dict[str, str]:
    """Return the files by name. What is random in them is the same every time."""
    import numpy as np

    from veilwalk.graphs import random_regular

    source = np.random.default_rng(20250507)
    names = [f"peer-{number:02}" for number in range(1, _PEERS + 1)]
    edges = [(names[a], names[b]) for a, b in random_regular(_PEERS, _NEIGHBOURS, seed=1).edges()]
    rows = []
    for name in names:
        kinds = source.integers(len(_KINDS), size=_ROWS_OF_A_PEER)
        values = source.normal(kinds[:, None], 1.0, size=(_ROWS_OF_A_PEER, _FEATURES))
        rows += [
            (_KINDS[kind], name, *(f"{value:.2f}" for value in row)) for kind, row in zip(kinds, values, strict=True)
        ]
    columns = ("kind", "peer", *(f"measure-{number}" for number in range(1, _FEATURES + 1)))
    return {
        "train.toml": resources.files("veilwalk.cli").joinpath("train.toml").read_text(),
        "rows.csv": _table([columns, *rows]),
        "peers.csv": _table(edges),
    }


def _table(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
