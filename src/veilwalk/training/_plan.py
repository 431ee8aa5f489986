"""What a run will take, told before it starts: sizes of model, messages and checkpoints, and the time of an update."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from veilwalk.learning import (
    Array,
    apply_update,
    guarded,
    init_generator,
    params_bytes,
    sealed_bytes,
)
from veilwalk.training._scenario import Scenario
from veilwalk.training._settings import PRIVATE, TrainSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will take.

    Attributes:
        model_bytes: The arrays of the model.
        message_bytes: A sealed message that carries it.
        state_bytes: What a node's learner keeps, by a trial update; 0 where none was made.
        update_s: Seconds of that update on this machine, right now; 0 likewise.
        checkpoint_bytes: Of each algorithm the largest file that its checkpoint can become. While it is written, as
            much again on disk, and in memory.
    """

    model_bytes: int
    message_bytes: int
    state_bytes: int
    update_s: float
    checkpoint_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """All checkpoints together."""
        return sum(self.checkpoint_bytes.values())


def plan_run(scenario: Scenario, settings: TrainSettings, *, trial: bool = True) -> Plan:
    """Return what a run will take.

    Args:
        scenario: What is trained.
        settings: How.
        trial: Make one update, by the node with most rows, to see what its learner keeps and how long it takes.
    """
    learner = guarded(scenario.learner)
    first = learner.init_params(init_generator(settings.seed))
    size, nodes = params_bytes(first), scenario.graph.n_nodes
    sent = params_bytes(first, payload=scenario.payload)
    state: dict[str, Array] = {}
    took = 0.0
    if trial:
        largest = scenario.partitions[int(scenario.partitions.sizes.argmax())]
        began = time.perf_counter()
        apply_update(learner, first, largest, seed=settings.seed, node=0, step=0, state=state)
        took = time.perf_counter() - began
    kept = params_bytes(state)
    visited, tokens = min(nodes, settings.updates), settings.tokens
    tested = settings.acceptance is not None
    sizes: dict[str, int] = {}
    for name in (PRIVATE, *settings.comparisons):
        match name:
            case "central":
                sizes[name] = size + kept
            case "gossip":
                sizes[name] = nodes * (size + kept)
            case _:
                # Nodes that test what they receive keep their own last model of each token.
                held = min(visited * tokens, settings.updates) if tested else 0
                spoilt = tokens if tested or settings.poisoning is not None else 0
                sizes[name] = (tokens + spoilt + held) * size + visited * kept
    return Plan(
        model_bytes=size,
        message_bytes=sealed_bytes(sent, recipients=scenario.scheme.recipients),
        state_bytes=kept,
        update_s=took,
        checkpoint_bytes=sizes,
    )
