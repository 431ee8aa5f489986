"""How rooms open: names that are loaded when they are first asked for, and rooms that can be called.

A room and its main function may share their name, and Python binds that name to the room. So that both readings of
``vw.design`` work, the room answers a call with its function.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def make_callable(room: str) -> None:
    """Let the module called ``room`` answer calls, and ``help``, with the function that has its name."""
    module, name = sys.modules[room], room.rpartition(".")[2]
    function = getattr(module, name)
    shown = inspect.signature(function)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)

    def call(self: ModuleType, *arguments: Any, **options: Any) -> Any:
        return getattr(self, name)(*arguments, **options)

    call.__doc__ = function.__doc__
    call.__dict__["__signature__"] = shown.replace(parameters=[itself, *shown.parameters.values()])
    module.__class__ = type("Room", (ModuleType,), {"__call__": call})
    module.__doc__ = f"{module.__doc__}\n\n{name}{shown}\n\n{inspect.getdoc(function)}"


def show_options(kind: Any, *, but: Collection[str] = ()) -> Callable[[_Function], _Function]:
    """Let a signature have the fields of the dataclass ``kind``, all ``but`` some, where it has ``**options``."""

    def show(function: _Function) -> _Function:
        signature = inspect.signature(function)
        named = {name: one for name, one in signature.parameters.items() if one.kind is not one.VAR_KEYWORD}
        for field in (field for field in fields(kind) if field.name not in {*named, *but}):
            named[field.name] = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
        function.__dict__["__signature__"] = signature.replace(parameters=list(named.values()))
        return function

    return show


def lazy_attributes(room: str, homes: Mapping[str, Iterable[str]], rooms: Iterable[str] = ()) -> Callable[[str], Any]:
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
