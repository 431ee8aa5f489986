"""Walks come to the same bits on every machine: the digests that cards are held against are the processor's."""

from __future__ import annotations

import pytest
from benchmarks.speed._golden import Case, digest, golden_cases, known_digests

CASES = golden_cases()


def test_every_case_has_a_digest() -> None:
    assert set(CASES) == set(known_digests())


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=list(CASES))
def test_the_processor_makes_the_digests(name: str, case: Case) -> None:
    assert digest(case("cpu")) == known_digests()[name]
