"""A node's own settings: ``node.toml``. Paths are relative to the file; unknown keys are refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from veilwalk.core import validate
from veilwalk.core.config import decode, read_toml
from veilwalk.core.errors import InvalidParameterError
from veilwalk.node.link import Limits
from veilwalk.node.peer._log import check_log

_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Where a node finds what it needs, and what is up to itself alone.

    Attributes:
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
        max_loss_ratio: Refuse models that do so many times worse on this node's data than its own last; 0 never.
        limits: Patience and quotas.
    """

    keys: Path
    root: Path
    roster: Path
    manifest: Path
    data: Path
    state: Path
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
        validate.at_least(0, max_loss_ratio=self.max_loss_ratio)


def load_config(path: Path) -> NodeConfig:
    """Read ``node.toml``.

    Raises:
        InputFileError: It is missing, or not TOML.
        ConfigError: It has an unknown key, lacks one, or one is of the wrong type.
    """
    return decode(NodeConfig, read_toml(path), where=str(path), folder=path.parent, dashes=False)


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Return the two parts of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidParameterError(name, address, "host:port")
    return host.strip("[]"), int(port)
