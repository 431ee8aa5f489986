"""The run folder: what was asked, by which code, how far it is, and what came out. See docs/reference/training.md."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from veilwalk.core.config import read_toml
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, RecordError
from veilwalk.core.locks import lock_file
from veilwalk.core.records import Record, plain, write_atomically
from veilwalk.core.version import __version__
from veilwalk.learning import Params, Progressed, candidate_models, load_checkpoint, read_progress, save_model
from veilwalk.training._metrics import table
from veilwalk.training._settings import PRIVATE, TrainSettings

_FORMAT = "veilwalk-run-1"
_LOCK = "run.lock"
# Whatever may change the last digit of a result.
_LIBRARIES = ("numpy", "scipy", "numba", "torch", "scikit-learn")


class RunFolder:
    """A folder that belongs to one set of settings, and from ``open`` to ``close`` to one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trace(self) -> Path:
        """The walk."""
        return self.path / "trace.zip"

    def checkpoint(self, algorithm: str) -> Path:
        """Where an algorithm keeps its state."""
        return self.path / "checkpoints" / f"{algorithm}.npz"

    @property
    def started(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "run.json").exists()

    def open(self, settings: TrainSettings, *, resume: bool) -> list[str]:
        """Begin a run here, or go on with the one there is; return warnings.

        A folder with a run is only touched with ``resume``, and only by the same settings; one that another process
        has open is left alone.
        """
        self.check(resume=resume)
        self._hold()
        # Whoever held it may have begun, or ended, meanwhile.
        self.check(resume=resume)
        if not self.started:
            write_atomically(self.path / "config.toml", settings.to_toml().encode())
            started = {"format": _FORMAT, "seed": settings.seed, "settings": settings.digest, "versions": _versions()}
            # Last: a folder with this file is complete enough to go on from.
            write_atomically(self.path / "run.json", (json.dumps(started, indent=2) + "\n").encode())
            return []
        self._sweep()
        about = self._about()
        if about["settings"] != settings.digest:
            raise ConfigError(f"{self.path} holds a run with other settings ({self._difference(settings)})")
        now = _versions()
        changed = [
            f"{name} {old}, now {now.get(name)}" for name, old in about["versions"].items() if old != now.get(name)
        ]
        return [f"begun with other versions, so bits may differ: {'; '.join(changed)}"] if changed else []

    def close(self) -> None:
        """Let other processes in again. A process that is killed does so too."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def settings(self, asked: Mapping[str, Any] | None = None) -> TrainSettings:
        """Return the settings of the run begun here; keys in ``asked`` come instead of its own."""
        return TrainSettings.of(read_toml(self.path / "config.toml") | dict(asked or {}))

    def kept(self, name: str) -> dict[str, Any] | None:
        """Return a part of the result that was computed before, or None."""
        path = self.path / "parts" / f"{name}.json"
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputFileError(f"{path} cannot be read ({error}): remove it to compute it again") from error
        return dict(found)

    def keep(self, name: str, part: Mapping[str, Any]) -> None:
        """Keep a part of the result."""
        text = json.dumps(plain(part), allow_nan=False)
        write_atomically(self.path / "parts" / f"{name}.json", text.encode())

    def progress(self, algorithm: str = PRIVATE) -> Progressed | None:
        """Return how far an algorithm is, None where it has not begun; whoever writes here is not disturbed."""
        return read_progress(self.checkpoint(algorithm))

    def model(self, algorithm: str = PRIVATE, *, unfinished: bool = False) -> Params:
        """Return the model that an algorithm ended with, of several the best; ``unfinished``: or came to so far."""
        if not self.started:
            raise ConfigError(f"{self.path} holds no run")
        path = self.checkpoint(algorithm)
        if not path.exists():
            there = ", ".join(sorted(found.stem for found in path.parent.glob("*.npz"))) or "none yet"
            raise InvalidParameterError("algorithm", algorithm, f"one that {self.path} has a model of: {there}")
        state = load_checkpoint(path, identity=None)
        if state.finished is None and not unfinished:
            need = "resume it, or ask for the unfinished model (--unfinished)"
            raise ConfigError(f"{self.path}: {algorithm} is not finished, {state.done} updates are made: {need}")
        return candidate_models(state.sound)[state.points[-1].chosen]

    def finish(self, record: Record, rows: Sequence[Mapping[str, Any]], model: Params) -> list[Path]:
        """Write the model, the record and its table; return the paths."""
        paths = [self.path / "record.json", self.path / "metrics.csv", self.path / "model.npz"]
        save_model(paths[2], model)
        write_atomically(paths[0], record.to_json().encode())
        write_atomically(paths[1], table(rows))
        return paths

    def check(self, *, resume: bool) -> None:
        """Refuse to begin where there is something, and to resume where there is nothing."""
        if self.started and not resume:
            raise ConfigError(f"{self.path} holds a run already: resume it, or choose another folder")
        if resume and not self.started:
            raise ConfigError(f"{self.path} holds no run to resume")
        if not self.started and self._taken():
            raise ConfigError(f"{self.path} is not an empty folder and holds no run: choose another folder")

    def _hold(self) -> None:
        """Take the lock."""
        if self._lock is not None:
            return
        path = self.path / _LOCK
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_file(path)
        except BlockingIOError:
            need = "wait for it, or choose another"
            raise RecordError(f"{self.path}: another process trains in this folder: {need}") from None
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror or error}") from error

    def _sweep(self) -> None:
        """Remove drafts that a killed writer has left; whole files never begin with a dot."""
        for folder in (self.path, self.path / "checkpoints", self.path / "parts"):
            for draft in folder.glob(".*.*.*"):
                draft.unlink(missing_ok=True)

    def _taken(self) -> bool:
        """Whether something else lies here; what a run killed in its first moment has left does not count."""
        if not self.path.is_dir():
            return self.path.exists()
        early = {"config.toml", _LOCK}
        return any(entry.name not in early and not entry.name.startswith(".") for entry in self.path.iterdir())

    def _about(self) -> dict[str, Any]:
        path = self.path / "run.json"
        try:
            about = json.loads(path.read_text())
            if about["format"] != _FORMAT:
                raise InputFileError(f"{path}: format {about['format']} is not {_FORMAT}")
            return {"settings": str(about["settings"]), "versions": dict(about["versions"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputFileError):
                raise
            raise InputFileError(f"{path} cannot be read ({error})") from error

    def _difference(self, settings: TrainSettings) -> str:
        there, asked = self.settings().to_dict(), settings.to_dict()
        return "; ".join(f"{key} = {there.get(key)}, not {asked[key]}" for key in asked if there.get(key) != asked[key])


def _versions() -> dict[str, str]:
    found = {"veilwalk": __version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
