"""A small run and its documents, for all tests of the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from veilwalk.training import Scenario, make_spec, run_training
from veilwalk.watch import Feed, open_source

SETTINGS = make_spec(
    graph="rrg:20:3:seed=1", law="uniform-node", support="2:3", walk="simple", updates=120, attack=0, evaluations=5,
    compare="plain-walk",
)  # fmt: skip


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has ended."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    run_training(Scenario.from_spec(SETTINGS), out=folder)
    return folder


@pytest.fixture(scope="session")
def lines(run_folder: Path) -> list[str]:
    """All that a page is told of it."""
    return Feed(open_source(run_folder)).gather()


@pytest.fixture(scope="session")
def documents(lines: list[str]) -> list[dict[str, Any]]:
    """The same as data."""
    return [json.loads(line) for line in lines]
