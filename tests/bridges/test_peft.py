"""Adapters of PEFT as learners, on tiny models built from a configuration: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.pages import run_in, write_files

import veilwalk as vw
from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import Partition, StepContext, check_learner, sealed_bytes
from veilwalk.training import Scenario

peft = pytest.importorskip("peft", reason="peft is not installed: make bridges runs these")
transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

PAGE = "fine-tune-an-adapter"
NODES, LETTERS, LENGTH = 10, 24, 12
SCHEME = vw.choose_scheme(vw.random_regular(NODES, 3, seed=1), "uniform-node", support=(2, 3))
QUICK: dict[str, Any] = {"compare": "none", "attack": 0, "audit": "none", "partition": "iid"}


def causal(**options: Any) -> Any:
    """Return a small model of next letters, with adapters."""
    config = transformers.GPT2Config(
        vocab_size=LETTERS,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.1,
    )
    base = transformers.GPT2LMHeadModel(config)
    kind = {"task_type": "CAUSAL_LM", "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}
    return peft.get_peft_model(base, peft.LoraConfig(r=4, lora_dropout=0.1, **kind, **options))


def classifier() -> Any:
    """Return a small model of classes, whose head is trained beside its adapters."""
    config = transformers.BertConfig(
        vocab_size=LETTERS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH, num_labels=3,
    )  # fmt: skip
    base = transformers.BertForSequenceClassification(config)
    return peft.get_peft_model(base, peft.LoraConfig(r=4, task_type="SEQ_CLS", target_modules=["query", "value"]))


def letters(rows: Any, labels: Any) -> dict[str, Any]:
    """Return what a model of letters is called with."""
    del labels
    return {"input_ids": rows.long(), "labels": rows.long()}


def classes(rows: Any, labels: Any) -> dict[str, Any]:
    """Return what a model of classes is called with."""
    return {"input_ids": rows.long(), "labels": labels.long()}


def fast(parameters: list[Any]) -> Any:
    return torch.optim.AdamW(parameters, lr=0.02)


def texts(count: int = 240) -> Partition:
    """Return rows that count upwards from a random letter, and their first letter's third as the class."""
    draws = np.random.default_rng(3)
    first = draws.integers(LETTERS, size=count)
    rows = (first[:, None] + np.arange(LENGTH)) % LETTERS
    return Partition(rows.astype(np.float32), (first * 3 // LETTERS).astype(np.int64))


@pytest.mark.parametrize("model_fn", [causal, classifier])
def test_only_adapters_travel_and_the_contract_holds(model_fn: Any) -> None:
    """With dropout and momentum: names and sizes of the adapters, and of a head that is trained with them."""
    collate = letters if model_fn is causal else classes
    learner = vw.from_peft(model_fn, collate, local_steps=2)
    check_learner(learner, texts(40))
    params = learner.init_params(np.random.default_rng(0))
    assert all("lora_" in name or "classifier" in name for name in params)
    whole = sum(tensor.numel() for tensor in model_fn().parameters())
    assert sum(array.size for array in params.values()) < whole / 4
    again = learner.init_params(np.random.default_rng(1))
    assert any(not np.array_equal(params[name], again[name]) for name in params)


@pytest.mark.parametrize("payload", ["fp32", "fp16", "int8"])
def test_adapters_are_trained_over_the_private_walk(payload: str) -> None:
    """The loss falls well below that of guessing, however many bytes a number takes."""
    rows = texts()
    learner = vw.from_peft(causal, letters, optimizer_fn=fast, local_steps=4, batch_size=16)
    run = vw.train(SCHEME, data=(rows.features, rows.labels), learner=learner, updates=40, payload=payload, **QUICK)
    result = run.record().result["algorithms"]["private-walk"]
    assert result["points"][0]["loss"] == pytest.approx(np.log(LETTERS), abs=0.5)
    assert result["loss"] < 2.0
    size = {"fp32": 4.0, "fp16": 2.0, "int8": 33 / 32}[payload] * sum(array.size for array in run.model.values())
    assert result["message_bytes"] == pytest.approx(sealed_bytes(round(size), recipients=SCHEME.recipients), abs=32)
    model = learner.loaded(run.model)
    start = torch.tensor([[3, 4, 5]])
    with torch.no_grad():
        assert model(input_ids=start).logits.shape == (1, 3, LETTERS)


def test_classes_are_scored_by_accuracy() -> None:
    """Of rows with one label each."""
    learner = vw.from_peft(classifier, classes, optimizer_fn=fast, local_steps=10, batch_size=32)
    rows, params = texts(), learner.init_params(np.random.default_rng(0))
    for step in range(12):
        ctx = StepContext(rng=np.random.default_rng(step), step=step)
        params = learner.update(params, rows, ctx).params
    scores = learner.evaluate(params, rows)
    assert scores.keys() == {"loss", "accuracy"}
    assert scores["accuracy"] > 0.7


def test_the_optimiser_stays_at_the_node_and_the_name_in_the_record() -> None:
    """A second update goes on with what the first kept; what a run is called is the same in every process."""
    learner = vw.from_peft(causal, letters)
    params, state = learner.init_params(np.random.default_rng(0)), dict[str, Any]()
    ctx = StepContext(rng=np.random.default_rng(0), step=0, state=state)
    after = learner.update(params, texts(40), ctx).params
    assert {name.rpartition("/")[2] for name in state} == {"step", "exp_avg", "exp_avg_sq"}
    going_on = StepContext(rng=np.random.default_rng(1), step=1, state=dict(state))
    afresh = StepContext(rng=np.random.default_rng(1), step=1)
    two = [learner.update(after, texts(40), context).params for context in (going_on, afresh)]
    assert any(not np.array_equal(two[0][name], two[1][name]) for name in after)
    scenario = Scenario.build(SCHEME, data=(texts().features, texts().labels), partition="iid", learner=learner)
    assert "causal" in str(scenario.spec.learning.learner)
    assert " at 0x" not in str(scenario.spec.learning.learner)


def test_a_base_that_is_trained_too_is_refused() -> None:
    """It would be remembered from one node to the next, and not travel."""

    def loose() -> Any:
        model = causal()
        for name, tensor in model.named_parameters():
            tensor.requires_grad_(requires_grad="ln_f" in name or "lora_" in name)
        return model

    learner = vw.from_peft(loose, letters)
    with pytest.raises(InvalidParameterError) as refused:
        learner.evaluate(learner.init_params(np.random.default_rng(0)), texts(20))
    assert refused.value.name == "model_fn"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no graphics card here")
def test_a_graphics_card_is_used_where_torch_has_one() -> None:
    """And arrays come back from it."""
    learner = vw.from_peft(causal, letters)
    check_learner(learner, texts(40))
    assert next(learner.loaded(learner.init_params(np.random.default_rng(0))).parameters()).is_cuda


def test_the_page_can_be_followed(tmp_path: Path) -> None:
    """Its script runs, and its loss is better than guessing."""
    name, *_ = write_files(PAGE, tmp_path)
    first, last, size = map(float, run_in(tmp_path, name).split()[-3:])
    assert last < first / 2
    assert size < 20_000


@pytest.mark.parametrize(("library", "file"), [("lightning", "lightning_module"), ("skorch", "skorch_net")])
def test_ten_lines_for_other_libraries(library: str, file: str, tmp_path: Path) -> None:
    """A Lightning module, and the module of a skorch net, keep the contract."""
    pytest.importorskip(library)
    write_files(PAGE, tmp_path)
    check = (
        f"from {file} import learner\nimport numpy as np\nfrom veilwalk.learning import Partition, check_learner\n"
        "rng = np.random.default_rng(0)\n"
        "check_learner(learner, Partition(rng.random((20, 64), dtype=np.float32), rng.integers(10, size=20)))\n"
        "print('kept')"
    )
    (tmp_path / "check.py").write_text(check)
    assert run_in(tmp_path, "check.py").split()[-1] == "kept"
