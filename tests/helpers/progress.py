"""A listener that remembers."""

from __future__ import annotations


class Heard:
    """Keeps how much was done of how much, each time it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def __call__(self, stage: str, done: int = 0, total: int = 0, news: str = "") -> None:  # noqa: ARG002
        """Note it."""
        self.steps.append((done, total))
