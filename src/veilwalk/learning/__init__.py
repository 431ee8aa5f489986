"""Learners, data, partitions and training along a walk.

Every module is imported when a name of it is first asked for: a node, which only makes updates, starts without
compiled walks and SciPy.
"""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.learning._acceptance import Acceptance, Held, Poison
    from veilwalk.learning._contract import (
        ALGORITHMS,
        MEAN,
        ROUND_ALGORITHMS,
        Array,
        Learner,
        Params,
        Partition,
        StepContext,
        UpdateMod,
        UpdateResult,
        average_params,
        candidate_models,
        choose_model,
        init_generator,
        is_finite,
        params_norm,
        subtract_params,
        update_generator,
    )
    from veilwalk.learning._data import (
        SITE,
        Data,
        Scaler,
        data_of,
        data_of_sites,
        describe_scaling,
        load_data,
        load_rows,
        require_fit,
        scale_data,
        scale_like,
        scatter_data,
    )
    from veilwalk.learning._learners import (
        LEARNERS,
        DescentLearner,
        LinearLearner,
        MlpLearner,
        SoftmaxLearner,
        check_learner,
        guarded,
        is_own_learner,
        list_options,
        make_learner,
        set_local_steps,
    )
    from veilwalk.learning._mechanism import (
        NOISE_BUDGET,
        USUAL_GRADIENT,
        Protection,
        ProtectionRequest,
        RunSize,
        describe_privacy,
        epsilon_of,
        noise_for,
    )
    from veilwalk.learning._model import MODEL_SUFFIXES, load_model, predict, require_arrays, save_model, score_sites
    from veilwalk.learning._partition import (
        PARTITION_KINDS,
        Partitioner,
        Partitions,
        make_partitions,
        parse_partition_spec,
    )
    from veilwalk.learning._trace import (
        LINES,
        CostModel,
        TrainingTrace,
        central_trace,
        fedavg_peers,
        fedavg_trace,
        gossip_trace,
        make_ledger,
        params_bytes,
        plain_trace,
        sealed_bytes,
        sparse_gossip_trace,
        trace_of,
    )
    from veilwalk.learning._training import (
        LEARNER_FAILED,
        Point,
        Stopping,
        Tell,
        Training,
        TrainingState,
        TrainingTask,
        apply_update,
        evaluation_points,
        load_checkpoint,
        read_progress,
        save_checkpoint,
        train,
    )
    from veilwalk.learning.flower_learner import PARTITIONS, app_learner, from_flower, partition_numbers
    from veilwalk.learning.peft_learner import from_peft
    from veilwalk.learning.torch_learner import TorchLearner
else:
    __getattr__, __all__ = open_room(__name__)
