"""What all tests of training share: results of audits are stored where no other run has left any."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from veilwalk.training import _route


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Store estimates of routes in a folder of this session: those of older code are not read."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        # Not by XDG_CACHE_HOME: compiled kernels, which take half a minute, may stay where they are.
        patch.setattr(_route, "cache_folder", lambda: folder)
        yield
