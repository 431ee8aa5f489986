"""Figures and tables, drawn from records and nothing else."""

from veilwalk.report._audit import audit_figures, collusion_figures
from veilwalk.report._figures import figure_files
from veilwalk.report._frontier import frontier_files, recipients_files
from veilwalk.report._sweep import sweep_files
from veilwalk.report._training import training_report

__all__ = [
    "audit_figures",
    "collusion_figures",
    "figure_files",
    "frontier_files",
    "recipients_files",
    "sweep_files",
    "training_report",
]
