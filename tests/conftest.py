"""Settings every test shares."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same examples everywhere, and no time limit: a loaded machine must not turn into a failed property.
settings.register_profile("house", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("house")

# Started in the background, tests inherit a Ctrl-C that is ignored, and so would every process they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def two_threads() -> Iterator[int]:
    """How many threads to set for a second run, two where the machine has them; put back afterwards."""
    import numba

    before = numba.get_num_threads()
    yield min(2, before)
    numba.set_num_threads(before)
