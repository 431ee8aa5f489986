"""How long work says how far it is: one kind of listener, whoever works."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told the stage, how much of it is done, how much there is in all (0: unknown), and anything worth knowing."""

    def __call__(self, stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
        """Hear it."""


def silent(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
    """Tell nobody."""
