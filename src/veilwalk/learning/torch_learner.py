"""Any torch module as a learner. The only place that imports torch.

The module gives the structure alone: its parameters and buffers come in with every call and go out again, so that
nothing is remembered here. Everything runs on the CPU, on one thread, seeded by the node's own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from veilwalk.learning._api import Array, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._data import checked_partition
from veilwalk.learning._sgd import check_sizes, draw_batch, mean_scores

_BLOCK_ROWS = 1024


def _plain_descent(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@dataclass(frozen=True, kw_only=True)
class TorchLearner:
    """A classifier made of any ``nn.Module`` that takes flat float32 rows and returns logits.

    On the command line name a function of ``n_features`` and ``n_classes`` that returns one.

    Attributes:
        module_fn: Makes the module; reshape flat rows in it, for example with ``nn.Unflatten(1, (1, 28, 28))``.
        loss: Mean loss of logits and labels, in nats.
        optimizer_fn: Makes the optimiser of a list of tensors; its state stays at the node.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has.
        local_steps: Steps of one visit.
    """

    module_fn: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy
    optimizer_fn: Callable[[list[Tensor]], torch.optim.Optimizer] = _plain_descent
    batch_size: int = 32
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_sizes(batch_size=self.batch_size, local_steps=self.local_steps)

    @cached_property
    def _module(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            return self.module_fn()

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the parameters and buffers of a new module, its own random draws seeded by ``rng``."""
        with _reproducible(rng):
            module = self.module_fn()
        named = [*module.named_parameters(), *module.named_buffers()]
        return {name: tensor.detach().numpy().copy() for name, tensor in named}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` steps of the optimiser on ``data``."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        loss, seen = 0.0, 0
        with _reproducible(ctx.rng):
            tensors = {name: torch.tensor(value) for name, value in params.items()}
            learnt = {
                name: tensors[name].requires_grad_() for name, p in self._module.named_parameters() if p.requires_grad
            }
            optimizer = self.optimizer_fn(list(learnt.values()))
            _restore(optimizer, learnt, ctx)
            self._module.train()
            for _ in range(self.local_steps):
                features, labels = draw_batch(data, self.batch_size, ctx.rng)
                optimizer.zero_grad(set_to_none=True)
                found = self.loss(self._logits(tensors, features), torch.tensor(labels))
                found.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                loss, seen = float(found.detach()), seen + len(labels)
            _keep(optimizer, learnt, ctx)
        # In the order of ``params``: the token's layout is fixed.
        moved = {name: tensors[name].detach().numpy() for name in params}
        return UpdateResult(params=moved, num_examples=seen, metrics={"loss": loss})

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` (nats) and the ``accuracy`` on ``data``."""
        losses, hits = np.zeros(len(data)), np.zeros(len(data), dtype=np.bool_)
        with _one_thread(), torch.no_grad():
            tensors = {name: torch.tensor(value) for name, value in params.items()}
            self._module.eval()
            for start in range(0, len(data), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                labels = data.labels[block]
                logits = self._logits(tensors, data.features[block])
                # A loss is a mean: it stands for every row of its block.
                losses[block] = float(self.loss(logits, torch.tensor(labels)))
                hits[block] = logits.argmax(dim=1).numpy() == labels
        return mean_scores(losses, hits)

    def _logits(self, tensors: Mapping[str, Tensor], features: Array) -> Tensor:
        # Buffers that a layer changes (running means) are changed in ``tensors``, never in the module.
        made: Tensor = torch.func.functional_call(self._module, dict(tensors), (torch.tensor(features),))
        return made


def _restore(optimizer: torch.optim.Optimizer, learnt: Mapping[str, Tensor], ctx: StepContext) -> None:
    for name, tensor in learnt.items():
        start = f"optimizer/{name}/"
        kept = {key.removeprefix(start): torch.tensor(v) for key, v in ctx.state.items() if key.startswith(start)}
        if kept:
            optimizer.state[tensor] = kept


def _keep(optimizer: torch.optim.Optimizer, learnt: Mapping[str, Tensor], ctx: StepContext) -> None:
    for name, tensor in learnt.items():
        for key, value in optimizer.state[tensor].items():
            if value is not None:
                ctx.state[f"optimizer/{name}/{key}"] = torch.as_tensor(value).detach().numpy().copy()


@contextmanager
def _reproducible(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch from ``rng`` inside, and leave its global stream as it was."""
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order only: the same bits on any number of cores."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def partition_of_dataset(dataset: Any) -> Partition:
    """Return the rows and labels of a torch ``Dataset`` of (features, label) pairs, flat and float32."""
    rows = [dataset[index] for index in range(len(dataset))]
    features = np.stack([np.asarray(row[0]) for row in rows]) if rows else np.zeros((0, 1))
    return checked_partition("torch dataset", features, np.array([int(row[1]) for row in rows], dtype=np.int64))
