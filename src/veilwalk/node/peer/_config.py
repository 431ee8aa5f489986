"""A node's own settings: ``node.toml``. Paths are relative to the file; unknown keys are refused by name.

A node of several runs has a table ``[[run]]`` for each, with what is the run's own; all else is the node's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veilwalk.core import validate
from veilwalk.core.config import decode, read_toml
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.node.link import Limits
from veilwalk.node.peer._log import check_log

#: Keys of a table of a run.
OF_A_RUN = ("name", "manifest", "law", "data", "test", "state", "learner", "starts", "max_loss_ratio", "training_s")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}", re.ASCII)
# An update that takes longer will never end.
_LEAST_TRAINING_S, _TRAINING_DWELLS = 600.0, 10
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Where a node finds what it needs for one run, and what is up to itself alone.

    Attributes:
        name: What its operator calls the run, where the node has several; empty where it has one.
        keys: Directory of its keys.
        password_file: File whose first line opens them.
        root: The root's public key.
        roster: The signed roster; a new version put in its place is followed.
        manifest: The signed run manifest; followed as well.
        data: This node's examples, ``.npz`` with ``features`` and ``labels``.
        state: Folder of its custody.
        law: The destination law, ``.npz``, where the manifest names a file and not a rule.
        test: The run's public test set, ``.npz`` too, where the manifest names one.
        listen: ``host:port`` to listen on, where it is not the roster's address.
        metrics: ``host:port`` for health and metrics, on loopback; none unless given.
        metrics_public: Whether that may be an address that others reach, as in a container.
        log: How events are written, ``json`` or ``text``.
        log_level: Which are: ``info`` and above, ``warning`` and above, or ``error``.
        learner: Consent to a learner of the manifest's that is not one of ours, by its text.
        starts: Make the run's first walk.
        max_loss_ratio: Refuse models whose loss on this node's data is more than so many times the least of those
            accepted here; 0: as the manifest says.
        training_s: Seconds that an update may take before it is given up; 0: ten dwells of the run, and ten minutes at
            least.
        limits: Patience and quotas.
    """

    keys: Path
    root: Path
    roster: Path
    manifest: Path
    data: Path
    state: Path
    name: str = ""
    law: Path | None = None
    password_file: Path | None = None
    test: Path | None = None
    listen: str | None = None
    metrics: str | None = None
    metrics_public: bool = False
    log: str = "json"
    log_level: str = "info"
    learner: str | None = None
    starts: bool = False
    max_loss_ratio: float = 0.0
    training_s: float = 0.0
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("listen", "metrics"):
            address = getattr(self, name)
            if address is not None:
                host_and_port(name, address)
        local = self.metrics is None or self.metrics.startswith(tuple(f"{host}:" for host in _LOOPBACK))
        if not local and not self.metrics_public:
            raise InvalidParameterError("metrics", self.metrics, "on loopback, 127.0.0.1:PORT, or metrics_public true")
        check_log(self.log_level, self.log)
        validate.at_least(1 if self.max_loss_ratio > 0 else 0, max_loss_ratio=self.max_loss_ratio)
        validate.at_least(0, training_s=self.training_s)
        if self.state.resolve() == self.keys.resolve():
            raise InvalidParameterError("state", str(self.state), "another folder than keys: one day it is emptied")

    def training_limit_s(self, dwell_s: float) -> float:
        """Return how long an update may take where messages dwell so long: a trial of the learner fits into that."""
        return self.training_s or max(_LEAST_TRAINING_S, _TRAINING_DWELLS * dwell_s)


def load_configs(path: Path) -> tuple[NodeConfig, ...]:
    """Read ``node.toml``: the settings of every run, in the order of their tables; of one without tables, of its one.

    Raises:
        InputFileError: It is missing, or not TOML.
        ConfigError: It has an unknown key, lacks one, or one is of the wrong type; or two runs cannot be told apart.
    """
    content, where = read_toml(path), str(path)
    tables = content.pop("run", None)
    if tables is None:
        _refuse_keys(content, ["name"], where, "in a [[run]] table")
        return (_decoded(content, path, where),)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        raise InvalidParameterError(f"{where}: run", tables, "one or more tables, [[run]]")
    _refuse_keys(content, OF_A_RUN, where, "in each of the [[run]] tables")
    return _told_apart([_of_table(content, table, path) for table in tables], where)


def load_config(path: Path, run: str | None = None) -> NodeConfig:
    """Read the settings of one run of ``node.toml``: of its only one, or of the one called ``run``.

    Raises:
        InputFileError, ConfigError: As :func:`load_configs`; or there are several runs and none is named, or not that.
    """
    configs = load_configs(path)
    names = ", ".join(config.name for config in configs)
    if run is None:
        if len(configs) > 1:
            raise ConfigError(f"{path} has several runs: run must be one of {names}")
        return configs[0]
    for config in configs:
        if config.name == run:
            return config
    raise InvalidParameterError("run", run, f"one of {names}" if names else f"left out: {path} has one run, of no name")


def _of_table(common: Mapping[str, Any], table: Mapping[str, Any], path: Path) -> NodeConfig:
    where = f"{path} [[run]]"
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameterError(f"{where} name", name, "1 to 40 letters, digits, _ . -")
    _refuse_keys(table, set(table) - set(OF_A_RUN), f"{where} {name}", f"one of {', '.join(OF_A_RUN)}")
    return _decoded({**common, **table}, path, f"{where} {name}")


def _decoded(content: Mapping[str, Any], path: Path, where: str) -> NodeConfig:
    return decode(NodeConfig, content, where=where, folder=path.parent, dashes=False)


def _refuse_keys(content: Mapping[str, Any], keys: Iterable[str], where: str, need: str) -> None:
    for key in sorted(content.keys() & set(keys)):
        raise ConfigError(f"{where}: key {key!r}: must be {need}")


def _told_apart(configs: Sequence[NodeConfig], where: str) -> tuple[NodeConfig, ...]:
    """Return the runs; refuse two of one name, and two that would write to one folder, or be one."""
    for key in ("name", "state", "manifest"):
        seen: dict[object, int] = {}
        for number, config in enumerate(configs, 1):
            value = getattr(config, key)
            first = seen.setdefault(value if key == "name" else value.resolve(), number)
            if first != number:
                same = f"have the same {key}, {value}"
                raise ConfigError(f"{where}: [[run]] tables {first} and {number} {same}: must differ")
    return tuple(configs)


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Return the two parts of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidParameterError(name, address, "host:port")
    return host.strip("[]"), int(port)
