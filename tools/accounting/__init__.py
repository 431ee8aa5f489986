"""Privacy accounts that no run prints: against one observer who may not know the sender, and noise along the walk."""
