"""What campaigns share: jobs on one engine, each kept as soon as it is done; sections of a page left as they were."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from veilwalk.engine import JobStore, open_engine, run_jobs
from veilwalk.engine._engines import ENGINES

#: ``run_jobs`` where the options say, keeping what is done.
Run = Callable[..., list[Any]]


def add_engine(parser: argparse.ArgumentParser, work: Path | None) -> None:
    """Add the options that say where jobs are done, and where they are kept."""
    parser.add_argument("--work", type=Path, default=work, help="where finished jobs are kept: run again, it goes on")
    parser.add_argument("--engine", default="serial", help=f"where jobs are done, one at a time by default: {ENGINES}")


@contextmanager
def engine(name: str, work: Path) -> Iterator[Run]:
    """Yield what runs jobs on an engine and keeps them in a folder."""
    with open_engine(name) as executor:
        yield partial(run_jobs, executor=executor, store=JobStore(work), progress=_told)


def _told(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
    print(f"{stage}: {done} of {total} {news}", flush=True)


def sections_of(text: str) -> dict[str, list[str]]:
    """Return the lines of every section of a page by its title."""
    found = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        found[title] = body.strip("\n").split("\n")
    return found
