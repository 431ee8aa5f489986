"""Settings as files have them: one strict decoder from a table of TOML or JSON to a frozen dataclass, and back.

A field is called by its name with dashes for underscores (``target-accuracy``), or as its metadata say:
``field(metadata={"key": "latency"})``. Files whose keys have underscores are read with ``dashes=False``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError

_Settings = TypeVar("_Settings")
#: What a value of each type is called.
_NEEDS: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false"}


def key_of(field: Field[Any], *, dashes: bool = True) -> str:
    """Return what a field is called in a file."""
    return str(field.metadata.get("key", field.name.replace("_", "-") if dashes else field.name))


def decode(
    kind: type[_Settings],
    given: Mapping[str, Any],
    *,
    where: str = "",
    folder: Path | None = None,
    dashes: bool = True,
) -> _Settings:
    """Make a dataclass from keys as a file has them; its own fields say which there are and of which type.

    Fields may be text, numbers, truth values, paths and dataclasses (tables inside), or any of these or None. A whole
    number will do for any number.

    Args:
        kind: the dataclass.
        given: keys and values.
        where: put before what is said of them: the file.
        folder: what relative paths are relative to; as they stand without one.
        dashes: whether keys have dashes where names have underscores.

    Raises:
        ConfigError: A key is unknown or missing.
        InvalidParameterError: A value is of another type.
    """
    known = {key_of(field, dashes=dashes): field for field in fields(kind)}  # type: ignore[arg-type]
    types, before = get_type_hints(kind), f"{where}: " if where else ""
    for key in given:
        if key not in known:
            raise ConfigError(f"{before}unknown key {key!r}: must be one of {', '.join(sorted(known))}")
    for key, field in known.items():
        if key not in given and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{before}lacks {key!r}")
    values = {}
    for key, value in given.items():
        wanted = types[known[key].name]
        if is_dataclass(wanted) and isinstance(wanted, type) and isinstance(value, Mapping):
            inside = f"{where} [{key}]" if where else f"[{key}]"
            values[known[key].name] = decode(wanted, value, where=inside, folder=folder, dashes=dashes)
        else:
            values[known[key].name] = _checked(before + key, value, wanted, folder)
    return kind(**values)


def _checked(name: str, value: Any, wanted: Any, folder: Path | None) -> Any:
    options = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    if value is None and NoneType in options:
        return None
    (wanted,) = (option for option in options if option is not NoneType)
    if wanted is Path and isinstance(value, str):
        return Path(value) if folder is None else folder / value
    # A truth value is a whole number to Python, and to nobody else.
    if wanted is float and type(value) in {int, float}:
        return float(value)
    if type(value) is wanted:
        return value
    raise InvalidParameterError(name, value, "a table" if is_dataclass(wanted) else _NEEDS.get(wanted, "text"))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        InputFileError: It is missing, or not TOML.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputFileError(f"{path}: not TOML ({error})") from error


def to_toml(values: Mapping[str, Any]) -> str:
    """Return keys and single values as TOML; what is None stays out."""
    # JSON writes text and numbers as TOML reads them.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items() if value is not None]
    return "".join(lines)
