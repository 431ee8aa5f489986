"""Loads public names of a room, and libraries, when they are first asked for, and lets a room be called.

A room and its main function may share their name, and Python binds that name to the room. So that both readings of
``vw.design`` work, the room answers a call with its function.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from veilwalk.core.errors import ConfigError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def import_extra(module: str, extra: str) -> Any:
    """Import a library that an extra of the package brings; where it is missing, say which."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ConfigError(f"{library} is not installed here: pip install 'veilwalk[{extra}]' brings it") from error


def make_callable(room: str) -> None:
    """Let the module called ``room`` answer calls, and ``help``, with the function that has its name."""
    module, name = sys.modules[room], room.rpartition(".")[2]
    function = getattr(module, name)
    signature = inspect.signature(function)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)

    def call(self: ModuleType, *arguments: Any, **options: Any) -> Any:
        return getattr(self, name)(*arguments, **options)

    call.__doc__ = function.__doc__
    call.__dict__["__signature__"] = signature.replace(parameters=[itself, *signature.parameters.values()])
    module.__class__ = type("Room", (ModuleType,), {"__call__": call})
    module.__doc__ = f"{module.__doc__}\n\n{name}{signature}\n\n{inspect.getdoc(function)}"


def show_options(options: Any, *, but: Collection[str] = ()) -> Callable[[_Function], _Function]:
    """Replace ``**options`` in a signature by the fields of a dataclass, or by options; leave out those in ``but``."""
    shown_fields = fields(options) if is_dataclass(options) else options

    def show(function: _Function) -> _Function:
        signature = inspect.signature(function)
        named = {name: known for name, known in signature.parameters.items() if known.kind is not known.VAR_KEYWORD}
        for field in (field for field in shown_fields if field.name not in {*named, *but}):
            named[field.name] = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
            )
        function.__dict__["__signature__"] = signature.replace(parameters=list(named.values()))
        return function

    return show


def lazy_attributes(room: str, homes: Mapping[str, Iterable[str]], rooms: Iterable[str] = ()) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of the module ``room``; ``homes`` lists names by the module inside that has them.

    ``rooms`` are modules inside that are public themselves.
    """
    home_of = {name: f"{room}.{home}" for home, names in homes.items() for name in names}
    inside = frozenset(rooms)

    def load(name: str) -> Any:
        if name in inside:
            return import_module(f"{room}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[room], name, value)
        return value

    return load


def open_room(room: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return ``__getattr__`` and ``__all__`` of a package, from what its ``__init__`` imports for type checkers alone.

    The package writes ``if TYPE_CHECKING: from package._module import name``, and calls this in the ``else``: each name
    stands there once, type checkers see it and no other, and its module is imported at its first use.
    """
    loader = sys.modules[room].__spec__.loader  # type: ignore[union-attr]
    source = loader.get_source(room)  # type: ignore[union-attr]
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    homes = {str(node.module).removeprefix(f"{room}."): [name.name for name in node.names] for node in imports}
    names = [name for names in homes.values() for name in names]
    # Ruff's order: constants, classes, the rest.
    names.sort(key=lambda name: (0 if name.isupper() else 1 if name[0].isupper() else 2, name))
    return lazy_attributes(room, homes, rooms=homes.pop(room, ())), names
