"""Ratios against the peers a user would pick, contenders taking turns in one process."""
