"""What tests of more than one package use."""

from __future__ import annotations

import pytest
from tests.helpers.cli import Cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)
