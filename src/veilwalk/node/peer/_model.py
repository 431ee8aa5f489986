"""The model that a node holds, read from its own folder, whether it runs or not. For its operator only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import ConfigError, SpoolError
from veilwalk.node.members import Manifest, decode_params, load_root_public_key
from veilwalk.node.peer._assemble import learner_of, public_test
from veilwalk.node.peer._config import NodeConfig, load_config
from veilwalk.node.peer._status import NodeStatus, node_status

if TYPE_CHECKING:
    from veilwalk.learning import Params


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeModel:
    """A model that a node hands out.

    Attributes:
        params: Named arrays.
        learner: The learner's spec.
        remark: Which of several walks it is, and why; empty where there was one.
    """

    params: Params
    learner: str
    remark: str = ""


def node_model(path: Path, *, run: str | None = None, unfinished: bool = False) -> NodeModel:
    """Return the finished model of the node whose ``node.toml`` this is.

    Of several walks it is the best of their ends and their mean, by the loss on the run's public test set. Without such
    a set it is the end of the first walk: the mean of networks may be worse than each of them.

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
    manifest = Manifest.read_signed(config.manifest, load_root_public_key(config.root))
    models = [decode_params(manifest, one) for one in node_status(config.state, with_models=True).models]
    if not models:
        raise SpoolError(f"{config.state}: the model went away meanwhile")
    return _chosen(models, config, manifest)


def _chosen(models: Sequence[Params], config: NodeConfig, manifest: Manifest) -> NodeModel:
    """Return which model of several walks a node hands out."""
    from veilwalk.learning import MEAN, choose_model

    spec = manifest.learner
    if len(models) == 1:
        return NodeModel(params=models[0], learner=spec)
    test = public_test(config, manifest, manifest.rules)
    if test is None:
        remark = f"the first of {len(models)} walks: no public test set says whether their mean is better"
        return NodeModel(params=models[0], learner=spec, remark=remark)
    learner = learner_of(manifest, consent=config.learner)
    name, params = choose_model(models, lambda one: learner.evaluate(one, test))
    chosen = "their mean" if name == MEAN else name
    remark = f"of {len(models)} walks and their mean, {chosen} has the least loss on the public test set"
    return NodeModel(params=params, learner=spec, remark=remark)


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
