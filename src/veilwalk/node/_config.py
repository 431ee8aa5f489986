"""A node's own settings: ``node.toml``. Paths are relative to the file; unknown keys are refused by name."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.node._limits import Limits

_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Where a node finds what it needs, and what is up to itself alone.

    Attributes:
        keys: Directory of its keys.
        password_file: File whose first line opens them.
        root: The root's public key.
        roster: The signed roster; a new version put in its place is followed.
        manifest: The signed run manifest.
        law: The destination law, ``.npz``.
        data: This node's examples, ``.npz`` with ``features`` and ``labels``.
        state: Folder of its custody.
        test: The run's public test set, ``.npz`` too, where the manifest names one.
        listen: ``host:port`` to listen on, where it is not the roster's address.
        metrics: ``host:port`` on loopback for health and metrics; none unless given.
        learner: Consent to a learner of the manifest's that is not one of ours, by its text.
        starts: Make the run's first walk.
        max_loss_ratio: Refuse models that do so many times worse on this node's data than its own last; 0 never.
        limits: Patience and quotas.
    """

    keys: Path
    root: Path
    roster: Path
    manifest: Path
    law: Path
    data: Path
    state: Path
    password_file: Path | None = None
    test: Path | None = None
    listen: str | None = None
    metrics: str | None = None
    learner: str | None = None
    starts: bool = False
    max_loss_ratio: float = 0.0
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("listen", "metrics"):
            address = getattr(self, name)
            if address is not None:
                host_and_port(name, address)
        if self.metrics is not None and not self.metrics.startswith(tuple(f"{host}:" for host in _LOOPBACK)):
            raise InvalidParameterError("metrics", self.metrics, "on loopback, 127.0.0.1:PORT")
        validate.at_least(0, max_loss_ratio=self.max_loss_ratio)


def load_config(path: Path) -> NodeConfig:
    """Read ``node.toml``.

    Raises:
        InputFileError: It is missing, or not TOML.
        ConfigError: It has an unknown key, lacks one, or one is of the wrong type.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputFileError(f"{path}: not TOML ({error})") from None
    limits = content.pop("limits", {})
    if not isinstance(limits, dict):
        raise ConfigError(f"{path}: limits must be a table")
    values = _checked(NodeConfig, content, str(path), folder=path.parent)
    return NodeConfig(**values, limits=Limits(**_checked(Limits, limits, f"{path} [limits]")))


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Return the two parts of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidParameterError(name, address, "host:port")
    return host.strip("[]"), int(port)


def _checked(kind: type[Any], content: dict[str, Any], where: str, folder: Path | None = None) -> dict[str, Any]:
    """Return keyword arguments for ``kind``; its own fields say which keys there are and of which type."""
    types = get_type_hints(kind)
    names = {entry.name: entry for entry in fields(kind) if entry.name != "limits"}
    for key in content.keys() - names.keys():
        raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(names))}")
    missing = [name for name, entry in names.items() if entry.default is MISSING and name not in content]
    if missing:
        raise ConfigError(f"{where}: lacks {missing[0]!r}")
    return {key: _value(key, value, types[key], where, folder) for key, value in content.items()}


def _value(key: str, value: object, wanted: Any, where: str, folder: Path | None) -> Any:
    if folder is not None and wanted in {Path, Path | None} and isinstance(value, str):
        return folder / value
    if wanted is float and type(value) in {int, float}:
        return float(value)  # type: ignore[arg-type]
    if wanted in {bool, int} and type(value) is wanted:
        return value
    if wanted == str | None and isinstance(value, str):
        return value
    need = wanted.__name__ if wanted in {bool, int, float} else "text"
    raise ConfigError(f"{where}: {key} = {value!r}: must be {need}")
