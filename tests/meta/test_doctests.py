"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

ROOMS = ("theory", "design", "audit", "training")
# Kernels are numba's, which hides their docstrings; what they do is shown by their callers.
MODULES = [
    "veilwalk",
    *(f"veilwalk.{room}" for room in ROOMS),
    *(
        found.name
        for room in ROOMS
        for found in pkgutil.walk_packages(importlib.import_module(f"veilwalk.{room}").__path__, f"veilwalk.{room}.")
        if "_kernels" not in found.name
    ),
]
EXAMPLES = [
    example
    for module in MODULES
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module), module)
    if example.examples
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_gives_what_it_says(example: doctest.DocTest) -> None:
    """Line by line, to the letter."""
    said: list[str] = []
    failed, tried = doctest.DocTestRunner().run(example, out=said.append)
    assert tried
    assert not failed, "".join(said)


def test_every_room_shows_how_it_is_called() -> None:
    """Some examples each; the package itself has the whole road."""
    for room in ("theory", "design", "audit"):
        assert sum(example.name.startswith(f"veilwalk.{room}") for example in EXAMPLES) >= 3
    assert EXAMPLES[0].name == "veilwalk"
