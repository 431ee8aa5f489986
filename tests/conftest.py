"""Settings every test shares."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples everywhere, and no time limit: a loaded machine must not turn into a failed property.
settings.register_profile("house", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("house")

# Started in the background, tests inherit a Ctrl-C that is ignored, and so would every process they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A node waits for its disk at every step: what tests throw away is kept in memory, where there is enough of it.
MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 2 << 30  # noqa: S108
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
    room = os.statvfs(MEMORY)
    if room.f_bavail * room.f_frsize >= ENOUGH_BYTES and not room.f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.fixture
def two_threads() -> Iterator[int]:
    """How many threads to set for a second run, two where the machine has them; put back afterwards."""
    import numba

    before = numba.get_num_threads()
    yield min(2, before)
    numba.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every worker begin with some of the long tests: it is given a part of the list, in its order.

    Else one worker has all of them, and the others wait for it at the end. Tests of one file stay together.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files = sorted({item.path for item in items if "e2e" in item.path.parts})
    if workers == 1 or not files:
        return
    others, size = [item for item in items if item.path not in files], -(-len(items) // workers)
    parts = [[item for item in items if item.path in files[worker::workers]] for worker in range(workers)]
    items[:] = []
    for part in parts:
        room = max(size - len(part), 0)
        items += part + others[:room]
        others = others[room:]
    items += others
