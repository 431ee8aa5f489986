"""Reads settings and records: one strict decoder from a table of TOML or JSON to a frozen dataclass, and back.

A key is the name of its field with dashes for underscores (``target-accuracy``), or the ``key`` in its metadata. Files
whose keys have underscores are read with ``dashes=False``.
"""

from __future__ import annotations

import base64
import binascii
import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError

_Settings = TypeVar("_Settings")
#: What a value of each type is called.
_NEEDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    bytes: "base64",
    tuple: "a list",
    Mapping: "a table",
}


# Characters of a value in an error.
_VALUE_LENGTH = 80


@cache
def _type_hints(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass; kept, for a roster has thousands of records of one."""
    return get_type_hints(kind)


def key_of(field: Field[Any], *, dashes: bool = True) -> str:
    """Return what a field is called in a file."""
    return str(field.metadata.get("key") or (field.name.replace("_", "-") if dashes else field.name))


def decode(
    kind: type[_Settings], given: Mapping[str, Any], *, where: str = "", folder: Path | None = None, dashes: bool = True
) -> _Settings:
    """Make a dataclass from keys as a file has them; its own fields say which there are and of which type.

    Fields may be text, numbers, truth values, paths, bytes (base64), numbered choices, dataclasses (tables inside),
    tuples and mappings of these, or any of these or None. A whole number will do for any number. ``where``, the file,
    begins every error; relative paths are relative to ``folder``.
    """
    known = {key_of(field, dashes=dashes): field for field in fields(kind)}  # type: ignore[arg-type]
    types, before = _type_hints(kind), f"{where}: " if where else ""  # type: ignore[arg-type]
    for key in given:
        if key not in known:
            raise ConfigError(f"{before}unknown key {key[:_VALUE_LENGTH]!r}: must be one of {', '.join(sorted(known))}")
    for key, field in known.items():
        if key not in given and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{before}lacks {key!r}")
    values = {}
    for key, value in given.items():
        expected = types[known[key].name]
        if is_dataclass(expected) and isinstance(expected, type) and isinstance(value, Mapping):
            inside = f"{where} [{key}]" if where else f"[{key}]"
            values[known[key].name] = decode(expected, value, where=inside, folder=folder, dashes=dashes)
        else:
            values[known[key].name] = check_type(before + key, value, expected, folder)
    return kind(**values)


def check_type(name: str, value: Any, expected: Any, folder: Path | None = None) -> Any:
    """Return ``value`` as ``expected``, a type or one of a union; refuse all others by ``name``."""
    options = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    if value is None and NoneType in options:
        return None
    (expected,) = (option for option in options if option is not NoneType)
    if expected is Path and isinstance(value, str):
        return Path(value) if folder is None else folder / value
    # A truth value is a whole number to Python, and to nobody else.
    if expected is float and type(value) in {int, float}:
        return float(value)
    origin = get_origin(expected) or expected
    if origin in {tuple, Mapping} or expected is bytes or (isinstance(origin, type) and issubclass(origin, IntEnum)):
        return _check_composite(name, value, expected, origin)
    if is_dataclass(expected) and isinstance(expected, type) and isinstance(value, Mapping):
        return decode(expected, value, where=name, folder=folder, dashes=False)
    if type(value) is expected:
        return value
    need = "a table" if is_dataclass(expected) else _NEEDS.get(expected, "text")
    raise InvalidParameterError(name, _shorten(value), need)


def _check_composite(name: str, value: Any, expected: Any, origin: Any) -> Any:
    """Return what JSON writes as text, a number, a list or a table and Python has a type of its own for."""
    inner = get_args(expected)
    if origin is tuple and isinstance(value, list) and (inner[-1] is Ellipsis or len(inner) == len(value)):
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(check_type(name, item, kind) for item, kind in zip(value, kinds, strict=True))
    if origin is Mapping and isinstance(value, Mapping):
        if inner[0] is int and any(not _is_number(key) for key in value):
            raise InvalidParameterError(name, sorted(value)[:4], "a table whose keys are whole numbers")
        return {inner[0](key): check_type(name, item, inner[1]) for key, item in value.items()}
    if expected is bytes and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidParameterError(name, _shorten(value), _NEEDS[bytes]) from None
    if isinstance(origin, type) and issubclass(origin, IntEnum):
        if type(value) is int and value in set(origin):
            return origin(value)
        raise InvalidParameterError(name, _shorten(value), f"one of {', '.join(str(int(choice)) for choice in origin)}")
    raise InvalidParameterError(name, _shorten(value), _NEEDS[origin])


def _shorten(value: Any) -> Any:
    """Return a value as an error shows it: a file may hold megabytes of it."""
    return value if len(repr(value)) <= _VALUE_LENGTH else f"{repr(value)[:_VALUE_LENGTH]}..."


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key


def encode(value: Any) -> Any:
    """Return a record as JSON has it; :func:`decode` reads it back."""
    if is_dataclass(value) and not isinstance(value, type):
        return {key_of(field, dashes=False): encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return int(value) if isinstance(value, IntEnum) else value


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; refuse one that is missing or not TOML."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputFileError(f"{path}: not TOML ({error})") from error


def read_json(path: Path, keys: Collection[str] = (), *, advice: str = "") -> dict[str, Any]:
    """Return the object in a JSON file, which has these keys, or refuse it; ``advice`` ends an error of reading."""
    try:
        content = dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputFileError(f"{path} cannot be read ({error}){advice}") from error
    if missing := sorted(set(keys) - content.keys()):
        raise InputFileError(f"{path} lacks {missing[0]!r}")
    return content


def to_toml(values: Mapping[str, Any]) -> str:
    """Return keys and single values as TOML; what is None stays out."""
    # JSON writes text and numbers as TOML reads them.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items() if value is not None]
    return "".join(lines)
