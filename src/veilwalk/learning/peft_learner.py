"""A model of the PEFT library as a learner: its adapters are trained and travel, the large model beside them stays.

The base is made once in a process. Adapters come in with every call and go out again as float32; ``--payload fp16`` or
``int8`` makes messages smaller. A graphics card is used where torch has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.rooms import import_extra
from veilwalk.learning._contract import Params, Partition, StepContext, UpdateResult
from veilwalk.learning._learners import draw_batch
from veilwalk.learning.flower_learner import OtherLibrary, seeded
from veilwalk.learning.torch_learner import describe_value, keep_state, restore_state

# Of what a base draws for itself: the same for everybody, whatever the run's seed.
_BASE_SEED = 0

#: Rows and labels to what the model is called with, its labels too.
Collate = Callable[[Tensor, Tensor], Mapping[str, Tensor]]


def from_peft(model_fn: Callable[[], Any], collate: Collate, **options: Any) -> PeftLearner:
    """Return a learner that trains the adapters of what ``model_fn`` makes: a ``PeftModel``.

    ``collate`` makes of rows and labels, both tensors, what the model is called with; the model's own ``loss`` is
    descended. ``options`` are those of :class:`PeftLearner`.

    Example:
        learner = vw.from_peft(model, lambda rows, labels: {"input_ids": rows.long(), "labels": rows.long()})
    """
    return PeftLearner(model_fn=model_fn, collate=collate, **options)


def _adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PeftLearner(OtherLibrary):
    """Adapters beside a frozen model, which must be the same everywhere.

    Attributes:
        model_fn: Makes the model with its adapters, as ``peft.get_peft_model`` returns it.
        collate: Makes of rows and labels what the model is called with.
        optimizer_fn: Makes the optimiser of a list of tensors; its state stays at the node.
        batch_size: Rows of one step, drawn without repetition; a node with fewer uses all it has. 0: always all.
        local_steps: Steps of one visit.
        device: Where the model computes; empty: on a graphics card where torch has one, and else on the processor.
        threads: Threads of the processor; one gives the same bits on any machine, 0 leaves them as they are.
    """

    model_fn: Callable[[], Any]
    collate: Collate
    optimizer_fn: Callable[[list[Tensor]], torch.optim.Optimizer] = _adam
    batch_size: int = 8
    local_steps: int = 1
    device: str = ""
    threads: int = 1

    def __post_init__(self) -> None:
        validate.integer(1, local_steps=self.local_steps)
        validate.integer(0, batch_size=self.batch_size, threads=self.threads)

    def __repr__(self) -> str:
        """Return what it is, functions by their names: the same in another process, so that a run can be resumed."""
        values = (f"{item.name}={describe_value(getattr(self, item.name))}" for item in fields(self))
        return f"PeftLearner({', '.join(values)})"

    @cached_property
    def _device(self) -> str:
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")

    @cached_property
    def _model(self) -> Any:
        with seeded(np.random.default_rng(_BASE_SEED), threads=self.threads):
            model = self.model_fn()
        learnt = sum(tensor.numel() for tensor in model.parameters() if tensor.requires_grad)
        travelling = sum(array.size for array in _read_adapters(model).values())
        if learnt != travelling:
            need = f"a model that trains its adapters alone ({travelling} numbers, and it trains {learnt})"
            raise InvalidParameterError("model_fn", describe_value(self.model_fn), need)
        return model.to(self._device)

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the adapters of a new model, which ``rng`` seeds."""
        with seeded(rng, threads=self.threads):
            return _read_adapters(self.model_fn())

    def loaded(self, params: Params) -> Any:
        """Return the model with these adapters in it, to predict with or to save; the next call changes it."""
        peft = import_extra("peft", "peft")
        tensors = {name: torch.tensor(value) for name, value in params.items()}
        peft.set_peft_model_state_dict(self._model, tensors)
        return self._model.eval()

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return ``params`` after ``local_steps`` steps of the optimiser on ``data``."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        model, loss, count = self.loaded(params).train(), 0.0, 0
        learnt = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        with seeded(ctx.rng, threads=self.threads):
            optimizer = self.optimizer_fn(list(learnt.values()))
            restore_state(optimizer, learnt, ctx)
            for _ in range(self.local_steps):
                rows = Partition(*draw_batch(data, self.batch_size, ctx.rng))
                optimizer.zero_grad(set_to_none=True)
                batch_loss = model(**self._batch(rows)).loss
                batch_loss.backward()
                optimizer.step()
                loss, count = float(batch_loss.detach()), count + len(rows)
            keep_state(optimizer, learnt, ctx)
        after = _read_adapters(model)
        return UpdateResult(params={name: after[name] for name in params}, num_examples=count, metrics={"loss": loss})

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean ``loss`` on ``data``, and ``accuracy`` where each row has one label."""
        model, loss, hits, is_class = self.loaded(params), 0.0, 0, True
        with seeded(np.random.default_rng(_BASE_SEED), threads=self.threads), torch.no_grad():
            for rows in self._blocks(data):
                batch = self._batch(rows)
                outputs, labels = model(**batch), batch["labels"]
                loss += float(outputs.loss) * len(rows)
                is_class = labels.ndim == 1 and outputs.logits.ndim == 2 and not labels.is_floating_point()
                hits += int((outputs.logits.argmax(-1) == labels).sum()) if is_class else 0
        count = max(1, len(data))
        return {"loss": loss / count} | ({"accuracy": hits / count} if is_class else {})

    def _blocks(self, data: Partition) -> Iterator[Partition]:
        size = self.batch_size or len(data)
        for start in range(0, len(data), size):
            yield data.take(slice(start, start + size))

    def _batch(self, rows: Partition) -> dict[str, Tensor]:
        """Return what the model is called with, where it computes."""
        batch = self.collate(torch.tensor(rows.features), torch.tensor(rows.labels))
        return {name: value.to(self._device) for name, value in batch.items()}


def _read_adapters(model: Any) -> dict[str, Any]:
    """Return the adapters as arrays; NumPy has no bfloat16, so all travel as float32."""
    tensors = import_extra("peft", "peft").get_peft_model_state_dict(model)
    return {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in tensors.items()}
