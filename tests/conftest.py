"""Settings every test shares."""

from __future__ import annotations

import signal

from hypothesis import settings

# The same examples everywhere, and no time limit: a loaded machine must not turn into a failed property.
settings.register_profile("house", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("house")

# Started in the background, tests inherit a Ctrl-C that is ignored, and so would every process they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
