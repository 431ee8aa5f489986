"""Settings from a TOML file and from ``--set key=value``: flags win over sets, sets over the file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veilwalk.core.config import read_toml
from veilwalk.core.errors import ConfigError


def collected(config: Path | None, sets: Sequence[str], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was asked for, by key as a file has it; flags that were not given are None and left out.

    Whether a key exists and what it may be is for ``core.config.decode`` to say.
    """
    asked = read_toml(config) if config is not None else {}
    asked |= dict(map(parsed, sets))
    return asked | {name.replace("_", "-"): value for name, value in flags.items() if value is not None}


def parsed(entry: str) -> tuple[str, Any]:
    """Read ``key=value``: the value as TOML has it, and as plain text where it is none."""
    key, equals, text = entry.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set {entry}: must be key=value")
    try:
        return key, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key, text.strip()
