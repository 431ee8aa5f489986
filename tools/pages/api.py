"""The Python reference: every public name, from the code itself.

Run ``python -m tools.pages.api`` from the checkout. It writes ``docs/reference/api.md``; a test holds the page to
what this would write.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import veilwalk
import veilwalk.core
from tools.pages.markdown import paragraph
from veilwalk.core.records import write_atomically
from veilwalk.core.tables import Tabular

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
#: Lower rooms first, as the package's docstring has them; ``core`` has no names of its own, only modules.
ROOMS = (
    "graphs",
    "theory",
    "chains",
    "walks",
    "design",
    "audit",
    "learning",
    "training",
    "experiments",
    "node",
    "report",
)
_LONGEST_DEFAULT = 40

_OPENING = """\
# Python

Written by `make api` from the code; a test holds the page to it.

```python
import veilwalk as vw
```

loads nothing but the version: a name brings its room with it when it is first used. `vw.design` and `vw.audit` are
**rooms that answer calls**: `vw.design(graph)` is `veilwalk.design.design(graph)`, and `vw.design.LAWS` is what else
the room holds. What takes a law, a walk, a support, data or a learner takes the same words as the [command
line](cli.md), and the values themselves. Bad input raises one of the [errors](cli.md#errors-and-exit-codes).

## The front door
Defaults written `...` are made when they are needed, or depend on the machine."""


def page() -> str:
    """Return the whole page."""
    lines = [_OPENING, ""]
    for name in veilwalk.__all__:
        lines += _entry(name, _named(veilwalk, name))
    lines += [
        "## The rooms",
        "What each holds besides the names above; `help(name)` says what a name is.",
        "",
    ]
    lines += _room("core", (found.name for found in pkgutil.iter_modules(veilwalk.core.__path__)))
    for room in ROOMS:
        lines += _room(room, importlib.import_module(f"veilwalk.{room}").__all__)
    return "\n".join(lines)


def _named(module: ModuleType, name: str) -> Any:
    """What ``name`` stands for; the function, where a room answers calls."""
    found = getattr(module, name)
    return found if not (isinstance(found, ModuleType) and callable(found)) else getattr(found, name)


def _entry(name: str, value: Any) -> list[str]:
    lines = [f"**`vw.{name}{_signature(value)}`**  ", _line(value)]
    if inspect.isclass(value):
        members = {kind: _members(value, kind) for kind in ("methods", "properties")}
        told = [f"{kind} {', '.join(found)}" for kind, found in members.items() if found]
        lines[-1] += f" Its {'; '.join(told)}." if told else ""
    return [*lines, ""]


def _signature(value: Any) -> str:
    # A protocol is not called, and says nothing of its arguments.
    if not callable(value) or getattr(value, "_is_protocol", False):
        return ""
    shown = inspect.signature(value)
    bare = [
        parameter.replace(annotation=parameter.empty, default=_default(parameter.default))
        for parameter in shown.parameters.values()
    ]
    return str(shown.replace(parameters=bare, return_annotation=shown.empty))


class _Shown:
    """A default as it stands in a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: Any) -> Any:
    """Show a default that is the same on every machine; an address or an amount of memory is not."""
    if value is inspect.Parameter.empty:
        return value
    if inspect.isfunction(value):
        return _Shown(value.__name__)
    whole = isinstance(value, int) and value >= 1 << 24
    return _Shown("..." if whole or "<" in repr(value) or len(repr(value)) > _LONGEST_DEFAULT else repr(value))


def _members(kind: type, which: str) -> list[str]:
    """Public methods or properties that the class itself defines, or has as a table."""
    tests: dict[str, Callable[[Any], bool]] = {
        "methods": lambda member: inspect.isfunction(member) or isinstance(member, classmethod | staticmethod),
        "properties": lambda member: isinstance(member, property) or hasattr(member, "attrname"),
    }
    call = "()" if which == "methods" else ""
    members = {
        name: member for base in (Tabular, kind) if issubclass(kind, base) for name, member in vars(base).items()
    }
    return [f"`{name}{call}`" for name, member in members.items() if name[0] != "_" and tests[which](member)]


def _line(value: Any) -> str:
    """What a name is, in one line: the first paragraph of its docstring, or what it holds."""
    if inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, ModuleType):
        first = (inspect.getdoc(value) or "").partition("\n\n")[0]
        plain = re.sub(
            r":(?:\w+:)+`~?([^`]*)`", lambda role: f"`{role[1].rpartition('.')[2]}`", " ".join(first.split())
        )
        return plain.replace("``", "`")
    if isinstance(value, Mapping):
        return f"By name: {', '.join(f'`{key}`' for key in value)}."
    if isinstance(value, tuple):
        return f"{', '.join(f'`{item}`' for item in value)}."
    if isinstance(value, int | str):
        return "The version." if value == veilwalk.__version__ else f"`{value!r}`."
    return "A type of arrays." if hasattr(value, "names") else "A type, for annotations."


def _room(room: str, names: Iterable[str]) -> list[str]:
    about = _line(importlib.import_module(f"veilwalk.{room}"))
    others = ", ".join(f"`{name}`" for name in names if name not in veilwalk.__all__)
    return [f"### `veilwalk.{room}`", about, "", paragraph(f"{others}."), ""]


def main() -> None:
    """Write the page."""
    write_atomically(PAGE, page().encode())


if __name__ == "__main__":
    main()
