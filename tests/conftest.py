"""Settings every test shares."""

from __future__ import annotations

from hypothesis import settings

# The same examples everywhere, and no time limit: a loaded machine must not turn into a failed property.
settings.register_profile("house", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("house")
