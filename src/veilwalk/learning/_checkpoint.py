"""Checkpoints: everything a run needs to go on as if nothing had happened, in one file, whole or not at all.

A checkpoint is an ``.npz`` archive of plain arrays and a JSON header; nothing in it is ever executed.
"""

from __future__ import annotations

import io
import json
import zipfile
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
    """

    models: list[Params]
    kept: list[dict[str, Array]]
    done: int = 0
    points: list[Point] = field(default_factory=list)
    finished: str | None = None


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
    }
    arrays: dict[str, Any] = {"header": np.array(json.dumps(header))}
    arrays |= {f"model-{k}": _stacked([model[name] for model in state.models]) for k, name in enumerate(names)}
    arrays |= {f"kept-{k}": state.kept[node][key] for k, (node, key) in enumerate(kept)}
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
    )
