"""The walk as a value."""

from __future__ import annotations

from typing import Any

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import WALKS, Walk


@pytest.mark.parametrize("text", [*WALKS, "least-recent:0.2", "least-recent:1"])
def test_text_and_value_say_the_same(text: str) -> None:
    """What is printed can be read again, and is what was read."""
    assert str(Walk.of(text)) == text
    assert Walk.of(str(Walk.of(text))) == Walk.of(text)


def test_a_walk_given_as_such_stays() -> None:
    """The front door takes both."""
    walk = Walk("least-recent", 0.3)
    assert Walk.of(walk) is walk
    assert walk.remembers
    assert not Walk("non-backtracking").remembers


@pytest.mark.parametrize(
    ("kind", "mix", "message"),
    [
        ("tired", 0.0, "walk = 'tired': must be one of simple, lazy, metropolis, non-backtracking, least-recent"),
        ("simple", 0.1, "mix = 0.1: must be 0 for the simple walk: only least-recent mixes"),
        ("non-backtracking", 1, "mix = 1: must be 0 for the non-backtracking walk: only least-recent mixes"),
        ("least-recent", 1.5, "mix = 1.5: must be a number from 0 to 1"),
        ("least-recent", -0.1, "mix = -0.1: must be a number from 0 to 1"),
        ("least-recent", float("nan"), "mix = nan: must be a number from 0 to 1"),
        ("least-recent", "half", "mix = 'half': must be a number from 0 to 1"),
    ],
)
def test_bad_walks_are_refused_in_one_line(kind: str, mix: Any, message: str) -> None:
    """The parameter, its value, what is needed; as a value and, where it can be written so, as text."""
    with pytest.raises(InvalidParameterError) as caught:
        Walk(kind, mix)
    assert str(caught.value) == message


def test_a_mix_that_is_no_number_is_refused_as_text() -> None:
    """The text itself is shown."""
    with pytest.raises(InvalidParameterError, match="walk = 'least-recent:half'"):
        Walk.of("least-recent:half")
