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

from veilwalk.core.arrays import FloatArray
from veilwalk.learning._api import Array, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._data import checked_partition
from veilwalk.learning._labels import is_real
from veilwalk.learning._sgd import check_sizes, draw_batch, fit_scores, mean_scores

_BLOCK_ROWS = 1024


def _plain_descent(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@dataclass(frozen=True, kw_only=True)
class TorchLearner:
    """A model made of any ``nn.Module`` that takes flat float32 rows and returns logits or, for regression, one number.

    On the command line name a function of ``n_features`` and ``n_classes`` (0 for regression) that returns one.

    Attributes:
        module_fn: Makes the module; reshape flat rows in it, for example with ``nn.Unflatten(1, (1, 28, 28))``.
        loss: Mean loss of outputs and labels; the cross-entropy of classes, in nats, and the squared error of real
            labels where nothing is said.
        metric: Scores by name of all outputs and labels, instead of ``accuracy`` for classes and ``r2`` for real
            labels.
        optimizer_fn: Makes the optimiser of a list of tensors; its state stays at the node.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has.
        local_steps: Steps of one visit.
    """

    module_fn: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    metric: Callable[[Tensor, Tensor], Mapping[str, float]] | None = None
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

    def loaded(self, params: Params) -> nn.Module:
        """Return a module of its own with ``params`` in it, to predict with or to save."""
        with torch.random.fork_rng(devices=[]):
            module = self.module_fn()
        given = {name: torch.tensor(value) for name, value in params.items()}
        module.load_state_dict(module.state_dict() | given)
        return module.eval()

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
                found = self._loss(self._outputs(tensors, features, labels), labels)
                found.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                loss, seen = float(found.detach()), seen + len(labels)
            _keep(optimizer, learnt, ctx)
        # In the order of ``params``: the token's layout is fixed.
        moved = {name: tensors[name].detach().numpy() for name in params}
        return UpdateResult(params=moved, num_examples=seen, metrics={"loss": loss})

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data``, and ``metric``, or ``accuracy``, or ``r2`` where labels are real."""
        losses, outputs = np.zeros(len(data)), []
        with _one_thread(), torch.no_grad():
            tensors = {name: torch.tensor(value) for name, value in params.items()}
            self._module.eval()
            for start in range(0, len(data), _BLOCK_ROWS):
                block = slice(start, start + _BLOCK_ROWS)
                labels = data.labels[block]
                outputs.append(self._outputs(tensors, data.features[block], labels))
                # A loss is a mean: it stands for every row of its block.
                losses[block] = float(self._loss(outputs[-1], labels))
            return self._scores(losses, torch.cat(outputs) if outputs else torch.zeros(0, 1), data.labels)

    def _scores(self, losses: FloatArray, outputs: Tensor, labels: Array) -> Mapping[str, float]:
        if self.metric is not None:
            return {"loss": float(losses.mean()), **self.metric(outputs, torch.tensor(labels))}
        if is_real(labels):
            return fit_scores(losses, np.square(outputs.double().numpy() - labels), labels)
        return mean_scores(losses, outputs.argmax(dim=1).numpy() == labels)

    def _loss(self, outputs: Tensor, labels: Array) -> Tensor:
        usual = nn.functional.mse_loss if is_real(labels) else nn.functional.cross_entropy
        return (self.loss or usual)(outputs, torch.tensor(labels))

    def _outputs(self, tensors: Mapping[str, Tensor], features: Array, labels: Array) -> Tensor:
        # Buffers that a layer changes (running means) are changed in ``tensors``, never in the module.
        made: Tensor = torch.func.functional_call(self._module, dict(tensors), (torch.tensor(features),))
        # One number a row, beside one label a row: torch would compare every one with every other.
        return made.squeeze(1) if is_real(labels) and made.shape == (len(labels), 1) else made


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
    return checked_partition("torch dataset", features, np.array([np.asarray(row[1]).item() for row in rows]))
