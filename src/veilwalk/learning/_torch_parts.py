"""Parts of a torch learner: which tensors travel, what the optimiser keeps, losses, gradients of single rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor, nn

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import StepContext
from veilwalk.learning._rows import RowProtection

#: A target that counts for nothing, as torch has it: what fills up a short sequence.
IGNORED = -100
# Rows whose gradients are held at once: of a model of a million numbers, a quarter of a gigabyte.
_BLOCK_ROWS = 64

#: The mean loss of tensors by name, on rows and their labels.
Loss = Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a module, and then its buffers, by name."""
    return dict([*module.named_parameters(), *module.named_buffers()])


def travelling(module: nn.Module, patterns: str) -> list[str]:
    """Return the names that match one of the ``patterns``, which commas separate, in the order of the module."""
    names = list(named_tensors(module))
    found = [name for name in names if any(fnmatchcase(name, one.strip()) for one in patterns.split(","))]
    if not any(name in found for name, _ in module.named_parameters()):
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InvalidParameterError("train_only", patterns, f"a pattern that some parameter matches, of {shown}")
    return found


def frozen_digest(module: nn.Module, moving: list[str]) -> str:
    """Return the SHA-256 of every tensor that stays, by name, type, shape and bytes."""
    found = hashlib.sha256()
    for name, tensor in sorted(named_tensors(module).items()):
        if name not in moving:
            array = np.ascontiguousarray(tensor.detach().numpy())
            found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def usual_loss(outputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean squared error where targets are real, else the cross-entropy, classes in the last axis."""
    if targets.is_floating_point():
        return nn.functional.mse_loss(outputs, targets)
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), weights, ignore_index=IGNORED)


def restore(optimizer: torch.optim.Optimizer, learnt: Mapping[str, Tensor], ctx: StepContext) -> None:
    """Give the optimiser what the node kept of it."""
    for name, tensor in learnt.items():
        start = f"optimizer/{name}/"
        kept = {key.removeprefix(start): torch.tensor(v) for key, v in ctx.state.items() if key.startswith(start)}
        if kept:
            optimizer.state[tensor] = kept


def keep(optimizer: torch.optim.Optimizer, learnt: Mapping[str, Tensor], ctx: StepContext) -> None:
    """Keep the optimiser's state at the node."""
    for name, tensor in learnt.items():
        for key, value in optimizer.state[tensor].items():
            if value is not None:
                ctx.state[f"optimizer/{name}/{key}"] = torch.as_tensor(value).detach().numpy().copy()


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Seed torch inside, and leave its global stream as it was."""
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
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


def require_rows_apart(module: nn.Module) -> None:
    """Refuse a module whose output for one row depends on the others of its batch."""
    for name, part in module.named_modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm):
            need = f"node, or a module without batch normalisation ({name}), which mixes rows: GroupNorm does not"
            raise InvalidParameterError("protect", "record", need)


def give_gradients(
    loss: Loss,
    learnt: Mapping[str, Tensor],
    rows: tuple[Tensor, Tensor],
    protection: RowProtection,
    *,
    batch_size: int,
    ctx: StepContext,
) -> None:
    """Give every tensor that is learnt the noised mean of clipped gradients as its own.

    Args:
        loss: Mean loss of what is learnt, by name, on some rows.
        learnt: The tensors to be learnt.
        rows: A batch, features and labels.
        protection: How rows are clipped, and the noise.
        batch_size: Of the learner; 0 for all rows.
        ctx: Where noise is drawn from.
    """
    totals = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in learnt.items()}
    fixed = {name: tensor.detach() for name, tensor in learnt.items()}

    def of_one(tensors: Mapping[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return loss(tensors, row.unsqueeze(0), label.unsqueeze(0))

    each = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0), randomness="different")
    features, labels = rows
    for start in range(0, len(labels), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for gradients in _row_gradients(each, fixed, features[block], labels[block]):
            exact = {name: gradient.double() for name, gradient in gradients.items()}
            squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in exact.values()])
            shrinks = torch.from_numpy(protection.shrinks(squares.sum(0).sqrt().numpy()))
            for name, gradient in exact.items():
                # A row whose gradient is not finite counts as none, in every array.
                gradient[shrinks == 0] = 0.0
                totals[name] += torch.tensordot(shrinks, gradient, dims=1)
    divisor, deviation = protection.divisor(batch_size), protection.deviation(batch_size)

    def noised(total: Tensor) -> Tensor:
        noise = torch.from_numpy(deviation * ctx.normal(tuple(total.shape))) if deviation else torch.zeros(())
        return total / divisor + noise

    for name, tensor in learnt.items():
        tensor.grad = noised(totals[name]).to(tensor.dtype)


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
