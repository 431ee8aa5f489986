"""``veilwalk watch``, ``export`` and ``predict``: a run in the browser, its model as a file, and applied to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._options import File, Text, argument, flag, option
from veilwalk.cli._output import print_records
from veilwalk.core.config import read_json
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.records import write_atomically
from veilwalk.core.tables import csv_table

if TYPE_CHECKING:
    from veilwalk.learning import Array, Params

_MODEL_FILES = {".npz", ".safetensors"}
_MOST_CLASSES = 30
_SOURCE = "The folder of a run or a cluster, or a node"
_SHOWN_NAMES = 5
_CLASS_COLUMNS = {
    "class": "{name}",
    ">rows": "{rows}",
    ">recall": "{recall:.1%}",
    ">predicted": "{predicted}",
    ">precision": "{precision:.1%}",
}

Algorithm = Annotated[Text, option("Of a training run.", "NAME", "private-walk")]
Unfinished = Annotated[bool, flag("--unfinished", "Take the newest model where there is no finished one.")]
AllowCode = Annotated[
    bool, flag("--allow-code", "Import the learner that the folder names, module:Class: trust its maker.")
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A trained model, and what is known of the data it is for.

    Attributes:
        params: Named arrays.
        learner: The learner's spec.
        facts: The record's account of the data: features, classes, names, ranges; empty where there is no record.
        seed: Seed of its run, by which rows were held out.
        data: The spec of its training rows.
    """

    params: Params
    learner: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    data: str = ""

    @property
    def n_features(self) -> int:
        """Numbers in a row; without a record, the number of columns of the first matrix."""
        matrices = [array for array in self.params.values() if array.ndim == 2]
        return int(self.facts.get("features") or (matrices[0].shape[1] if matrices else 0))

    @property
    def n_classes(self) -> int:
        """Classes, 0 for real labels; without a record, the number of rows of the last array, and 0 for one row."""
        if "classes" in self.facts:
            return int(self.facts["classes"])
        last = len(list(self.params.values())[-1])
        return 0 if last == 1 else last

    def require_consent(self, *, allow_code: bool) -> None:
        """Refuse a learner that is code of the folder's maker, unless the user allows it."""
        if rooms.learning.is_own_learner(self.learner) and not allow_code:
            need = "allowed by --allow-code: its code is imported and run, so trust whoever made this folder"
            raise InvalidParameterError("learner", self.learner, need)


def watch(
    folder: Annotated[Path, argument("FOLDER", "The --out of train or cluster up.")],
    *,
    export: Annotated[File, option("Write the page as one file that needs nothing, and stop.", "PAGE.html")] = None,
    wait: Annotated[bool, flag("--wait", "The run may begin later.")] = False,
    host: Annotated[str, option("Where to serve; others than loopback let others in.", "ADDRESS")] = "127.0.0.1",
    port: Annotated[int, option("Port to serve at; 0: any that is free.")] = 0,
    allow_host: Annotated[list[str] | None, option("Also answer under this name; may be repeated.", "NAME")] = None,
) -> None:
    """Show a run in a browser, live or again.

    The walk on the network, what was learnt, what an observer can infer, and the price: live while it is made, a replay
    afterwards. Prints an address with a secret in it; nobody else can open it, and the page asks no other machine for
    anything. Ctrl-C ends it.

    Example: veilwalk watch run --export page.html
    """
    if not wait and not folder.exists():
        raise ConfigError(f"{folder} does not exist; --wait waits for a run to begin there")
    feed = rooms.watch.Feed(rooms.watch.open_source(folder, wait=wait))
    if export is not None:
        typer.echo(f"wrote {rooms.watch.export_page(feed.gather(), export)}")
        return
    rooms.watch.serve(feed, host=host, port=port, hosts=allow_host or (), announce=typer.echo)


