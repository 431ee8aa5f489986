"""Options of specifications: fields of frozen dataclasses that say what they are, for flags, help, files and pages.

A specification may have others inside, as parts. Options have distinct names in all of them: nobody who sets one needs
the name of its part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, get_type_hints

from veilwalk.core import validate
from veilwalk.core.config import check_type, key_of
from veilwalk.core.errors import ConfigError, InvalidParameterError

_Spec = TypeVar("_Spec")


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a specification, by its name there.

    Attributes:
        default: Its default.
        about: What it is, in a sentence or two, for help and reference pages.
        metavar: What stands for its value there; else its ``choices`` do.
        rare: Whether help leaves its flag out; reference pages and files of settings have it.
        usual: What the default comes to, where the default itself does not say it.
        choices: All that it may be.
        least: The least number that it may be.
        key: Its key in files and its flag, where that is not its name.
        part: Name of the specification that it is in, empty for the whole.
    """

    default: Any
    about: str
    metavar: str | None = None
    rare: bool = False
    usual: str = ""
    choices: Sequence[str] = ()
    least: int | None = None
    key: str = ""
    name: str = ""
    part: str = ""
    type: Any = None


def option(default: Any, about: str, metavar: str | None = None, **others: Any) -> Any:
    """Return a dataclass field that is one option of a specification; ``others`` are more attributes of it."""
    metavar = metavar or "|".join(others.get("choices", ())) or None
    item = Option(default=default, about=about, metavar=metavar, **others)
    return field(default=default, metadata={"option": item, "key": item.key})


def list_options(spec: Any) -> dict[str, Option]:
    """Return the options of a specification by name, in order, with the values of ``spec`` as defaults."""
    inner = {item.name: getattr(spec, item.name) for item in fields(spec)}
    parts = {"": spec} | {name: value for name, value in inner.items() if is_dataclass(value)}
    return {
        item.name: replace(
            item.metadata["option"],
            name=item.name,
            key=key_of(item),
            type=kinds[item.name],
            part=part,
            default=getattr(owner, item.name),
        )
        for part, owner in parts.items()
        for kinds in [get_type_hints(type(owner))]
        for item in fields(owner)
        if "option" in item.metadata
    }


def change_spec(spec: _Spec, values: Mapping[str, Any], *, where: str = "", left_out: Collection[str] = ()) -> _Spec:
    """Return ``spec`` with the options in ``values``, by name or key.

    Unknown names, wrong types, and the options ``left_out`` are refused; ``where``, the file, begins errors.
    """
    options = list_options(spec)
    known = {spelling: item for item in options.values() for spelling in (item.key, item.name)}
    before = f"{where}: " if where else ""
    parts: dict[str, dict[str, Any]] = {}
    for spelling, value in values.items():
        if spelling not in known:
            validate.refuse_removed("key", spelling)
            keys = ", ".join(sorted(item.key for item in options.values() if item.name not in left_out))
            raise ConfigError(f"{before}unknown key {spelling!r}: must be one of {keys}")
        item = known[spelling]
        if item.name in left_out:
            raise InvalidParameterError(spelling, value, "left out: this verb does not take it")
        changes = parts.setdefault(item.part, {})
        if item.name in changes:
            raise ConfigError(f"{before}{item.key!r} is given twice, as {item.key} and as {item.name}: leave one out")
        changes[item.name] = check_type(before + item.key, value, item.type)
    whole = parts.pop("", {})
    inner = {part: replace(getattr(spec, part), **changes) for part, changes in parts.items()}
    return replace(spec, **whole, **inner)  # type: ignore[type-var]


class Specification:
    """A specification whose options keep to their choices and to their least numbers."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value, limits = getattr(self, item.name), item.metadata.get("option")
            if limits and limits.choices and value not in limits.choices:
                raise InvalidParameterError(key_of(item), value, f"one of {', '.join(limits.choices)}")
            if limits and limits.least is not None and value is not None:
                validate.integer(limits.least, **{item.name: value})
