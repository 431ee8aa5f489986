"""Gradients of single rows in torch: each clipped for itself, summed, noised, for records to be protected.

``torch.func`` makes the gradient of every row of a block at once; no more than a block of them is held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import StepContext
from veilwalk.learning._rows import RowProtection

# Rows whose gradients are held at once: of a model of a million numbers, a quarter of a gigabyte.
_BLOCK_ROWS = 64

#: The mean loss of tensors by name, on rows and their labels.
Loss = Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]


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
            with contextlib.suppress(Exception):
                yield each(fixed, features[row : row + 1], labels[row : row + 1])
