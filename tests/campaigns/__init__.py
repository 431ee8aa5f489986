"""Kills, pauses, power cuts, bad networks and fuzzing, and what a cluster must keep through all of it."""
