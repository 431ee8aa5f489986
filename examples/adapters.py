"""Adapters of a small transformer: a frozen model stays at home, and only what is learnt beside it travels.

    python examples/adapters.py                                          # some minutes
    python examples/adapters.py --width 16 --pretrain 20 --updates 20    # try it

A transformer over letters is trained from scratch, in one place, on half of the help pages that come with Python. Then
twenty peers, each with pages of its own of the other half, train it further over a private walk: once the whole model,
once low-rank adapters (LoRA) beside its matrices, once these in one byte a number. Prints what a message takes and
what the loss on rows that nobody trains on comes to. Needs torch, and nothing else but this package.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import Data, Partition, Partitions, StepContext
from veilwalk.learning.torch_learner import TorchLearner
from veilwalk.training import TrainingRun, train

LETTERS = [chr(code) for code in range(32, 127)] + ["\n", "?"]
#: Letters of a row: the last is only a target.
ROW = 65
NODES, RECIPIENTS = 20, 4
ADAPTERS = "*.adapter.*"


class Adapted(nn.Module):
    """A linear layer with a low-rank one beside it, which begins as nothing."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        narrow, wide = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(wide.weight)
        self.adapter = nn.Sequential(narrow, wide)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the sum of both."""
        made: Tensor = self.base(rows) + self.adapter(rows)
        return made


class Layer(nn.Module):
    """Attention to what came before, and two linear layers."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.back = Adapted(width, 3 * width, rank), Adapted(width, width, rank)
        self.up, self.down = Adapted(width, 4 * width, rank), Adapted(4 * width, width, rank)

    def forward(self, rows: Tensor) -> Tensor:
        """Return what was given, changed a little."""
        mixed = self.mix(self.before(rows)).chunk(3, dim=-1)
        asked, known, said = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in mixed)
        seen = nn.functional.scaled_dot_product_attention(asked, known, said, is_causal=True)
        rows = rows + self.back(seen.transpose(1, 2).flatten(2))
        made: Tensor = rows + self.down(nn.functional.gelu(self.up(self.between(rows))))
        return made


class Transformer(nn.Module):
    """The next letter, from those before it."""

    def __init__(self, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(len(LETTERS), width), nn.Embedding(ROW - 1, width)
        self.layers = nn.Sequential(*(Layer(width, rank) for _ in range(layers)))
        self.last = nn.Linear(width, len(LETTERS))

    def forward(self, letters: Tensor) -> Tensor:
        """Return logits for every place of every row."""
        made: Tensor = self.last(self.layers(self.letter(letters) + self.place.weight[: letters.shape[1]]))
        return made


@dataclass(frozen=True)
class Adam:
    """Makes the optimiser; what it keeps stays at the node."""

    rate: float

    def __call__(self, tensors: list[Tensor]) -> torch.optim.Optimizer:
        """Return one for these tensors."""
        return torch.optim.Adam(tensors, lr=self.rate)


def pairs(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return all letters but the last, and what follows each."""
    del labels
    return rows[:, :-1].long(), rows[:, 1:].long()


def pages(which: int) -> list[Partition]:
    """Return every other help page, cut into rows of letters."""
    known = {letter: number for number, letter in enumerate(LETTERS)}
    found = []
    for title in sorted(topics)[which::2]:
        numbers = [known.get(letter, len(LETTERS) - 1) for letter in topics[title]]
        rows = np.array(numbers[: len(numbers) // ROW * ROW], dtype=np.float32).reshape(-1, ROW)
        found.append(Partition(rows, np.zeros(len(rows), dtype=np.int64)))
    return found


def pretrained(width: int, steps: int) -> dict[str, Any]:
    """Return the weights of a transformer trained on the public half, in one place."""
    rows = Partitions.of_parts(pages(0)).rows
    learner = TorchLearner(
        module_fn=lambda: Transformer(width, layers=2, rank=1),
        pair_fn=pairs,
        optimizer_fn=Adam(0.003),
        local_steps=steps,
    )
    first = learner.init_params(np.random.default_rng(1))
    made = learner.update(first, rows, StepContext(rng=np.random.default_rng(2), step=0)).params
    return {name: torch.tensor(value) for name, value in made.items() if ".adapter." not in name}


def learner_of(base: Mapping[str, Tensor], width: int, train_only: str) -> TorchLearner:
    """Return a learner that begins with ``base``, and adapters that say nothing yet."""

    def module() -> nn.Module:
        made = Transformer(width, layers=2, rank=4)
        made.load_state_dict(dict(base), strict=False)
        return made

    step = Adam(0.002 if train_only == ADAPTERS else 0.0005)
    return TorchLearner(module_fn=module, pair_fn=pairs, optimizer_fn=step, local_steps=4, train_only=train_only)


def private_data() -> tuple[Data, Partitions]:
    """Return the other half: each page to a peer, and of each page every tenth row held out."""
    dealt: list[list[Partition]] = [[] for _ in range(NODES)]
    for number, page in enumerate(sorted(pages(1), key=len)):
        dealt[number % NODES].append(page)
    whole = Partitions.of_parts([Partitions.of_parts(mine).rows for mine in dealt])
    held = np.arange(len(whole.rows)) % 10 == 0
    kept = [
        np.flatnonzero(~held[start:end]) + start for start, end in zip(whole.starts, whole.starts[1:], strict=False)
    ]
    parts = Partitions.of_rows(whole.rows, kept)
    test = Partition(whole.rows.features[held], whole.rows.labels[held])
    return Data(name="help pages of Python", train=parts.rows, test=test), parts


def walked(learner: TorchLearner, payload: str, updates: int) -> TrainingRun:
    """Train over a private walk among twenty peers."""
    data, parts = private_data()
    scheme = choose_scheme(
        parse_graph_spec(f"rrg:{NODES}:3:seed=1"), "far:2", walk="non-backtracking", recipients=RECIPIENTS
    )
    return train(
        scheme, data=data, partition=parts, learner=learner, updates=updates, payload=payload, evaluations=4,
        compare="none", attack=0,
    )  # fmt: skip


def main() -> None:
    """Pre-train, then train the whole model and its adapters, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--pretrain", type=int, default=1500, help="steps on the public half")
    parser.add_argument("--updates", type=int, default=400, help="of the walk")
    options = parser.parse_args()
    base = pretrained(options.width, options.pretrain)
    print("| what travels | payload | numbers | bytes of a message | loss before, nats a letter | after |")
    print("|---|---|---|---|---|---|")
    for name, train_only, payload in (
        ("the whole model", "*", "fp32"),
        ("adapters", ADAPTERS, "fp32"),
        ("adapters", ADAPTERS, "int8"),
    ):
        run = walked(learner_of(base, options.width, train_only), payload, options.updates)
        training = run.trainings["private-walk"]
        numbers = sum(array.size for array in run.model.values())
        first, last = training.points[0].loss, training.points[-1].loss
        print(f"| {name} | {payload} | {numbers:,} | {training.costs.message_bytes:,} | {first:.3f} | {last:.3f} |")
    print(f"frozen: {learner_of(base, options.width, ADAPTERS).frozen_digest}")


if __name__ == "__main__":
    main()
