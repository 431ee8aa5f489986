"""Learners, partitions and training along a walk.

What needs compiled walks or SciPy is imported when it is first asked for: a node, which only makes updates, needs none
of it and starts in half the time.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import lazy_attributes
from veilwalk.learning._acceptance import ACCEPT_USAGE, Acceptance, Held, is_finite
from veilwalk.learning._api import Array, Learner, Params, Partition, StepContext, UpdateMod, UpdateResult
from veilwalk.learning._checkpoint import Progressed, TrainingState, load_checkpoint, read_progress, save_checkpoint
from veilwalk.learning._contract import check_learner
from veilwalk.learning._data import DATA_USAGE, Data, checked_partition, data_of, load_data, require_fit
from veilwalk.learning._factorisation import FactorisationLearner
from veilwalk.learning._guard import guarded
from veilwalk.learning._ledger import CostModel, Ledger, ledger, params_bytes, sealed_bytes
from veilwalk.learning._matching import Candidates, candidate_losses, candidates_bytes, row_losses
from veilwalk.learning._model_file import MODEL_SUFFIXES, load_model, save_model
from veilwalk.learning._models import MEAN, average, candidate_models, choose_model
from veilwalk.learning._mods import ClipUpdate, Decay, GaussianNoise, compose
from veilwalk.learning._numpy_learners import LinearLearner, MlpLearner, SoftmaxLearner
from veilwalk.learning._partition import Partitioner, Partitions, partitions_of
from veilwalk.learning._partitioners import (
    DirichletPartitioner,
    GroupPartitioner,
    IidPartitioner,
    NaturalIdPartitioner,
    PathologicalPartitioner,
    ShardPartitioner,
)
from veilwalk.learning._poison import POISONS, Poison
from veilwalk.learning._predicting import load_rows, predict, require_arrays
from veilwalk.learning._protection import Protection, ProtectionRequest, RunSize
from veilwalk.learning._registry import LEARNERS, LearnerKind, is_own_learner, make_learner
from veilwalk.learning._rows import RowProtection
from veilwalk.learning._scaling import SCALES, Scaler, describe_scaling, scale_data, scale_like
from veilwalk.learning._stopping import Point, Stopping, evaluation_points
from veilwalk.learning._streams import init_generator, update_generator
from veilwalk.learning._training import LEARNER_FAILED, Observe, Tell, Training, TrainingTask, apply_update, train

if TYPE_CHECKING:
    from veilwalk.learning._algorithms import ALGORITHMS, central_trace, gossip_trace, plain_trace
    from veilwalk.learning._partition_graph import GraphCorrelatedPartitioner
    from veilwalk.learning._partition_spec import PARTITION_KINDS, PartitionKind, parse_partition_spec
    from veilwalk.learning._privacy import NodePrivacyAccountant, NoisyUpdate, noise_for
    from veilwalk.learning._trace import TrainingTrace, private_trace, trace_of

_LATE = {
    "_algorithms": ("ALGORITHMS", "central_trace", "gossip_trace", "plain_trace"),
    "_partition_graph": ("GraphCorrelatedPartitioner",),
    "_partition_spec": ("PARTITION_KINDS", "PartitionKind", "parse_partition_spec"),
    "_privacy": ("NodePrivacyAccountant", "NoisyUpdate", "noise_for"),
    "_trace": ("TrainingTrace", "private_trace", "trace_of"),
}

__all__ = [
    "ACCEPT_USAGE",
    "ALGORITHMS",
    "DATA_USAGE",
    "LEARNERS",
    "LEARNER_FAILED",
    "MEAN",
    "MODEL_SUFFIXES",
    "PARTITION_KINDS",
    "POISONS",
    "SCALES",
    "Acceptance",
    "Array",
    "Candidates",
    "ClipUpdate",
    "CostModel",
    "Data",
    "Decay",
    "DirichletPartitioner",
    "FactorisationLearner",
    "GaussianNoise",
    "GraphCorrelatedPartitioner",
    "GroupPartitioner",
    "Held",
    "IidPartitioner",
    "Learner",
    "LearnerKind",
    "Ledger",
    "LinearLearner",
    "MlpLearner",
    "NaturalIdPartitioner",
    "NodePrivacyAccountant",
    "NoisyUpdate",
    "Observe",
    "Params",
    "Partition",
    "PartitionKind",
    "Partitioner",
    "Partitions",
    "PathologicalPartitioner",
    "Point",
    "Poison",
    "Progressed",
    "Protection",
    "ProtectionRequest",
    "RowProtection",
    "RunSize",
    "Scaler",
    "ShardPartitioner",
    "SoftmaxLearner",
    "StepContext",
    "Stopping",
    "Tell",
    "Training",
    "TrainingState",
    "TrainingTask",
    "TrainingTrace",
    "UpdateMod",
    "UpdateResult",
    "apply_update",
    "average",
    "candidate_losses",
    "candidate_models",
    "candidates_bytes",
    "central_trace",
    "check_learner",
    "checked_partition",
    "choose_model",
    "compose",
    "data_of",
    "describe_scaling",
    "evaluation_points",
    "gossip_trace",
    "guarded",
    "init_generator",
    "is_finite",
    "is_own_learner",
    "ledger",
    "load_checkpoint",
    "load_data",
    "load_model",
    "load_rows",
    "make_learner",
    "noise_for",
    "params_bytes",
    "parse_partition_spec",
    "partitions_of",
    "plain_trace",
    "predict",
    "private_trace",
    "read_progress",
    "require_arrays",
    "require_fit",
    "row_losses",
    "save_checkpoint",
    "save_model",
    "scale_data",
    "scale_like",
    "sealed_bytes",
    "trace_of",
    "train",
    "update_generator",
]

__getattr__ = lazy_attributes(__name__, _LATE)
