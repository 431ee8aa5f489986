"""A node's own settings: ``node.toml``. Paths are relative to the file; unknown keys are refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from veilwalk.core import validate
from veilwalk.core.config import decode, read_toml
from veilwalk.core.errors import InvalidParameterError
from veilwalk.node.link import Limits
from veilwalk.node.peer._observe import check_log

# An update that takes longer will never end.
_LEAST_TRAINING_S, _TRAINING_DWELLS = 600.0, 10
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


def load_config(path: Path) -> NodeConfig:
    """Read ``node.toml``.

    Raises:
        InputFileError: It is missing, or not TOML.
        ConfigError: It has an unknown key, lacks one, or one is of the wrong type.
    """
    content = read_toml(path)
    if "run" in content:
        need = "left out: each run is a node with settings of its own (docs/how-to/operate-nodes.md)"
        raise InvalidParameterError(f"{path}: run", content["run"], need)
    return decode(NodeConfig, content, where=str(path), folder=path.parent, dashes=False)


def host_and_port(name: str, address: str) -> tuple[str, int]:
    """Return the two parts of ``host:port``."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidParameterError(name, address, "host:port")
    return host.strip("[]"), int(port)
