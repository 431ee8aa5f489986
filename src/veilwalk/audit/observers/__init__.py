"""Who attacks: one file for each kind of observer, one line in ``_registry``. What one sees stands in its ``sees``."""

from veilwalk.audit.observers._base import Observer, Place
from veilwalk.audit.observers._registry import COALITIONS, OBSERVERS

__all__ = ["COALITIONS", "OBSERVERS", "Observer", "Place"]
