"""Settings from a TOML file and from ``--set key=value``: flags win over sets, sets over the file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veilwalk.core.errors import ConfigError, InputFileError


def collected(config: Path | None, sets: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked for, by key as a file has it; flags that were not given are None and left out.

    Whether a key exists and what it may be is for the settings to say.
    """
    asked = read_toml(config) if config is not None else {}
    for entry in sets:
        key, value = parsed(entry)
        asked[key] = value
    return asked | {name.replace("_", "-"): value for name, value in flags.items() if value is not None}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the keys of a flat TOML file."""
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputFileError(f"config {path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputFileError(f"config {path}: not TOML ({error})") from error
    for key, value in found.items():
        if isinstance(value, (dict, list)):
            raise ConfigError(f"config {path}: {key} must be a single value, not a table or list")
    return found


def parsed(entry: str) -> tuple[str, Any]:
    """Read ``key=value``: the value as TOML has it, and as plain text where it is none."""
    key, equals, text = entry.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {entry}: must be key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    if isinstance(value, (dict, list)):
        raise ConfigError(f"--set {entry}: must be a single value")
    return key, value
