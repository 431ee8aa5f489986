"""Torch models of other kinds: real numbers with a metric of one's own, tokens, weighted classes, adapters."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from veilwalk.core.errors import InvalidParameterError  # noqa: E402
from veilwalk.core.randomness import task_generator  # noqa: E402
from veilwalk.learning import Partition, StepContext, check_learner  # noqa: E402
from veilwalk.learning.torch_learner import TorchLearner  # noqa: E402

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "write-your-own-learner.md"


class Factors(nn.Module):
    """Ratings as products of what users and items are given."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(8, 3), nn.Embedding(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        """Return a rating a row."""
        ids = rows.long()
        found: Tensor = (self.users(ids[:, 0]) * self.items(ids[:, 1])).sum(dim=1)
        return found


class Tokens(nn.Module):
    """The next token from the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 5)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits a token."""
        return self.table(ids)  # type: ignore[no-any-return]


class Adapted(nn.Module):
    """A layer that stays, with a normalisation that counts, and a small one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.adapter = nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits a row."""
        return self.adapter(self.norm(self.base(rows)))  # type: ignore[no-any-return]


def ratings(rows: int = 40) -> Partition:
    rng = task_generator(0, 1)
    ids = np.stack((rng.integers(8, size=rows), rng.integers(6, size=rows)), axis=1).astype(np.float32)
    return Partition(ids, (1 + ids[:, 0] * ids[:, 1] / 9).astype(np.float32))


def classes(rows: int = 60) -> Partition:
    rng = task_generator(0, 2)
    labels = (np.arange(rows) % 10 == 0).astype(np.int64)
    return Partition(rng.random((rows, 6), dtype=np.float32) + 0.5 * labels[:, None].astype(np.float32), labels)


def rmse(outputs: Tensor, targets: Tensor) -> Mapping[str, float]:
    return {"rmse": float((outputs - targets).square().mean().sqrt())}


def next_token(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return rows[:, :-1].long(), rows[:, 1:].long()


def context() -> StepContext:
    return StepContext(rng=task_generator(7), step=0)


def test_numbers_with_a_loss_and_a_metric_of_ones_own() -> None:
    """The loss is what is descended, the metric what is shown."""
    learner = TorchLearner(module_fn=Factors, loss=nn.functional.l1_loss, metric=rmse, batch_size=100)
    data = ratings()
    check_learner(learner, data)
    params = learner.init_params(task_generator(0))
    moved = learner.update(params, data, context()).params
    before, after = learner.evaluate(params, data), learner.evaluate(moved, data)
    users, items = params["users.weight"], params["items.weight"]
    ids = data.features.astype(int)
    off = (users[ids[:, 0]] * items[ids[:, 1]]).sum(axis=1) - data.labels
    assert before == pytest.approx({"loss": np.abs(off).mean(), "rmse": np.sqrt(np.square(off).mean())}, rel=1e-5)
    assert after["loss"] < before["loss"]


def test_tokens_learn_what_follows_what() -> None:
    """A cycle of five tokens is learnt to the end; fillers count for nothing."""
    rows = (np.arange(12)[:, None] + np.arange(7)) % 5
    data = Partition(rows.astype(np.float32), np.zeros(12, dtype=np.int64))
    sgd = lambda tensors: torch.optim.SGD(tensors, lr=2.0)  # noqa: E731
    learner = TorchLearner(module_fn=Tokens, pair_fn=next_token, optimizer_fn=sgd, local_steps=60)
    params = learner.init_params(task_generator(0))
    start = learner.evaluate(params, data)
    of_truth = np.take_along_axis(params["table.weight"], ((np.arange(5) + 1) % 5)[:, None], axis=1)[:, 0]
    table = np.log(np.exp(params["table.weight"]).sum(axis=1)) - of_truth
    assert start["loss"] == pytest.approx(table[rows[:, :-1]].mean(), rel=1e-5)
    moved = learner.update(params, data, context()).params
    assert learner.evaluate(moved, data)["accuracy"] == 1

    def filled(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        given, targets = next_token(rows, labels)
        targets[:, 3:] = -100
        return given, targets

    short = TorchLearner(module_fn=Tokens, pair_fn=filled).evaluate(params, data)
    assert short["loss"] == pytest.approx(table[rows[:, :3]].mean(), rel=1e-5)
    assert 0 <= short["accuracy"] <= 1


def test_class_weights_turn_the_step_and_not_the_score() -> None:
    """A rare class that counts ten times is found more often; the loss that is shown is the plain one."""
    data = classes()
    sgd = lambda tensors: torch.optim.SGD(tensors, lr=0.5)  # noqa: E731
    made = {"module_fn": lambda: nn.Linear(6, 2), "optimizer_fn": sgd, "batch_size": 100, "local_steps": 20}
    plain, weighted = TorchLearner(**made), TorchLearner(**made, class_weights=(1.0, 10.0))  # type: ignore[arg-type]
    params = plain.init_params(task_generator(0))
    assert plain.evaluate(params, data)["loss"] == weighted.evaluate(params, data)["loss"]
    one = weighted.evaluate(plain.update(params, data, context()).params, data)
    two = weighted.evaluate(weighted.update(params, data, context()).params, data)
    assert one["balanced_accuracy"] < 0.7
    assert two["balanced_accuracy"] > 0.8
    with pytest.raises(InvalidParameterError, match="class_weights"):
        TorchLearner(module_fn=nn.Identity, class_weights=(1.0, -1.0))


def test_an_adapter_travels_and_the_rest_stays_as_it_is() -> None:
    """Only what matches is in the token; what is frozen is not changed by training, not even its counters."""
    learner = TorchLearner(module_fn=Adapted, train_only="adapter.*")
    check_learner(learner, Partition(classes().features, classes().labels))
    params = learner.init_params(task_generator(0))
    assert list(params) == ["adapter.weight", "adapter.bias"]
    digest = learner.frozen_digest
    moved = learner.update(params, classes(), context()).params
    assert np.abs(moved["adapter.weight"] - params["adapter.weight"]).max() > 0
    assert learner.frozen_digest == digest
    whole = learner.loaded(moved)
    assert np.array_equal(whole.state_dict()["adapter.weight"].numpy(), moved["adapter.weight"])
    with torch.no_grad():
        loss = nn.functional.cross_entropy(whole(torch.tensor(classes().features)), torch.tensor(classes().labels))
    assert float(loss) == pytest.approx(learner.evaluate(moved, classes())["loss"], rel=1e-5)


def test_what_is_frozen_must_be_what_was_agreed() -> None:
    """The same everywhere, drawn or not; another is refused, and so is a pattern that trains nothing."""
    agreed = TorchLearner(module_fn=Adapted, train_only="adapter.*").frozen_digest
    torch.manual_seed(99)
    same = TorchLearner(module_fn=Adapted, train_only="adapter.*", frozen=agreed)
    assert same.init_params(task_generator(0)).keys() == {"adapter.weight", "adapter.bias"}

    def other() -> nn.Module:
        made = Adapted()
        nn.init.zeros_(made.base.bias)
        return made

    with pytest.raises(InvalidParameterError, match="frozen"):
        TorchLearner(module_fn=other, train_only="adapter.*", frozen=agreed).init_params(task_generator(0))
    for pattern in ("adaptor.*", "norm.running_*"):
        with pytest.raises(InvalidParameterError, match=r"train_only.*base\.weight"):
            TorchLearner(module_fn=Adapted, train_only=pattern).init_params(task_generator(0))


def test_a_learner_has_one_name_in_every_process() -> None:
    """By which a run made of objects is resumed: no address is in it."""
    code = (
        "from torch import nn, optim\nfrom veilwalk.learning.torch_learner import TorchLearner\n"
        "print(TorchLearner(module_fn=nn.Identity, optimizer_fn=lambda p: optim.SGD(p, lr=1.0)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "0x" not in shown
    assert "module_fn=torch.nn.modules.linear:Identity" in shown
    assert "optimizer_fn=__main__:<lambda>" in shown


@pytest.mark.parametrize("name", ["ratings", "letters"])
def test_the_models_of_the_page_keep_the_contract(name: str) -> None:
    """As they stand there."""
    (code,) = re.findall(rf"```python\n# {name}\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)  # noqa: S102  our own page
    rows = Partition(np.random.default_rng(0).integers(8, size=(12, 9)).astype(np.float32), np.zeros(12, np.int64))
    check_learner(made["model"](n_features=9, n_classes=0), ratings() if name == "ratings" else rows)
