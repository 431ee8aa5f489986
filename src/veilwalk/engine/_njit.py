"""Kernels kept in the user's cache folder: beside the code, numba's first choice, they would outlive an uninstall."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veilwalk.core.version import __version__


def njit(**options: Any) -> Callable[[Any], Any]:
    """Compile as numba's decorator of this name does; with ``cache``, keep the result in the user's cache folder.

    A folder that NUMBA_CACHE_DIR names comes first, as ever; where the user's cannot be written numba looks further.
    """
    import numba

    settings: Any = numba.config

    def compiled(function: Any) -> Any:
        named = settings.CACHE_DIR
        # Numba asks for it here and now; the user's own kernels are to be kept where they always were.
        settings.CACHE_DIR = named or _folder()
        try:
            return numba.njit(**options)(function)
        finally:
            settings.CACHE_DIR = named

    return compiled


def _folder() -> str:
    """Return one of this version: numba does not see that what a kernel calls, in another file, has changed."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        # Nobody's: a user whom the machine does not know.
        return ""
    return str(Path(home) / "veilwalk" / f"kernels-{__version__}")
