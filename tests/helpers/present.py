"""Values that may be missing, where a test knows that they are there."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    """Return ``value``; fail where there is none."""
    assert value is not None
    return value
