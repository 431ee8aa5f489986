"""Who attacks: every observer is one line in ``OBSERVERS``. What one sees stands in its ``sees``."""

from veilwalk.audit.observers._base import Observer, Place
from veilwalk.audit.observers._registry import COALITIONS, OBSERVERS

__all__ = ["COALITIONS", "OBSERVERS", "Observer", "Place"]
