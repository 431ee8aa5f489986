"""A node's own settings: ``node.toml``. Paths are relative to the file; unknown keys are refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from veilwalk.core import validate
from veilwalk.core.config import decode, read_toml
from veilwalk.core.errors import InvalidParameterError
from veilwalk.node.link import Limits

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
    return decode(NodeConfig, read_toml(path), where=str(path), folder=path.parent, dashes=False)


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Return the two parts of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidParameterError(name, address, "host:port")
    return host.strip("[]"), int(port)