def export(
    source: Annotated[Path, argument("RUN|CLUSTER|node.toml", f"{_SOURCE}.")],
    *,
    to: Annotated[Path, option("Where to: .npz, .safetensors, .pt or .onnx.", "FILE")],
    algorithm: Algorithm = None,
    unfinished: Unfinished = False,
    allow_code: AllowCode = False,
) -> None:
    """Write a trained model to a file.

    Named arrays (.npz; .safetensors, an extra; .pt, a state_dict of torch), or a graph that runs by itself (.onnx, an
    extra; softmax, linear, mlp and torch modules). Only you can read the file.

    A run of train --out: veilwalk export run --to model.npz

    A node, running or not: veilwalk export clinic-a1/node.toml --to model.onnx
    """
    suffixes = rooms.learning.MODEL_SUFFIXES
    if to.suffix not in suffixes:
        raise InvalidParameterError("to", str(to), f"a file that ends in {', '.join(suffixes)}")
    model = _read_trained(source, algorithm, unfinished=unfinished)
    if to.suffix == ".onnx":
        # Only a graph needs to know what the learner computes.
        model.require_consent(allow_code=allow_code)
    sizes = {"n_features": model.n_features, "n_classes": model.n_classes}
    rooms.learning.save_model(to, model.params, learner=model.learner, **sizes)
    shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in model.params.items())
    typer.echo(f"wrote {to}: {shapes if len(model.params) <= 8 else f'{len(model.params)} arrays'}")


def predict(
    source: Annotated[Path, argument("RUN|CLUSTER|node.toml|MODEL", f"{_SOURCE}, or a file of export.")],
    *,
    data: Annotated[str, option("Rows: csv:FILE, parquet:FILE or npz:FILE; digits, mnist:DIR: test part.", "SPEC")],
    to: Annotated[File, option("Where the predictions go.", "FILE.csv")] = None,
    learner: Annotated[Text, option("Of a model file: the learner that it was trained with.", "SPEC")] = None,
    algorithm: Algorithm = None,
    unfinished: Unfinished = False,
    allow_code: AllowCode = False,
) -> None:
    """Apply a trained model to rows.

    Prints how right it is where they have labels. Rows of a training run's or cluster's model are scaled as its
    training rows were. Other models take them as they are. Only you can read the file of predictions.

    Example: veilwalk predict run --data csv:new.csv --to predictions.csv
    """
    if source.suffix in _MODEL_FILES:
        if learner is None:
            raise InvalidParameterError("learner", None, "given with a model file: what it was trained with")
        model = Model(params=rooms.learning.load_model(source), learner=learner)
    else:
        if learner is not None:
            raise InvalidParameterError("learner", learner, "left out: it is of model files")
        model = _read_trained(source, algorithm, unfinished=unfinished)
        model.require_consent(allow_code=allow_code)
    scaler = rooms.learning.Scaler.from_facts(model.facts)
    features, labels = rooms.learning.load_rows(
        data, n_features=model.n_features, seed=model.seed, scaler=scaler, trained_on=model.data
    )
    if features.shape[1] != model.n_features:
        raise InvalidParameterError("data", data, f"rows of {model.n_features} features (not {features.shape[1]})")
    trained = rooms.learning.make_learner(model.learner, n_features=model.n_features, n_classes=model.n_classes)
    rooms.learning.require_arrays(trained, model.params, spec=model.learner)
    outputs = rooms.learning.predict(trained, model.params, features)
    if scaler.kind != "none" or not model.facts:
        # Not among the results.
        how = f"scaled as in training, by {scaler.kind}" if model.facts else "taken as they are: no record says more"
        typer.echo(f"note: rows are {how}", err=True)
    rows, summary = (_predict_classes if model.n_classes else _predict_numbers)(model, outputs, labels)
    if to is not None:
        write_atomically(to, csv_table(rows), mode=0o600)
        typer.echo(f"wrote {to}: {len(rows)} rows")
    typer.echo(summary)


