"""Figures and tables, drawn from records and nothing else."""

from veilwalk.report._figures import figure_files

__all__ = ["figure_files"]
