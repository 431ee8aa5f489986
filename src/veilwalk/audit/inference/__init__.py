"""How posteriors are computed: every way to read return times, and what coalitions and worst cases use."""

from veilwalk.audit.inference._base import Inference, Local, Posterior
from veilwalk.audit.inference._registry import INFERENCES, inference_of

__all__ = ["INFERENCES", "Inference", "Local", "Posterior", "inference_of"]
