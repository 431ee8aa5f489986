"""The model that a node holds, read from its own folder, whether it runs or not. For its operator only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import ConfigError, SpoolError
from veilwalk.node.members import decode_params, load_root_public_key, read_signed_manifest
from veilwalk.node.peer._assemble import learner_spec
from veilwalk.node.peer._config import load_config
from veilwalk.node.peer._status import NodeStatus, node_status

if TYPE_CHECKING:
    from veilwalk.learning import Params


def node_model(path: Path, *, run: str | None = None, unfinished: bool = False) -> tuple[Params, str]:
    """Return the finished model of the node whose ``node.toml`` this is, and the spec of its learner.

    Args:
        path: ``node.toml``; or a folder of a cluster, whose first node that has the finished model is asked.
        run: Of which run, where the node has several.
        unfinished: Before the end, take the newest model that a node has trained itself.

    Raises:
        ConfigError: There is no such model yet.
    """
    configs = [path] if path.is_file() else sorted(path.glob("*/node.toml"))
    chosen, status = _newest(configs, run)
    if status is None or status.iteration == 0:
        raise ConfigError(f"{path}: no model yet")
    if not status.finished and not unfinished:
        need = "wait for the end, or ask for the unfinished model (--unfinished)"
        raise ConfigError(f"{path}: not finished, its newest model has had {status.iteration} updates: {need}")
    config = load_config(chosen, run)
    manifest = read_signed_manifest(config.manifest, load_root_public_key(config.root))
    model = node_status(config.state, with_model=True).model
    if model is None:
        raise SpoolError(f"{config.state}: the model went away meanwhile")
    return decode_params(manifest, model), learner_spec(manifest)


def _newest(configs: Sequence[Path], run: str | None) -> tuple[Path, NodeStatus | None]:
    """Return who has the finished model, or without one the model with most updates."""
    found: list[tuple[bool, int, Path, NodeStatus | None]] = []
    for config in configs:
        try:
            status = node_status(load_config(config, run).state)
        except SpoolError:
            if len(configs) == 1:
                raise
            continue
        found.append((status.finished, status.iteration, config, status))
    if not found:
        return Path(), None
    return max(found, key=lambda one: one[:2])[2:]
