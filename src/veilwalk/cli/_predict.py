"""``veilwalk predict``: what a trained model says of rows, as a table; and how right it is, where labels are known."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilwalk.cli._models import Algorithm, Model, Unfinished, model_of
from veilwalk.cli._node import RunName
from veilwalk.cli._output import print_table
from veilwalk.core.errors import InvalidParameterError

if TYPE_CHECKING:
    from veilwalk.learning import Array

_MOST_CLASSES = 30
_SHOWN_NAMES = 5


def predict(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|CLUSTER|node.toml|MODEL",
            help="Whose model: a folder, a node, or a file of export (.npz, .safetensors).",
            show_default=False,
        ),
    ],
    *,
    data: Annotated[
        str,
        typer.Option(metavar="SPEC", help="Rows: csv:FILE, parquet:FILE or npz:FILE; digits, mnist:DIR: test part."),
    ],
    to: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="Where the predictions go.")] = None,
    learner: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Of a model file: the learner that it was trained with.")
    ] = None,
    algorithm: Algorithm = None,
    run: RunName = None,
    unfinished: Unfinished = False,
) -> None:
    """Say what a trained model makes of rows.

    And how right it is where they have labels. Rows of a training run's or cluster's model are scaled as its training
    rows were. Other models take them as they are.

    Example: veilwalk predict run --data csv:new.csv --to predictions.csv
    """
    from veilwalk.core.records import write_atomically
    from veilwalk.learning import Scaler, load_rows, make_learner, require_arrays
    from veilwalk.learning import predict as ask

    model = _model(source, learner, algorithm, run, unfinished=unfinished)
    scaler = Scaler.from_facts(model.facts)
    features, labels = load_rows(data, n_features=model.n_features, seed=model.seed, scaler=scaler)
    if features.shape[1] != model.n_features:
        raise InvalidParameterError("data", data, f"rows of {model.n_features} features (not {features.shape[1]})")
    made = make_learner(model.learner, n_features=model.n_features, n_classes=model.n_classes)
    require_arrays(made, model.params, spec=model.learner)
    said = ask(made, model.params, features)
    if scaler.kind != "none" or not model.facts:
        # Not among the results.
        how = f"scaled as in training, by {scaler.kind}" if model.facts else "taken as they are: no record says more"
        typer.echo(f"note: rows are {how}", err=True)
    rows, told = (_classes if model.n_classes else _numbers)(model, said, labels)
    if to is not None:
        stream = io.StringIO()
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(to, stream.getvalue().encode())
        typer.echo(f"wrote {to}: {len(rows)} rows")
    typer.echo(told)


def _model(source: Path, learner: str | None, algorithm: str | None, run: str | None, *, unfinished: bool) -> Model:
    if source.suffix not in {".npz", ".safetensors"}:
        if learner is not None:
            raise InvalidParameterError("learner", learner, "left out: it is of model files")
        return model_of(source, algorithm, run, unfinished=unfinished)
    from veilwalk.learning import load_model

    if learner is None:
        raise InvalidParameterError("learner", None, "given with a model file: what it was trained with")
    return Model(params=load_model(source), learner=learner)


def _classes(model: Model, said: Array, labels: Array | None) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each prediction, and what is to be said of all of them."""
    from scipy import stats

    names = [str(name) for name in model.facts.get("class_names", range(model.n_classes))]
    best = said.argmax(axis=1)
    rows: list[dict[str, Any]] = [
        {"row": row, "predicted": names[one], "probability": f"{said[row, one]:.6g}"} for row, one in enumerate(best)
    ]
    if labels is None:
        return rows, f"{len(rows)} rows predicted; they have no labels"
    truth = [str(label) for label in labels.tolist()]
    if not set(truth) & set(names):
        # A file does not say what its classes are called.
        theirs, ours = (", ".join(sorted(set(some))[:_SHOWN_NAMES]) for some in (truth, names))
        none = f"none of their labels ({theirs}) is a class of the model ({ours})"
        return rows, f"{len(rows)} rows predicted; {none}: how right it is cannot be said"
    hits = [names[one] == label for one, label in zip(best, truth, strict=True)]
    for row, label, hit in zip(rows, truth, hits, strict=True):
        row |= {"label": label, "correct": int(hit)}
    known = sorted(
        set(truth) | set(names), key=lambda name: (name not in names, names.index(name) if name in names else 0)
    )
    counts = {name: truth.count(name) for name in known}
    if len(known) <= _MOST_CLASSES:
        _print_classes(counts, rows)
    low, high = stats.binomtest(sum(hits), len(hits)).proportion_ci(0.95)
    commonest = max(counts, key=lambda name: counts[name])
    return rows, (
        f"accuracy {sum(hits) / len(hits):.2%} on {len(hits)} rows (95% interval {low:.2%} to {high:.2%}); always "
        f"saying {commonest}, the commonest class here, would be right for {counts[commonest] / len(hits):.2%}"
    )


def _print_classes(counts: dict[str, int], rows: list[dict[str, Any]]) -> None:
    """Print what becomes of each class: recall and precision."""
    shown = []
    for name, count in counts.items():
        found = sum(row["correct"] for row in rows if row["label"] == name)
        said = sum(row["predicted"] == name for row in rows)
        recall, precision = (f"{found / of:.1%}" if of else "-" for of in (count, said))
        shown.append((name, str(count), recall, str(said), precision))
    print_table("by class", ("class", ">rows", ">recall", ">predicted", ">precision"), shown)


def _numbers(model: Model, said: Array, labels: Array | None) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each prediction in the target's own unit, and what is to be said of all of them."""
    import numpy as np

    low, high = model.facts.get("target_range") or (0.0, 1.0)
    numbers = low + (high - low) * said
    rows: list[dict[str, Any]] = [{"row": row, "predicted": f"{one:.6g}"} for row, one in enumerate(numbers.tolist())]
    if labels is None:
        return rows, f"{len(rows)} rows predicted; they have no labels"
    truth = labels.astype(np.float64)
    for row, label in zip(rows, truth.tolist(), strict=True):
        row["label"] = f"{label:.6g}"
    square = float(np.square(numbers - truth).mean())
    spread = float(np.square(truth - truth.mean()).mean())
    r2 = f"; r2 {1 - square / spread:.4f}" if spread else ""
    return rows, f"mean squared error {square:.6g} on {len(rows)} rows{r2}"
