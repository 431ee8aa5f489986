"""Checkpoints: everything a run needs to go on as if nothing had happened, in one file, whole or not at all.

A checkpoint is an ``.npz`` archive of plain arrays and a JSON header; nothing in it is ever executed.
"""

from __future__ import annotations

import io
import json
import math
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError
from veilwalk.core.records import write_atomically
from veilwalk.learning._api import Array, Params
from veilwalk.learning._stopping import Point

_FORMAT = "veilwalk-checkpoint-1"


@dataclass(eq=False, kw_only=True)
class TrainingState:
    """Where a run stands. Random streams are named by node and step, which the trace says, so none needs to be kept.

    Attributes:
        models: Parameters of every model in flight.
        kept: What each node keeps for itself.
        done: Updates made.
        points: Evaluations so far.
        finished: Why the run ended, once it has.
        doors: What nodes keep that test what they receive (:class:`._receiving.Receivers`), flat; empty where none do.
        learner_failures: Updates so far at which the learner failed and noise hid it.
    """

    models: list[Params]
    kept: list[dict[str, Array]]
    done: int = 0
    points: list[Point] = field(default_factory=list)
    finished: str | None = None
    doors: dict[str, Array] = field(default_factory=dict)
    learner_failures: int = 0

    @property
    def sound(self) -> list[Params]:
        """What honest nodes made last of each model; all models in flight where nobody spoils any."""
        if not self.doors:
            return self.models
        return [{name: self.doors[f"sound/{name}"][m] for name in model} for m, model in enumerate(self.models)]


def save_checkpoint(path: Path, state: TrainingState, *, identity: str) -> None:
    """Write ``state`` to ``path``; a reader finds the old file or the new one, never half of it.

    ``identity`` names the run; a checkpoint of another run is refused when read.
    """
    names = list(state.models[0])
    kept = [(node, key) for node, mine in enumerate(state.kept) for key in mine]
    header = {
        "format": _FORMAT,
        "identity": identity,
        "names": names,
        "nodes": len(state.kept),
        "kept": kept,
        "done": state.done,
        "points": [asdict(point) for point in state.points],
        "finished": state.finished,
        "doors": list(state.doors),
        "learner_failures": state.learner_failures,
    }
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header))}
    arrays |= {f"model-{k}": _stacked([model[name] for model in state.models]) for k, name in enumerate(names)}
    arrays |= {f"kept-{k}": state.kept[node][key] for k, (node, key) in enumerate(kept)}
    arrays |= {f"door-{k}": array for k, array in enumerate(state.doors.values())}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(path, buffer.getbuffer())


def _stacked(arrays: list[Array]) -> Array:
    # One large model is not copied to stand alone in a row.
    return np.stack(arrays) if len(arrays) > 1 else arrays[0][None]


def load_checkpoint(path: Path, *, identity: str | None) -> TrainingState:
    """Read a checkpoint of the run called ``identity``; of any run where that is None, to look at and not to go on."""
    try:
        # From memory: NumPy leaves a file open that turns out to be no archive.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays["header"]))
        kind, of = header["format"], header["identity"]
        state = _state(header, arrays)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(
            f"checkpoint {path} cannot be read ({error}): remove it to train from the start"
        ) from error
    if kind != _FORMAT:
        raise InputFileError(f"checkpoint {path}: format {kind} is not {_FORMAT}")
    if identity is not None and of != identity:
        raise ConfigError(f"checkpoint {path} is of another run: choose another folder, or the same settings")
    return state


@dataclass(frozen=True, kw_only=True)
class Progressed:
    """How far a run had come at its last checkpoint: updates made, evaluations, and why it ended, once it has."""

    done: int
    points: tuple[Point, ...]
    finished: str | None


def read_progress(path: Path) -> Progressed | None:
    """Return how far the run with this checkpoint is, without its models; None where there is none yet."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("header.npy") as stream:
            header = json.loads(str(np.lib.format.read_array(stream, allow_pickle=False)))
        points = tuple(Point(**point) for point in header["points"])
        return Progressed(done=int(header["done"]), points=points, finished=header["finished"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InputFileError(f"checkpoint {path} cannot be read ({error})") from error


def _state(header: dict[str, Any], arrays: dict[str, Array]) -> TrainingState:
    stacked = {name: arrays[f"model-{k}"] for k, name in enumerate(header["names"])}
    kept: list[dict[str, Array]] = [{} for _ in range(int(header["nodes"]))]
    for k, (node, key) in enumerate(header["kept"]):
        kept[node][key] = arrays[f"kept-{k}"]
    count = len(next(iter(stacked.values())))
    return TrainingState(
        models=[{name: rows[m].copy() for name, rows in stacked.items()} for m in range(count)],
        kept=kept,
        done=int(header["done"]),
        points=[Point(**point) for point in header["points"]],
        finished=header["finished"],
        # Older checkpoints have none.
        doors={name: arrays[f"door-{k}"] for k, name in enumerate(header.get("doors", ()))},
        learner_failures=int(header.get("learner_failures", 0)),
    )


class Keeper:
    """Writes checkpoints, not too often."""

    def __init__(self, path: Path | None, identity: str, every_s: float) -> None:
        self._path, self._identity, self._every_s = path, identity, every_s
        self._next = -math.inf
        self.saved: int | None = None

    def read(self) -> TrainingState | None:
        """Return the state that was kept, or None."""
        if self._path is None or not self._path.exists():
            return None
        state = load_checkpoint(self._path, identity=self._identity)
        self.saved = state.done
        return state

    def write(self, state: TrainingState, doors: Callable[[], dict[str, Array]] | None) -> None:
        """Keep the state, and what nodes hold that test what they receive, unless it was kept a moment ago."""
        began = time.monotonic()
        if self._path is None or (state.finished is None and began < self._next):
            return
        if doors is not None:
            state.doors = doors()
        save_checkpoint(self._path, state, identity=self._identity)
        ended = time.monotonic()
        # Large states take long to write: at most a tenth of the time goes into it.
        self._next = ended + max(self._every_s, 9 * (ended - began) if self._every_s else 0.0)
        self.saved = state.done

    def where(self) -> str:
        """Say what is left when training cannot go on."""
        return "" if self.saved is None else f"; {self._path} keeps the model after update {self.saved}"
