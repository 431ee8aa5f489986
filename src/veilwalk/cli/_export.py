"""``veilwalk export``: a trained model as a file that others can read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli._models import Algorithm, Unfinished, model_of
from veilwalk.cli._node import RunName
from veilwalk.core.errors import InvalidParameterError


def export(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|CLUSTER|node.toml", help="Whose model: a folder, or a node.", show_default=False),
    ],
    *,
    to: Annotated[Path, typer.Option(metavar="FILE", help="Where to: .npz, .safetensors, .pt or .onnx.")],
    algorithm: Algorithm = None,
    run: RunName = None,
    unfinished: Unfinished = False,
) -> None:
    """Write a trained model to a file.

    Named arrays (.npz; .safetensors, an extra; .pt, a state_dict of torch), or a graph that runs by itself (.onnx, an
    extra; softmax, linear, mlp and torch modules).

    A run of train --out: veilwalk export run --to model.npz

    A node, running or not: veilwalk export clinic-a1/node.toml --to model.onnx
    """
    from veilwalk.learning import MODEL_SUFFIXES, save_model

    if to.suffix not in MODEL_SUFFIXES:
        raise InvalidParameterError("to", str(to), f"a file that ends in {', '.join(MODEL_SUFFIXES)}")
    model = model_of(source, algorithm, run, unfinished=unfinished)
    params = model.params
    save_model(to, params, learner=model.learner, n_features=model.n_features, n_classes=model.n_classes)
    shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in params.items())
    typer.echo(f"wrote {to}: {shapes}" if len(params) <= 8 else f"wrote {to}: {len(params)} arrays")
