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
