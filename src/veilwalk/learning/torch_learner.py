"""Any torch module as a learner. Only this module imports torch.

The module gives the structure, and what is frozen: all else comes in with every call and goes out again, so that
nothing is remembered here. Everything runs on the CPU, on one thread, seeded by the node's own stream.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._contract import Array, Params, Partition, StepContext, UpdateResult, torch_threads
from veilwalk.learning._learners import class_scores, draw_batch, fit_scores
from veilwalk.learning._mechanism import Protection

_BLOCK_ROWS = 1024
#: A target that counts for nothing, as torch has it: what fills up a short sequence.
IGNORED = -100
# Rows whose gradients are held at once: of a model of a million numbers, a quarter of a gigabyte.
_GRADIENT_ROWS = 64
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
    rows: Protection | None = None

    def __post_init__(self) -> None:
        validate.integer(1, local_steps=self.local_steps)
        validate.integer(0, batch_size=self.batch_size)
        if self.class_weights is not None:
            validate.finite(class_weights=sum(self.class_weights))
            validate.at_least(0, class_weights=min(self.class_weights))
            if self.loss is not None:
                raise InvalidParameterError("class_weights", self.class_weights, "left out where there is a loss")

    def __repr__(self) -> str:
        """Return what it is, functions by their names: the same in another process, so that a run can be resumed."""
        values = (f"{item.name}={describe_value(getattr(self, item.name))}" for item in dataclasses.fields(self))
        return f"TorchLearner({', '.join(values)})"

    @cached_property
    def _module(self) -> nn.Module:
        with reproducible(_FROZEN_SEED):
            return self.module_fn()

    @cached_property
    def _moving(self) -> list[str]:
        """Names of what travels."""
        names, patterns = list(named_tensors(self._module)), self.train_only.split(",")
        moving = [name for name in names if any(fnmatchcase(name, pattern.strip()) for pattern in patterns)]
        if not any(name in moving for name, _ in self._module.named_parameters()):
            first = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            need = f"a pattern that some parameter matches, of {first}"
            raise InvalidParameterError("train_only", self.train_only, need)
        digest = hash_frozen(self._module, moving) if self.frozen else ""
        if digest != self.frozen:
            raise InvalidParameterError("frozen", self.frozen, f"{digest}, as what the module does not train has")
        return moving

    @cached_property
    def _learnt(self) -> list[str]:
        """Names of what the optimiser moves."""
        trainable = [name for name, tensor in self._module.named_parameters() if tensor.requires_grad]
        # No gradient is due to what stays; what is learnt comes in with every call.
        self._module.requires_grad_(requires_grad=False)
        return [name for name in trainable if name in self._moving]

    @property
    def frozen_digest(self) -> str:
        """SHA-256 of what does not travel: all members need the same."""
        return hash_frozen(self._module, self._moving)

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the travelling parameters and buffers of a new module, its own random draws seeded by ``rng``."""
        with reproducible(int(rng.integers(2**63))):
            tensors = named_tensors(self.module_fn())
        return {name: tensors[name].detach().numpy().copy() for name in self._moving}

    def loaded(self, params: Params) -> nn.Module:
        """Return a module of its own with ``params`` and what is frozen in it, to predict with or to save."""
        with reproducible(_FROZEN_SEED):
            module = self.module_fn()
        tensors = {name: torch.tensor(value) for name, value in params.items()}
        module.load_state_dict(module.state_dict() | tensors)
        return module.eval()

    def protect_rows(self, protection: Protection) -> Self:
        """Return the same learner, each step of which clips row by row and adds noise."""
        for name, part in self._module.named_modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm):
                need = f"node, or a module without batch normalisation ({name}), which mixes rows: GroupNorm does not"
                raise InvalidParameterError("protect", "record", need)
        return dataclasses.replace(self, rows=protection)

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` steps of the optimiser on ``data``."""
        if not len(data) and not (self.rows and self.rows.noise):
            return UpdateResult(params=params, num_examples=0)
        loss, count = 0.0, 0
        with reproducible(int(ctx.rng.integers(2**63))):
            tensors = self._tensors(params)
            learnt = {name: tensors[name].requires_grad_() for name in self._learnt}
            optimizer = self.optimizer_fn(list(learnt.values()))
            restore_state(optimizer, learnt, ctx)
            weights = None if self.class_weights is None else torch.tensor(self.class_weights)
            self._module.train()

            def mean_loss(these: Mapping[str, Tensor], rows: Any, labels: Any) -> Tensor:
                return self._loss(*self._outputs({**tensors, **these}, rows, labels), weights)

            for _ in range(self.local_steps):
                features, labels = draw_batch(data, self.batch_size, ctx.rng)
                optimizer.zero_grad(set_to_none=True)
                if self.rows is None:
                    batch_loss = mean_loss({}, features, labels)
                    batch_loss.backward()  # type: ignore[no-untyped-call]
                    loss = float(batch_loss.detach())
                else:
                    batch = torch.tensor(features), torch.tensor(labels)
                    self._set_gradients(mean_loss, learnt, batch, self.rows, ctx)
                optimizer.step()
                count += len(labels)
            keep_state(optimizer, learnt, ctx)
        # In the order of ``params``: the token's layout is fixed. What a layer changes besides is not noised.
        stays = self.rows is not None and bool(self.rows.noise)
        moved = {
            name: before if stays and name not in learnt else tensors[name].detach().numpy()
            for name, before in params.items()
        }
        return UpdateResult(params=moved, num_examples=count, metrics={"loss": loss})

    def _set_gradients(
        self,
        loss: Callable[..., Tensor],
        learnt: Mapping[str, Tensor],
        batch: tuple[Tensor, Tensor],
        protection: Protection,
        ctx: StepContext,
    ) -> None:
        """Give every tensor that is learnt the noised mean of the clipped gradients of a batch as its own."""
        totals = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in learnt.items()}
        fixed = {name: tensor.detach() for name, tensor in learnt.items()}

        def of_one(tensors: Mapping[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
            return loss(tensors, row.unsqueeze(0), label.unsqueeze(0))

        each = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0), randomness="different")
        for start in range(0, len(batch[1]), _GRADIENT_ROWS):
            rows = slice(start, start + _GRADIENT_ROWS)
            for gradients in _row_gradients(each, fixed, batch[0][rows], batch[1][rows]):
                exact = {name: gradient.double() for name, gradient in gradients.items()}
                squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in exact.values()])
                shrinks = torch.from_numpy(protection.shrinks(squares.sum(0).sqrt().numpy()))
                for name, gradient in exact.items():
                    # A row whose gradient is not finite counts as none, in every array.
                    gradient[shrinks == 0] = 0.0
                    totals[name] += torch.tensordot(shrinks, gradient, dims=1)
        divisor, deviation = protection.divisor(self.batch_size), protection.deviation(self.batch_size)
        for name, tensor in learnt.items():
            noise = torch.from_numpy(deviation * ctx.normal(tuple(tensor.shape))) if deviation else torch.zeros(())
            tensor.grad = (totals[name] / divisor + noise).to(tensor.dtype)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data``, and ``metric``, or ``accuracy``, or ``r2`` where targets are real."""
        losses, outputs, targets = np.zeros(len(data)), [], []
        with torch_threads(1), torch.no_grad():
            for block, output, target in self._blocks(params, data):
                # A loss is a mean: it stands for every row of its block.
                losses[block] = float(self._loss(output, target))
                classes = self.metric is None and not target.is_floating_point()
                # All logits of a large vocabulary would not fit.
                outputs.append(output.argmax(dim=-1) if classes else output)
                targets.append(target)
            if not outputs:
                return class_scores(losses, losses > 0, losses)
            return self._scores(losses, torch.cat(outputs), torch.cat(targets))

    def example_losses(self, params: Params, data: Partition) -> FloatArray:
        """Return the loss of every row; the module is asked once for a block of them."""
        losses: list[float] = []
        with torch_threads(1), torch.no_grad():
            for _, output, target in self._blocks(params, data):
                # Slices: a loss takes rows, be it a single row.
                rows = (slice(row, row + 1) for row in range(len(target)))
                losses += [float(self._loss(output[row], target[row])) for row in rows]
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
            truth = targets.double().numpy().ravel()
            return fit_scores(losses, np.square(outputs.double().numpy().ravel() - truth), truth)
        counted = (targets != IGNORED).numpy()
        classes, hits = targets.numpy()[counted], (outputs == targets).numpy()[counted]
        # Tokens of a text are uneven by nature: only labels of whole rows are balanced unasked.
        if targets.ndim > 1:
            return {"loss": float(losses.mean()), "accuracy": float(hits.mean())}
        return class_scores(losses, hits, classes, balanced=self.class_weights is not None)

    def _loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the learner's own loss, or the mean squared error of real targets, or else the cross-entropy."""
        if self.loss is not None:
            return self.loss(outputs, targets)
        if targets.is_floating_point():
            return nn.functional.mse_loss(outputs, targets)
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), weights, ignore_index=IGNORED)

    def _tensors(self, params: Params) -> dict[str, Tensor]:
        """Return what came as tensors of their own, and copies of frozen buffers: a layer may write to them."""
        stays = {name: value.clone() for name, value in self._module.named_buffers() if name not in params}
        return stays | {name: torch.tensor(value) for name, value in params.items()}

    def _outputs(
        self, tensors: Mapping[str, Tensor], features: Array | Tensor, labels: Array | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what the module makes of rows, and the targets of it."""
        pair = [part if isinstance(part, Tensor) else torch.tensor(part) for part in (features, labels)]
        rows, targets = self.pair_fn(pair[0], pair[1]) if self.pair_fn is not None else pair
        # Buffers that a layer changes (running means) are changed in ``tensors``, never in the module.
        outputs: Tensor = torch.func.functional_call(self._module, dict(tensors), (rows,))
        # One number a row, beside one label a row: torch would compare each number with every label.
        single = targets.is_floating_point() and outputs.shape == (*targets.shape, 1)
        return (outputs.squeeze(-1) if single else outputs), targets


def describe_value(value: object) -> str:
    """Return a value as text that is the same in another process: of a function its module and name."""
    if not callable(value):
        return repr(value)
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')}:{name}"


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a module, and then its buffers, by name."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def hash_frozen(module: nn.Module, moving: list[str]) -> str:
    """Return the SHA-256 of every tensor that stays, by name, type, shape and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(named_tensors(module).items()):
        if name not in moving:
            array = np.ascontiguousarray(tensor.detach().numpy())
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def restore_state(optimizer: torch.optim.Optimizer, learnt: Mapping[str, Tensor], ctx: StepContext) -> None:
    """Give the optimiser what the node kept of it."""
    for name, tensor in learnt.items():
        start = f"optimizer/{name}/"
        state = {key.removeprefix(start): torch.tensor(v) for key, v in ctx.state.items() if key.startswith(start)}
        if state:
            # Counters stay on the processor, as torch has them.
            optimizer.state[tensor] = {key: v.to(tensor.device) if v.ndim else v for key, v in state.items()}


def keep_state(optimizer: torch.optim.Optimizer, learnt: Mapping[str, Tensor], ctx: StepContext) -> None:
    """Keep the optimiser's state at the node."""
    for name, tensor in learnt.items():
        for key, value in optimizer.state[tensor].items():
            if value is not None:
                ctx.state[f"optimizer/{name}/{key}"] = torch.as_tensor(value).detach().cpu().numpy().copy()


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed torch inside, and leave its global stream as it was."""
    with torch_threads(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _row_gradients(
    each: Callable[..., dict[str, Tensor]], fixed: Mapping[str, Tensor], features: Tensor, labels: Tensor
) -> Iterator[dict[str, Tensor]]:
    """Yield the gradients of the rows of a block: all at once or, where a row makes the module fail, of the others."""
    try:
        yield each(fixed, features, labels)
    except Exception:  # noqa: BLE001  a module may be anybody's code
        for row in range(len(labels)):
            with suppress(Exception):
                yield each(fixed, features[row : row + 1], labels[row : row + 1])
