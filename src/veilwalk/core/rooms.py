"""How rooms open: names that are loaded when they are first asked for, and rooms that can be called.

A room and its main function may share their name, and Python binds that name to the room. So that both readings of
``vw.design`` work, the room answers a call with its function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


def make_callable(room: str) -> None:
    """Let the module called ``room`` answer calls with the function that has its name."""
    sys.modules[room].__class__ = _Room


def late_names(room: str, homes: Mapping[str, Iterable[str]], rooms: Iterable[str] = ()) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose public names live in modules that are not imported yet.

    Args:
        room: the module.
        homes: the names of each module inside.
        rooms: modules inside that can be asked for themselves.
    """
    home_of = {name: f"{room}.{home}" for home, names in homes.items() for name in names}
    inside = frozenset(rooms)

    def found(name: str) -> Any:
        if name in inside:
            return import_module(f"{room}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[room], name, value)
        return value

    return found
