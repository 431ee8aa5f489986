"""Evaluations told to others while a run goes on: one callback, and adapters for the trackers that people have.

A tracker is anything that can be called with the name of an algorithm and a :class:`~veilwalk.learning.Point`. What it
is told are scores of the model and what was spent: never who trained, nor when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.learning import Point

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")
#: What pip installs for each, by the extra of the same name.
_MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}

#: Called once for every evaluation: the algorithm, and what was found.
Track = Callable[[str, Point], None]


class Tracker(Protocol):
    """A :data:`Track` that is closed at the end."""

    def __call__(self, algorithm: str, point: Point) -> None:
        """Hear of an evaluation."""

    def close(self) -> None:
        """Write what is left."""


def values_of(point: Point) -> dict[str, float]:
    """Return the numbers of an evaluation by name: loss, accuracy if there is one, all scores, what was spent."""
    found = {"loss": point.loss} | ({} if point.accuracy is None else {"accuracy": point.accuracy})
    spent = {"hops": point.hops, "sent_bytes": point.sent_bytes, "seconds_modelled": point.seconds}
    return found | dict(point.scores) | spent


class TensorBoardTracker:
    """Event files that TensorBoard reads, written by tensorboardX: one scalar ``ALGORITHM/NAME`` for each number."""

    def __init__(self, folder: str, settings: Mapping[str, Any]) -> None:
        self._writer = _library("tensorboard").SummaryWriter(logdir=folder, flush_secs=10)
        self._writer.add_text("settings", "\n\n".join(f"{key} = {value}" for key, value in settings.items()))

    def __call__(self, algorithm: str, point: Point) -> None:
        """Write the numbers of an evaluation."""
        for name, value in values_of(point).items():
            self._writer.add_scalar(f"{algorithm}/{name}", value, point.update)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()


class WandbTracker:
    """Whatever has ``init``, ``log`` and ``finish`` as Weights & Biases has: wandb itself, and trackio."""

    def __init__(self, library: Any, project: str, settings: Mapping[str, Any]) -> None:
        self._library = library
        library.init(project=project, config=dict(settings))

    def __call__(self, algorithm: str, point: Point) -> None:
        """Log the numbers of an evaluation; algorithms follow one another, so updates are a number of their own."""
        found = {f"{algorithm}/{name}": value for name, value in values_of(point).items()}
        self._library.log(found | {f"{algorithm}/update": point.update})

    def close(self) -> None:
        """End the run there."""
        self._library.finish()


class MlflowTracker:
    """A run of MLflow, in the store that its own settings name (``MLFLOW_TRACKING_URI``, or the folder it is in)."""

    def __init__(self, experiment: str, settings: Mapping[str, Any]) -> None:
        self._library = _library("mlflow")
        self._library.set_experiment(experiment)
        self._library.start_run()
        self._library.log_params(dict(settings))

    def __call__(self, algorithm: str, point: Point) -> None:
        """Log the numbers of an evaluation."""
        found = {f"{algorithm}/{name}": float(value) for name, value in values_of(point).items()}
        self._library.log_metrics(found, step=point.update)

    def close(self) -> None:
        """End the run there."""
        self._library.end_run()


def open_tracker(spec: str, settings: Mapping[str, Any]) -> Tracker:
    """Return the tracker that ``NAME`` or ``NAME:WHERE`` asks for.

    Args:
        spec: ``tensorboard:FOLDER``, ``wandb:PROJECT``, ``trackio:PROJECT`` or ``mlflow:EXPERIMENT``; without a
            word after the name it is ``veilwalk``.
        settings: What the run was asked for, to be shown there.
    """
    name, _, where = spec.partition(":")
    place = where or "veilwalk"
    with _theirs(spec):
        match name:
            case "tensorboard":
                return TensorBoardTracker(place, settings)
            case "wandb" | "trackio":
                return WandbTracker(_library(name), place, settings)
            case "mlflow":
                return MlflowTracker(place, settings)
    raise InvalidParameterError("track", spec, f"NAME or NAME:WHERE, of {', '.join(TRACKERS)}")


@contextmanager
def _theirs(spec: str) -> Iterator[None]:
    """Say in one line what a tracker could not do: no server, no store, nobody logged in. It is no fault of ours."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"--track {spec} failed: {said}") from error


@contextmanager
def trackers(specs: Iterable[str], settings: Mapping[str, Any]) -> Iterator[Track]:
    """Yield one callback for all trackers asked for; whatever happens, they are closed."""
    with ExitStack() as stack:
        opened: dict[str, Tracker] = {}
        for spec in specs:
            opened[spec] = open_tracker(spec, settings)
            stack.callback(opened[spec].close)

        def tell(algorithm: str, point: Point) -> None:
            for spec, tracker in opened.items():
                with _theirs(spec):
                    tracker(algorithm, point)

        yield tell


def _library(name: str) -> Any:
    try:
        return import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        library = error.name or _MODULES[name]
        raise ConfigError(f"{library} is not installed here: pip install 'veilwalk[{name}]' brings it") from None
