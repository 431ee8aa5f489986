"""Errors, validation, random sources, records, array types."""