def _read_trained(source: Path, algorithm: str | None, *, unfinished: bool) -> Model:
    """Return the model of a run, a cluster or a node."""
    if not source.exists():
        raise InputFileError(f"{source} does not exist: need the folder of a run or cluster, or a node.toml")
    if (source / "run.json").exists():
        folder = rooms.training.RunFolder(source)
        params = folder.model(*([] if algorithm is None else [algorithm]), unfinished=unfinished)
        spec, facts = folder.spec(), _read_facts(source / "record.json")
        # Where it was left to fit the noise it is of this kind, too.
        learner, data = spec.learner or "softmax", spec.learning.data
        return Model(params=params, learner=learner, facts=facts, seed=spec.seed, data=data)
    if algorithm is not None:
        raise InvalidParameterError("algorithm", algorithm, "left out: it is of training runs")
    if source.is_dir() and not (source / "cluster.json").exists():
        if not (source / "node.toml").exists():
            raise ConfigError(f"{source} holds neither a training run nor a cluster nor a node.toml")
        source /= "node.toml"
    model = rooms.node.node_model(source, unfinished=unfinished)
    for remark in filter(None, (model.remark, model.ends and f"SHA-256 of what ended: {', '.join(model.ends)}")):
        typer.echo(f"note: {remark}", err=True)
    return Model(params=model.params, learner=model.learner, facts=_read_facts(source / "data.json"))


def _read_facts(path: Path) -> dict[str, Any]:
    """Return what a record, or the folder of a cluster, says of the data; nothing where there is no such file."""
    return dict(read_json(path, {"data"})["data"]) if path.exists() else {}


def _predict_classes(model: Model, outputs: Array, labels: Array | None) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each prediction, and a summary of all of them."""
    from scipy import stats

    names = [str(name) for name in model.facts.get("class_names", range(model.n_classes))]
    rows: list[dict[str, Any]] = [
        {"row": row, "predicted": names[kind], "probability": f"{outputs[row, kind]:.6g}"}
        for row, kind in enumerate(outputs.argmax(axis=1))
    ]
    if labels is None:
        return rows, f"{len(rows)} rows predicted; they have no labels"
    truth = [str(label) for label in labels.tolist()]
    if not set(truth) & set(names):
        # A file does not say what its classes are called.
        of_rows, of_model = (", ".join(sorted(set(some))[:_SHOWN_NAMES]) for some in (truth, names))
        none = f"none of their labels ({of_rows}) is a class of the model ({of_model})"
        return rows, f"{len(rows)} rows predicted; {none}: how right it is cannot be said"
    for row, label in zip(rows, truth, strict=True):
        row |= {"label": label, "correct": int(row["predicted"] == label)}
    counts, predicted = Counter(truth), Counter(row["predicted"] for row in rows)
    hits = Counter(row["label"] for row in rows if row["correct"])
    # Classes of the model in its order, then those that it does not know.
    classes = list(dict.fromkeys([*names, *sorted(counts)]))
    if len(classes) <= _MOST_CLASSES:
        shares = {"recall": counts, "precision": predicted}
        cells = [
            {"name": name, "rows": counts[name], "predicted": predicted[name]}
            | {key: hits[name] / whole[name] if whole[name] else None for key, whole in shares.items()}
            for name in classes
        ]
        print_records("by class", _CLASS_COLUMNS, cells)
    low, high = stats.binomtest(hits.total(), len(rows)).proportion_ci(0.95)
    commonest = max(classes, key=counts.__getitem__)
    return rows, (
        f"accuracy {hits.total() / len(rows):.2%} on {len(rows)} rows (95% interval {low:.2%} to {high:.2%}); always "
        f"saying {commonest}, the commonest class here, would be right for {counts[commonest] / len(rows):.2%}"
    )


def _predict_numbers(model: Model, outputs: Array, labels: Array | None) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each prediction in the target's own unit, and a summary of all of them."""
    import numpy as np

    low, high = model.facts.get("target_range") or (0.0, 1.0)
    numbers = low + (high - low) * outputs
    rows: list[dict[str, Any]] = [
        {"row": row, "predicted": f"{number:.6g}"} for row, number in enumerate(numbers.tolist())
    ]
    if labels is None:
        return rows, f"{len(rows)} rows predicted; they have no labels"
    truth = labels.astype(np.float64)
    for row, label in zip(rows, truth.tolist(), strict=True):
        row["label"] = f"{label:.6g}"
    square = float(np.square(numbers - truth).mean())
    spread = float(np.square(truth - truth.mean()).mean())
    r2 = f"; r2 {1 - square / spread:.4f}" if spread else ""
    return rows, f"mean squared error {square:.6g} on {len(rows)} rows{r2}"
