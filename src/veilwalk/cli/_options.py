"""Makes flags: those that several verbs share, and those of a run, which come from ``veilwalk.training``.

Of the settings of a run, flags win over ``--set``, and ``--set`` over the file.
"""

from __future__ import annotations

import inspect
import textwrap
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args

import typer

from veilwalk.core.config import read_toml, to_toml
from veilwalk.core.errors import ConfigError
from veilwalk.core.options import Option
from veilwalk.training import View

_Function = TypeVar("_Function", bound=Callable[..., None])
_WIDTH = 118
#: Values of flags that may be left out.
Text = str | None
File = Path | None
Count = int | None


def option(text: str, metavar: Text = None, default: Text = None, *, name: Text = None) -> Any:
    """Return an option with its help; ``default`` is in words, where the value itself says nothing."""
    names = () if name is None else (name,)
    return typer.Option(*names, metavar=metavar, help=text if default is None else f"{text} [default: {default}]")


def flag(name: str, text: str) -> Any:
    """Return an option that is there or not."""
    return typer.Option(name, help=text)


def argument(metavar: str, text: str) -> Any:
    """Return an argument with its help, which says its default where it has one."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


#: Help of ``--engine``.
ENGINES = "Where jobs are done, to the same result: serial, process, process:N, ray, ray://HOST:PORT."
AsJson = Annotated[bool, flag("--json", "Print one JSON object instead of tables.")]
Watch = Annotated[bool, flag("--watch", "Show the run in a browser on this machine; Ctrl-C ends the page.")]
Sets = Annotated[list[str] | None, option("One setting by its key.", "KEY=VALUE", name="--set")]
Suite = Annotated[
    str, option("Ciphers of a message; hybrid: ML-KEM-768 and X25519; auto: x25519 on overlays.", "auto|hybrid|x25519")
]


def take_options(view: View, *, but: Collection[str] = ()) -> Callable[[_Function], _Function]:
    """Give a verb with ``**values`` a flag for every option of a view but those in ``but``; help leaves rare ones out.

    The verb receives the flags that were given, and None for all others. ``{rare}`` in its docstring becomes the list
    of rare flags.
    """
    options = [setting for setting in view.options if setting.name not in but]

    def add_flags(function: _Function) -> _Function:
        own, keyword = inspect.signature(function, eval_str=True), inspect.Parameter.KEYWORD_ONLY
        flags = [inspect.Parameter(each.name, keyword, default=None, annotation=_annotate(each)) for each in options]
        named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        # Arguments first, then the options of the view, then the verb's own.
        function.__dict__["__signature__"] = own.replace(
            parameters=sorted([*flags, *named], key=lambda each: each.kind)
        )
        rare = ", ".join(f"--{setting.key}" for setting in options if setting.rare)
        function.__doc__ = (function.__doc__ or "").replace("{rare}", rare)
        return function

    return add_flags


def _annotate(setting: Option) -> Any:
    """Return the type of a setting's flag, or None, with its help."""
    (plain,) = [kind for kind in get_args(setting.type) or (setting.type,) if kind is not NoneType]
    name, text = f"--{setting.key}", f"{setting.about} [default: {describe_default(setting)}]"
    if plain is bool:
        name, text = f"{name}/", setting.about
    words: dict[str, Any] = {"metavar": setting.metavar, "help": text, "show_default": False}
    return Annotated[plain | None, typer.Option(name, hidden=setting.rare, **words)]


def describe_default(setting: Option) -> str:
    """Return the default of a setting, or what it comes to."""
    default = setting.default
    return setting.usual or (f"{default:g}" if isinstance(default, float) else str(default))


def merge_settings(view: View, config: Path | None, sets: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by name; flags that are None were not given and are left out."""
    values = view.name_options(read_toml(config)) if config is not None else {}
    values |= view.name_options(dict(map(parse_assignment, sets)))
    return values | {name: value for name, value in flags.items() if value is not None}


def parse_assignment(entry: str) -> tuple[str, Any]:
    """Read ``key=value``: the value as TOML, or else as plain text."""
    key, equals, text = entry.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {entry}: must be key=value")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text.strip()


def format_settings(view: View, values: Mapping[str, Any]) -> str:
    """Return a commented file of all options of a view, with ``values`` set and all others shown at their defaults."""
    lines: list[str] = []
    for part, settings in groupby(view.options, key=lambda setting: setting.part):
        heading = inspect.getdoc(getattr(view.defaults, part) if part else view.defaults) or part
        lines += ["", f"# --- {heading.partition('.')[0]} ".ljust(_WIDTH, "-")]
        for setting in settings:
            about = f"{setting.about} Default: {setting.usual}." if setting.usual else setting.about
            lines += ["", *(f"# {line}" for line in textwrap.wrap(about, _WIDTH - 2))]
            if setting.name in values:
                lines.append(to_toml({setting.key: values[setting.name]}).rstrip())
            else:
                lines.append("# " + (to_toml({setting.key: setting.default}).rstrip() or f"{setting.key} = ..."))
    return "\n".join(lines) + "\n"
