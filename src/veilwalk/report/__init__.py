"""Figures and tables, drawn from records and nothing else."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.report._audit import audit_figures, collusion_figures
    from veilwalk.report._figures import figure_files
    from veilwalk.report._frontier import frontier_files, recipients_files
    from veilwalk.report._sweep import sweep_files
    from veilwalk.report._training import training_report
else:
    __getattr__, __all__ = open_room(__name__)
