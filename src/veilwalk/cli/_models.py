"""Whose model: a training run, a cluster, a node, or a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from veilwalk.learning import Params

Algorithm = Annotated[str | None, typer.Option(metavar="NAME", help="Of a training run. [default: private-walk]")]
Unfinished = Annotated[bool, typer.Option("--unfinished", help="Take the newest model where there is no finished one.")]


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A trained model, and what is known of the data it is for.

    Attributes:
        params: Named arrays.
        learner: The learner's spec.
        facts: What the record of its run says of the data: features, classes, names, ranges; empty where there is none.
        seed: Of its run, by which rows were held out.
    """

    params: Params
    learner: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def n_features(self) -> int:
        """Numbers in a row; where nobody says it, as many as the first matrix takes."""
        matrices = [array for array in self.params.values() if array.ndim == 2]
        return int(self.facts.get("features") or (matrices[0].shape[1] if matrices else 0))

    @property
    def n_classes(self) -> int:
        """Classes, 0 for real labels; where nobody says it, as many as the last array has rows, and one is none."""
        if "classes" in self.facts:
            return int(self.facts["classes"])
        last = len(list(self.params.values())[-1])
        return 0 if last == 1 else last


def model_of(source: Path, algorithm: str | None, run: str | None, *, unfinished: bool) -> Model:
    """Return the model of a run, a cluster or a node."""
    if not source.exists():
        raise InputFileError(f"{source} does not exist: need the folder of a run or cluster, or a node.toml")
    if (source / "run.json").exists():
        from veilwalk.training import RunFolder

        if run is not None:
            raise InvalidParameterError("run", run, "left out: it is of nodes with several runs")
        folder = RunFolder(source)
        params = folder.model(*([] if algorithm is None else [algorithm]), unfinished=unfinished)
        settings = folder.settings()
        facts = _facts(source / "record.json")
        # Where it was left to fit the noise it is of this kind, too.
        return Model(params=params, learner=settings.chosen_learner or "softmax", facts=facts, seed=settings.seed)
    if algorithm is not None:
        raise InvalidParameterError("algorithm", algorithm, "left out: it is of training runs")
    if source.is_dir() and not (source / "cluster.json").exists():
        if not (source / "node.toml").exists():
            raise ConfigError(f"{source} holds neither a training run nor a cluster nor a node.toml")
        source /= "node.toml"
    from veilwalk.node import node_model

    model = node_model(source, run=run, unfinished=unfinished)
    if model.remark:
        typer.echo(f"note: {model.remark}", err=True)
    facts = _facts(source / "data.json") if source.is_dir() else {}
    return Model(params=model.params, learner=model.learner, facts=facts)


def _facts(path: Path) -> dict[str, Any]:
    """Return what a record, or the folder of a cluster, says of the data; nothing where there is no such file."""
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text())["data"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(f"{path} cannot be read ({error})") from error
