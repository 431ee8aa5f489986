"""Keeps a run in a folder, and passes its evaluations on while it lasts: to a table, a log and trackers.

``docs/reference/training.md`` describes the files. ``metrics.csv`` and ``metrics.jsonl`` exist from the first
evaluation on, and are the same after a stop. A tracker receives scores of the model and costs, and never who trained,
nor when; ``examples/trackers.py`` has adapters for wandb, trackio and mlflow.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from veilwalk.core.config import read_json, read_toml
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, RecordError
from veilwalk.core.files import lock_file
from veilwalk.core.progress import Progress
from veilwalk.core.records import Record, append_line, plain, read_lines, write_atomically
from veilwalk.core.rooms import import_extra
from veilwalk.core.spec import Spec
from veilwalk.core.tables import csv_table
from veilwalk.core.version import __version__
from veilwalk.learning import Params, Point, candidate_models, load_checkpoint, save_model
from veilwalk.training._spec import PRIVATE, TRAIN, RunSpec

#: Called once for every evaluation: the algorithm, and the evaluation.
Track = Callable[[str, Point], None]
# The table is written whole each time: not more often than anybody reads it.
_TABLE_S = 0.5
_FORMAT = "veilwalk-run-1"
_LOCK = "run.lock"
_CONFIG_HEAD = "# veilwalk train --config THIS_FILE does the same again.\n"
# Libraries that may change the last digit of a result.
_LIBRARIES = ("numpy", "scipy", "numba", "torch", "scikit-learn")


class RunFolder(AbstractContextManager["RunFolder"]):
    """A folder that belongs to one set of settings, and from ``open`` to the end of a ``with`` to one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __exit__(self, *_: object) -> None:
        """Let other processes in again. A process that is killed does so too."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def trace(self) -> Path:
        """The walk."""
        return self.path / "trace.npz"

    def checkpoint(self, algorithm: str) -> Path:
        """Where an algorithm keeps its state."""
        return self.path / "checkpoints" / f"{algorithm}.npz"

    @property
    def started(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "run.json").exists()

    def open(self, spec: RunSpec, *, resume: bool) -> list[str]:
        """Begin a run here, or go on with the one there is; return warnings.

        A folder with a run is only touched with ``resume``, and only by the same settings; one that another process
        has open is left alone.
        """
        self.check(resume=resume)
        if self._lock is None:
            path = self.path / _LOCK
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = lock_file(path)
            except BlockingIOError:
                need = "wait for it, or choose another"
                raise RecordError(f"{self.path}: another process trains in this folder: {need}") from None
            except OSError as error:
                raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
        # Whoever held it may have begun, or ended, meanwhile.
        self.check(resume=resume)
        if not self.started:
            write_atomically(self.path / "config.toml", (_CONFIG_HEAD + spec.to_toml(TRAIN)).encode())
            started = {"format": _FORMAT, "seed": spec.seed, "settings": spec.digest, "versions": _versions()}
            # Last: a folder with this file is complete enough to go on from.
            write_atomically(self.path / "run.json", (json.dumps(started, indent=2) + "\n").encode())
            return []
        # Drafts that a killed writer has left; whole files never begin with a dot.
        for folder in (self.path, self.path / "checkpoints", self.path / "parts"):
            for draft in folder.glob(".*.*.*"):
                draft.unlink(missing_ok=True)
        about = read_json(self.path / "run.json", {"format", "settings", "versions"})
        if about["format"] != _FORMAT:
            raise InputFileError(f"{self.path / 'run.json'}: format {about['format']} is not {_FORMAT}")
        if about["settings"] != spec.digest:
            old, new = self.spec().params(TRAIN), spec.params(TRAIN)
            others = "; ".join(f"{key} = {old[key]}, not {new[key]}" for key in new if old[key] != new[key])
            raise ConfigError(f"{self.path} holds a run with other settings ({others or 'of another version'})")
        before, now = about["versions"], _versions()
        changed = [f"{name} {before[name]}, now {now.get(name)}" for name in before if before[name] != now.get(name)]
        return [f"begun with other versions, so bits may differ: {'; '.join(changed)}"] if changed else []

    def spec(self, changes: Mapping[str, Any] | None = None) -> RunSpec:
        """Return the specification of the run here, with ``changes``."""
        path = self.path / "config.toml"
        return TRAIN.read(changes or {}, start=TRAIN.read(read_toml(path), where=str(path)))

    def read_part(self, name: str) -> dict[str, Any] | None:
        """Return a part of the result that was computed before, or None."""
        path = self.path / "parts" / f"{name}.json"
        return read_json(path, advice=": remove it to compute it again") if path.exists() else None

    def write_part(self, name: str, part: Mapping[str, Any]) -> None:
        """Store a part of the result."""
        write_atomically(self.path / "parts" / f"{name}.json", json.dumps(plain(part), allow_nan=False).encode())

    def model(self, algorithm: str = PRIVATE, *, unfinished: bool = False) -> Params:
        """Return the model that an algorithm ended with, of several the best; ``unfinished``: or came to so far."""
        if not self.started:
            raise ConfigError(f"{self.path} holds no run")
        path = self.checkpoint(algorithm)
        if not path.exists():
            there = ", ".join(sorted(entry.stem for entry in path.parent.glob("*.npz"))) or "none yet"
            raise InvalidParameterError("algorithm", algorithm, f"one that {self.path} has a model of: {there}")
        state = load_checkpoint(path, identity=None)
        if state.finished is None and not unfinished:
            need = "resume it, or ask for the unfinished model (--unfinished)"
            raise ConfigError(f"{self.path}: {algorithm} is not finished, {state.done} updates are made: {need}")
        return candidate_models(state.honest_models)[state.points[-1].chosen]

    def finish(self, record: Record, rows: Sequence[Mapping[str, Any]], model: Params) -> None:
        """Write the model, the record and its table."""
        save_model(self.path / "model.npz", model)
        write_atomically(self.path / "record.json", record.to_json().encode())
        write_atomically(self.path / "metrics.csv", csv_table(rows))

    def check(self, *, resume: bool) -> None:
        """Refuse to begin where there is something, and to resume where there is nothing."""
        if self.started and not resume:
            raise ConfigError(f"{self.path} holds a run already: resume it, or choose another folder")
        if resume and not self.started:
            raise ConfigError(f"{self.path} holds no run to resume")
        # What a run that was killed in its first moment has left does not count.
        own = {"config.toml", _LOCK}
        others = [path for path in self.path.glob("[!.]*") if path.name not in own]
        if not self.started and (others or (self.path.exists() and not self.path.is_dir())):
            raise ConfigError(f"{self.path} is not an empty folder and holds no run: choose another folder")


def _versions() -> dict[str, str]:
    versions = {"veilwalk": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def list_scores(spec: RunSpec, name: str, point: Point) -> dict[str, Any]:
    """Return an evaluation as a row of ``metrics.csv``: a score that is called like a column is renamed.

    ``round`` counts updates, ``peer`` -1 is the average of all models in flight, ``time`` is in modelled seconds.
    """
    kind, _, value = (spec.learning.partition or "").partition(":")
    row = {
        "algorithm": name,
        "dataset": spec.learning.data,
        "partitioner": kind,
        "alpha": value,
        "peer": -1,
        "round": point.update,
        "time": point.seconds,
        "accuracy": "" if point.accuracy is None else point.accuracy,
        "loss": point.loss,
        "hops": point.hops,
        "bytes": point.sent_bytes,
    }
    others = {f"score_{key}" if key in row else key: score for key, score in point.scores.items()}
    return row | dict(sorted(others.items()))


class MetricsLog:
    """Passes every evaluation of a run on once: to a tracker, and to both files where the run has a folder."""

    def __init__(self, folder: Path | None, spec: RunSpec, progress: Progress, track: Track | None) -> None:
        """Continue the files of the folder; a last line that a kill has cut is removed."""
        self._folder, self._spec, self._progress, self._track = folder, spec, progress, track
        self._points: dict[tuple[str, int], Point] = {}
        self._written = 0.0
        if folder is None or not (path := folder / "metrics.jsonl").exists():
            return
        lines, end = read_lines(path)
        os.truncate(path, end)
        try:
            for line in lines:
                algorithm = line.pop("algorithm")
                self._points[algorithm, line["update"]] = Point(**line)
        except (TypeError, KeyError) as error:
            raise InputFileError(f"{path} cannot be read ({error}): remove it to begin it anew") from error

    def report(self, algorithm: str, done: int, total: int, point: Point) -> None:
        """Show an evaluation, and pass on one that was not reported before: now, or before the run was stopped."""
        accuracy = f", loss {point.loss:.4g}" if point.accuracy is None else f", accuracy {point.accuracy:.1%}"
        self._progress(algorithm, done, total, f"{point.hops} hops{accuracy}")
        if (algorithm, point.update) in self._points:
            return
        self._points[algorithm, point.update] = point
        if self._folder is not None:
            append_line(self._folder / "metrics.jsonl", {"algorithm": algorithm, **asdict(point)})
            if time.monotonic() - self._written >= _TABLE_S:
                rows = [list_scores(self._spec, name, known) for (name, _), known in self._points.items()]
                write_atomically(self._folder / "metrics.csv", csv_table(rows))
                self._written = time.monotonic()
        if self._track is not None:
            self._track(algorithm, point)


def point_values(point: Point) -> dict[str, float]:
    """Return the numbers of an evaluation by name: loss, accuracy where there is one, all scores, and costs."""
    scores = {"loss": point.loss} | ({} if point.accuracy is None else {"accuracy": point.accuracy})
    costs = {"hops": point.hops, "sent_bytes": point.sent_bytes, "seconds_modelled": point.seconds}
    return scores | dict(point.scores) | costs


@contextmanager
def open_trackers(specs: Iterable[str], params: Mapping[str, Any]) -> Iterator[Track]:
    """Yield one callback for all trackers, each ``tensorboard`` or ``tensorboard:FOLDER``; close them at the end.

    Each writes event files with one scalar ``ALGORITHM/NAME`` for each number. They are opened at the first evaluation:
    the folder of the run, which may hold them, is there by then.
    """
    folders = []
    for spec in (Spec.parse(text, parameter="track", files=("tensorboard",)) for text in specs):
        if spec.name != "tensorboard" or spec.options:
            raise spec.refuse("tensorboard or tensorboard:FOLDER; in Python any function")
        folders.append(spec.argument or "veilwalk")
    # A library that is missing is refused before anything is trained.
    library: Any = import_extra("tensorboardX", "tensorboard") if folders else None
    writers, opened = list[Any](), ExitStack()

    def report(algorithm: str, point: Point) -> None:
        try:
            for folder in folders[len(writers) :]:
                writers.append(opened.enter_context(closing(library.SummaryWriter(logdir=folder, flush_secs=10))))
                writers[-1].add_text("settings", "\n\n".join(f"{key} = {value}" for key, value in params.items()))
            for writer in writers:
                for name, value in point_values(point).items():
                    writer.add_scalar(f"{algorithm}/{name}", value, point.update)
        except Exception as error:
            # A full disk, or a folder that cannot be written.
            raise ConfigError(f"--track failed: {' '.join(str(error).split()) or type(error).__name__}") from error

    with opened:
        yield report
