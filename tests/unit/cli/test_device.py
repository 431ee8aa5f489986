"""``audit --device cuda``: the record of the processor where there is a card, one line where there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.helpers.cli import Cli
from tests.helpers.host_device import host_device

from veilwalk.walks import _protocol

SMALL = ["audit", "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "3000", "--replicas", "40"]
ASKED = [*SMALL, "--law", "paper", "--observers", "prior,last-hop,first-sight", "--colluders", "4"]


def test_the_record_is_that_of_the_processor(run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = host_device(tmp_path)
    monkeypatch.setattr(_protocol, "open_cuda", lambda: card)
    assert run.json([*ASKED, "--device", "cuda"]) == run.json(ASKED)


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed here")
def test_without_cupy_one_line_says_what_to_install(run: Cli) -> None:
    code, _, said = run([*ASKED, "--device", "cuda"])
    assert code == 2
    assert "install veilwalk[cuda]" in said
    assert len(said.strip().splitlines()) == 1


def test_where_a_card_is_no_use_one_line_says_so(run: Cli) -> None:
    code, _, said = run([*SMALL, "--law", "plain", "--device", "cuda"])
    assert code == 2
    assert "cpu for the plain walk" in said
    assert "device = 'tpu'" in run([*ASKED, "--device", "tpu"])[2]
