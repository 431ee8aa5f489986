"""Keeps compiled kernels in the user's cache folder: beside the code, numba's first choice, they outlive an uninstall.

Kernels are named by what they are compiled from, so all environments of a user share them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from veilwalk.core.files import cache_folder
from veilwalk.core.version import __version__

# Packages whose results are stored.
_ROOMS = ("engine", "graphs", "chains", "walks", "design", "audit")
_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(r"^from veilwalk\.(\w+)\.(\w+) import", re.MULTILINE)
# Numba asks these in turn where to keep a kernel.
_LOCATORS = f"{__name__}.KernelLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"


def njit(**options: Any) -> Callable[[Any], Any]:
    """Compile as numba's decorator of this name does; with ``cache``, keep the result in the user's cache folder.

    A folder that NUMBA_CACHE_DIR names comes first, as ever; where the user's cannot be written numba looks further.
    Kernels release the interpreter's lock: a thread that ends the process after Ctrl-C must get it while they run.
    """
    import numba

    settings: Any = numba.config

    def compiled(function: Any) -> Any:
        before = settings.CACHE_LOCATOR_CLASSES
        # Numba asks for it here and now; the user's own kernels are to be kept where they always were.
        settings.CACHE_LOCATOR_CLASSES = before if before or settings.CACHE_DIR else _LOCATORS
        try:
            return numba.njit(**{"nogil": True} | options)(function)
        finally:
            settings.CACHE_LOCATOR_CLASSES = before

    return compiled


class KernelLocator:
    """Tells numba where it keeps a kernel, and of what source it is."""

    def __init__(self, folder: Path, function: Any, file: str) -> None:
        self._folder, self._file = folder / Path(file).parent.name, Path(file)
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, file: str) -> KernelLocator | None:
        """Return the place of a function's kernels; None where the user's cache folder cannot be written."""
        folder = cache_folder()
        if folder is None or not Path(file).is_file():
            return None
        locator = cls(folder / f"kernels-{kernel_stamp()}", function, file)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator

    def ensure_cache_path(self) -> None:
        """Make the folder, and see that it can be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        probe = self._folder / ".writable"
        probe.touch()

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def get_source_stamp(self) -> tuple[str, str]:
        """Return what a kernel that may be used again was compiled from."""
        return kernel_stamp(), hashlib.sha256(self._file.read_bytes()).hexdigest()

    def get_disambiguator(self) -> str:
        """Return what tells functions of one name apart."""
        return str(self._line)


@cache
def source_stamp() -> str:
    """Return the version with a digest of the sources up to ``audit``: it names what is stored by their means."""
    return _stamp(path for room in _ROOMS for path in (_PACKAGE / room).glob("*.py"))


@cache
def kernel_stamp() -> str:
    """Return the version with a digest of all kernels and of what they import: it names what is compiled of them.

    Numba does not see that code in another file has changed, and fails to read kernels whose types have moved.
    """
    kernels = {path for room in _ROOMS for path in (_PACKAGE / room).glob("_kernels*.py")} | {Path(__file__)}
    imports = {
        _PACKAGE / room / f"{name}.py" for path in kernels for room, name in _IMPORT.findall(path.read_text("utf-8"))
    }
    return _stamp(kernels | {path for path in imports if path.is_file()})


def _stamp(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return f"{__version__}-{digest.hexdigest()[:12]}"
