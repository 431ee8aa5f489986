"""``veilwalk export``: a trained model as a file that others can read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilwalk.cli._node import RunName
from veilwalk.core.errors import ConfigError, InvalidParameterError

if TYPE_CHECKING:
    from veilwalk.learning import Params


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|CLUSTER|node.toml", help="Whose model: a folder, or a node.", show_default=False),
    ],
    *,
    to: Annotated[Path, typer.Option(metavar="FILE", help="Where to: .npz, .safetensors or .onnx.")],
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a training run. [default: private-walk]")
    ] = None,
    run: RunName = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Take the newest model where there is no finished one.")
    ] = False,
) -> None:
    """Write a trained model to a file.

    Named arrays (.npz; .safetensors, an extra), or a graph that runs by itself (.onnx, an extra; softmax, linear, mlp).

    A run of train --out: veilwalk export run --to model.npz

    A node, running or not: veilwalk export clinic-a1/node.toml --to model.onnx
    """
    from veilwalk.learning import MODEL_SUFFIXES, save_model

    if to.suffix not in MODEL_SUFFIXES:
        raise InvalidParameterError("to", str(to), f"a file that ends in {', '.join(MODEL_SUFFIXES)}")
    params, learner = _model(source, algorithm, run, unfinished=unfinished)
    save_model(to, params, learner=learner)
    shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in params.items())
    typer.echo(f"wrote {to}: {shapes}" if len(params) <= 8 else f"wrote {to}: {len(params)} arrays")


def _model(source: Path, algorithm: str | None, run: str | None, *, unfinished: bool) -> tuple[Params, str]:
    if (source / "run.json").exists():
        from veilwalk.training import RunFolder

        if run is not None:
            raise InvalidParameterError("run", run, "left out: it is of nodes with several runs")
        folder = RunFolder(source)
        model = folder.model(*([] if algorithm is None else [algorithm]), unfinished=unfinished)
        # Where it was left to fit the noise it is of this kind, too.
        return model, folder.settings().chosen_learner or "softmax"
    if algorithm is not None:
        raise InvalidParameterError("algorithm", algorithm, "left out: it is of training runs")
    if source.is_dir() and not (source / "cluster.json").exists():
        if not (source / "node.toml").exists():
            raise ConfigError(f"{source} holds neither a training run nor a cluster nor a node.toml")
        source /= "node.toml"
    from veilwalk.node import node_model

    return node_model(source, run=run, unfinished=unfinished)
