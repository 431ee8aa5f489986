"""The tables and figures under ``docs/reference``, written again from nothing."""
