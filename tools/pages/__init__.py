"""Writes the pages, tables and figures of ``docs``, the manual page and the site."""
