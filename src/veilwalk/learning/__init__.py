"""Learners, partitions and training along a walk."""

from veilwalk.learning._api import Array, Learner, Params, Partition, StepContext, UpdateMod, UpdateResult

__all__ = ["Array", "Learner", "Params", "Partition", "StepContext", "UpdateMod", "UpdateResult"]
