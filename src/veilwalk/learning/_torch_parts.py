"""What a torch learner is made of: which tensors travel, what the optimiser keeps, losses, and draws that repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import Tensor, nn

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import StepContext

#: A target that counts for nothing, as torch has it: what fills up a short sequence.
IGNORED = -100


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
