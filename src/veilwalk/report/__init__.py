"""Figures and tables, drawn from records and nothing else."""

from veilwalk.report._audit import audit_files, collusion_files
from veilwalk.report._figures import figure_files
from veilwalk.report._walks import walk_files

__all__ = ["audit_files", "collusion_files", "figure_files", "walk_files"]
