"""Any torch module as a learner. Only this and ``_torch_parts`` import torch.

The module gives the structure, and what is frozen: all else comes in with every call and goes out again, so that
nothing is remembered here. Everything runs on the CPU, on one thread, seeded by the node's own stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Params, Partition, StepContext, UpdateResult
from veilwalk.learning._data import checked_partition
from veilwalk.learning._descent import check_sizes, draw_batch, fit_scores, mean_scores
from veilwalk.learning._rows import RowProtection
from veilwalk.learning._torch_parts import (
    IGNORED,
    frozen_digest,
    give_gradients,
    keep,
    named_tensors,
    one_thread,
    reproducible,
    require_rows_apart,
    restore,
    travelling,
    usual_loss,
)

_BLOCK_ROWS = 1024
# Of what a module draws for itself and never trains: the same for everybody, whatever the run's seed.
_FROZEN_SEED = 0

#: Outputs and targets to a loss.
Loss = Callable[[Tensor, Tensor], Tensor]
#: All outputs and targets to scores by name.
Metric = Callable[[Tensor, Tensor], Mapping[str, float]]


def _plain_descent(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@dataclass(frozen=True, kw_only=True, repr=False)
class TorchLearner:
    """A model made of any ``nn.Module``: for classes, real numbers, or tokens.

    It is given flat float32 rows, and returns logits or, for regression, one number a row. On the command line name a
    function of ``n_features`` and ``n_classes`` (0 for regression) that returns one.

    Attributes:
        module_fn: Makes the module; reshape flat rows in it, for example with ``nn.Unflatten(1, (1, 28, 28))``.
        pair_fn: Makes of rows and labels what the module is given and the targets that its outputs are held against;
            rows and labels as they are where nothing is said. For next tokens:
            ``lambda rows, labels: (rows[:, :-1].long(), rows[:, 1:].long())``.
        loss: Mean loss of outputs and targets. Where nothing is said, the squared error of real targets, and else the
            cross-entropy in nats, classes in the last axis of the outputs; a target of -100 is left out.
        metric: Scores by name of all outputs and targets, instead of ``accuracy`` for classes and ``r2`` for real
            numbers.
        class_weights: How much each class counts in the cross-entropy that is descended. What is reported is not
            weighted, and ``balanced_accuracy``, the mean over classes, stands beside it.
        optimizer_fn: Makes the optimiser of a list of tensors; its state stays at the node.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has. 0: always all.
        local_steps: Steps of one visit.
        train_only: Names of what is trained and travels, with ``*`` for any letters, separated by commas; all else of
            the module is frozen, stays where it is, and must be the same everywhere.
        frozen: SHA-256 of what is frozen (:attr:`frozen_digest`); another is refused. Empty asks nothing.
        rows: How single rows are protected in every step; None: not.
    """

    module_fn: Callable[[], nn.Module]
    pair_fn: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    loss: Loss | None = None
    metric: Metric | None = None
    class_weights: tuple[float, ...] | None = None
    optimizer_fn: Callable[[list[Tensor]], torch.optim.Optimizer] = _plain_descent
    batch_size: int = 32
    local_steps: int = 1
    train_only: str = "*"
    frozen: str = ""
    rows: RowProtection | None = None

    def __post_init__(self) -> None:
        check_sizes(local_steps=self.local_steps)
        validate.integer(batch_size=self.batch_size)
        validate.at_least(0, batch_size=self.batch_size)
        if self.class_weights is not None:
            validate.finite(class_weights=sum(self.class_weights))
            validate.at_least(0, class_weights=min(self.class_weights))
            if self.loss is not None:
                raise InvalidParameterError("class_weights", self.class_weights, "left out where there is a loss")

    def __repr__(self) -> str:
        """Return what it is, functions by their names: the same in another process, so that a run can be resumed."""
        said = (f"{one.name}={_shown(getattr(self, one.name))}" for one in dataclasses.fields(self))
        return f"TorchLearner({', '.join(said)})"

    @cached_property
    def _module(self) -> nn.Module:
        with reproducible(_FROZEN_SEED):
            return self.module_fn()

    @cached_property
    def _moving(self) -> list[str]:
        """Names of what travels."""
        moving = travelling(self._module, self.train_only)
        found = frozen_digest(self._module, moving) if self.frozen else ""
        if found != self.frozen:
            raise InvalidParameterError("frozen", self.frozen, f"{found}, as what the module does not train has")
        return moving

    @cached_property
    def _learnt(self) -> list[str]:
        """Names of what the optimiser moves."""
        wanted = [name for name, tensor in self._module.named_parameters() if tensor.requires_grad]
        # No gradient is due to what stays; what is learnt comes in with every call.
        self._module.requires_grad_(requires_grad=False)
        return [name for name in wanted if name in self._moving]

    @property
    def frozen_digest(self) -> str:
        """SHA-256 of what does not travel: all members need the same."""
        return frozen_digest(self._module, self._moving)

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the travelling parameters and buffers of a new module, its own random draws seeded by ``rng``."""
        with reproducible(_drawn_seed(rng)):
            tensors = named_tensors(self.module_fn())
        return {name: tensors[name].detach().numpy().copy() for name in self._moving}

    def loaded(self, params: Params) -> nn.Module:
        """Return a module of its own with ``params`` and what is frozen in it, to predict with or to save."""
        with reproducible(_FROZEN_SEED):
            module = self.module_fn()
        given = {name: torch.tensor(value) for name, value in params.items()}
        module.load_state_dict(module.state_dict() | given)
        return module.eval()

    def protect_rows(self, protection: RowProtection) -> Self:
        """Return the same learner, each step of which clips row by row and adds noise."""
        require_rows_apart(self._module)
        return dataclasses.replace(self, rows=protection)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` steps of the optimiser on ``data``."""
        if not len(data) and not (self.rows and self.rows.noise):
            return UpdateResult(params=params, num_examples=0)
        loss, seen = 0.0, 0
        with reproducible(_drawn_seed(ctx.rng)):
            tensors = self._tensors(params)
            learnt = {name: tensors[name].requires_grad_() for name in self._learnt}
            optimizer = self.optimizer_fn(list(learnt.values()))
            restore(optimizer, learnt, ctx)
            weights = None if self.class_weights is None else torch.tensor(self.class_weights)
            self._module.train()

            def mean_loss(these: Mapping[str, Tensor], rows: Any, labels: Any) -> Tensor:
                return self._loss(*self._outputs({**tensors, **these}, rows, labels), weights)

            for _ in range(self.local_steps):
                features, labels = draw_batch(data, self.batch_size, ctx.rng)
                optimizer.zero_grad(set_to_none=True)
                if self.rows is None:
                    found = mean_loss({}, features, labels)
                    found.backward()  # type: ignore[no-untyped-call]
                    loss = float(found.detach())
                else:
                    batch = torch.tensor(features), torch.tensor(labels)
                    give_gradients(mean_loss, learnt, batch, self.rows, batch_size=self.batch_size, ctx=ctx)
                optimizer.step()
                seen += len(labels)
            keep(optimizer, learnt, ctx)
        # In the order of ``params``: the token's layout is fixed. What a layer changes besides is not noised.
        stays = self.rows is not None and bool(self.rows.noise)
        moved = {
            name: before if stays and name not in learnt else tensors[name].detach().numpy()
            for name, before in params.items()
        }
        return UpdateResult(params=moved, num_examples=seen, metrics={"loss": loss})

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data``, and ``metric``, or ``accuracy``, or ``r2`` where targets are real."""
        losses, outputs, targets = np.zeros(len(data)), [], []
        with one_thread(), torch.no_grad():
            for block, made, wanted in self._blocks(params, data):
                # A loss is a mean: it stands for every row of its block.
                losses[block] = float(self._loss(made, wanted))
                classes = self.metric is None and not wanted.is_floating_point()
                # All logits of a large vocabulary would not fit.
                outputs.append(made.argmax(dim=-1) if classes else made)
                targets.append(wanted)
            if not outputs:
                return mean_scores(losses, losses > 0)
            return self._scores(losses, torch.cat(outputs), torch.cat(targets))

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row; the module is asked once for a block of them."""
        losses: list[float] = []
        with one_thread(), torch.no_grad():
            for _, made, wanted in self._blocks(params, data):
                # Slices: a loss takes rows, be it one.
                losses += [float(self._loss(made[row : row + 1], wanted[row : row + 1])) for row in range(len(wanted))]
        return np.array(losses)

    def _blocks(self, params: Params, data: Partition) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield rows, what the module makes of them and what is wanted, block by block."""
        tensors = self._tensors(params)
        self._module.eval()
        for start in range(0, len(data), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            yield block, *self._outputs(tensors, data.features[block], data.labels[block])

    def _scores(self, losses: FloatArray, outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
        if self.metric is not None:
            return {"loss": float(losses.mean()), **self.metric(outputs, targets)}
        if targets.is_floating_point():
            wanted = targets.double().numpy().ravel()
            return fit_scores(losses, np.square(outputs.double().numpy().ravel() - wanted), wanted)
        counted = (targets != IGNORED).numpy()
        classes, hits = targets.numpy()[counted], (outputs == targets).numpy()[counted]
        scores = dict(mean_scores(losses, hits))
        if self.class_weights is not None:
            found = [float(hits[classes == one].mean()) for one in np.unique(classes)]
            scores["balanced_accuracy"] = sum(found) / len(found)
        return scores

    def _loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return self.loss(outputs, targets) if self.loss is not None else usual_loss(outputs, targets, weights)

    def _tensors(self, params: Params) -> dict[str, Tensor]:
        """Return what came as tensors of their own, and copies of frozen buffers: a layer may write to them."""
        stays = {name: value.clone() for name, value in self._module.named_buffers() if name not in params}
        return stays | {name: torch.tensor(value) for name, value in params.items()}

    def _outputs(
        self, tensors: Mapping[str, Tensor], features: Array | Tensor, labels: Array | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what the module makes of rows, and the targets of it."""
        given = [part if isinstance(part, Tensor) else torch.tensor(part) for part in (features, labels)]
        rows, targets = self.pair_fn(given[0], given[1]) if self.pair_fn is not None else given
        # Buffers that a layer changes (running means) are changed in ``tensors``, never in the module.
        made: Tensor = torch.func.functional_call(self._module, dict(tensors), (rows,))
        # One number a row, beside one label a row: torch would compare every one with every other.
        single = targets.is_floating_point() and made.shape == (*targets.shape, 1)
        return (made.squeeze(-1) if single else made), targets


def _drawn_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def _shown(value: object) -> str:
    if not callable(value):
        return repr(value)
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')}:{name}"


def partition_of_dataset(dataset: Any) -> Partition:
    """Return the rows and labels of a torch ``Dataset`` of (features, label) pairs, flat and float32."""
    rows = [dataset[index] for index in range(len(dataset))]
    features = np.stack([np.asarray(row[0]) for row in rows]) if rows else np.zeros((0, 1))
    return checked_partition("torch dataset", features, np.array([np.asarray(row[1]).item() for row in rows]))
