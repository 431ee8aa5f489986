"""Where compiled kernels are kept: not beside the code, whence no uninstall would take them."""

from __future__ import annotations

import re
from pathlib import Path

import numba
import pytest
from tests.helpers.half_kernel import half_kernel

PACKAGE = Path(__file__).parents[3] / "src" / "veilwalk"


def kept_in(folder: Path) -> Path:
    """Compile a kernel whose code lies in ``folder``; return where numba put it."""
    half = half_kernel(folder, decorator="veilwalk.engine")
    assert half(3) == 1.5
    place = Path(half.stats.cache_path)
    assert len(list(place.glob("*.nbc"))) == 1
    return place


def test_kernels_are_kept_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version in a folder of its own; the user's own kernels, with numba's decorator, stay where they were."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = kept_in(tmp_path)
    assert place.parent.parent == tmp_path / "cache" / "veilwalk"
    assert place.parent.name.startswith("kernels-")
    assert not list((tmp_path / "__pycache__").glob("*.nb?"))
    assert vars(numba.config)["CACHE_LOCATOR_CLASSES"] == ""


def test_environments_share_kernels_of_equal_sources_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code in another folder is not compiled again; other code of the same name is."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    halves = []
    for folder, divisor in (("first", 2), ("second", 2), ("third", 4)):
        place = tmp_path / folder / "kernels"
        place.mkdir(parents=True)
        halves.append(half_kernel(place, decorator="veilwalk.engine", divisor=divisor))
    assert [half(3) for half in halves] == [1.5, 1.5, 0.75]
    assert [sum(half.stats.cache_hits.values()) for half in halves] == [0, 1, 0]


def test_a_folder_that_is_named_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert kept_in(tmp_path).parent == tmp_path / "named"


def test_without_a_cache_folder_numba_looks_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be made, as in a container without a home; then beside the code, if that can be written."""
    (tmp_path / "cache").write_text("a file is no folder")
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert kept_in(tmp_path) == tmp_path / "__pycache__"


def test_a_user_without_a_home_has_no_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert kept_in(tmp_path) == tmp_path / "__pycache__"


def test_no_kernel_of_ours_is_kept_elsewhere() -> None:
    """Every module that compiles uses the decorator that this file is about."""
    numbas = re.compile(r"numba\.njit|from numba import .*\bnjit\b")
    assert [path.name for path in PACKAGE.rglob("*.py") if numbas.search(path.read_text())] == ["_njit.py"]
