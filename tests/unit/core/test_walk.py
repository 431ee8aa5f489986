"""The walk as a value."""

from __future__ import annotations

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import WALKS, Walk


@pytest.mark.parametrize("text", WALKS)
def test_text_and_value_say_the_same(text: str) -> None:
    """What is printed can be read again, and is what was read."""
    assert str(Walk.parse(text)) == text
    assert Walk.parse(str(Walk.parse(text))) == Walk.parse(text)


def test_a_walk_given_as_such_stays() -> None:
    """The front door takes both."""
    walk = Walk("non-backtracking")
    assert Walk.parse(walk) is walk


@pytest.mark.parametrize("kind", ["tired", "", "simple:0.1", "non-backtracking:"])
def test_unknown_walks_are_refused_by_name(kind: str) -> None:
    """The line names the parameter and every kind there is."""
    with pytest.raises(InvalidParameterError) as caught:
        Walk.parse(kind)
    assert caught.value.name == "walk"
    assert all(known in str(caught.value) for known in WALKS)


@pytest.mark.parametrize("kind", ["least-recent", "least-recent:0.2"])
def test_a_walk_of_version_0_2_names_its_replacement(kind: str) -> None:
    """The line says what to use instead."""
    with pytest.raises(InvalidParameterError) as caught:
        Walk.parse(kind)
    assert caught.value.name == "walk"
    assert "non-backtracking" in str(caught.value)
