"""``veilwalk export``: the trained model, out of a run, a cluster or a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.cli import Cli

from veilwalk.learning import load_data, load_model, make_learner
from veilwalk.node import load_config
from veilwalk.node.cluster import prepare_or_resume, set_up_cluster
from veilwalk.node.members import Manifest, encode_params, load_root_public_key
from veilwalk.node.spool import FolderDisk, Spool
from veilwalk.training import CLUSTER, RunFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from veilwalk.training import Scenario, make_spec, run_training

    out = tmp_path_factory.mktemp("run") / "run"
    settings = make_spec(
        graph="rrg:20:3:seed=1", support="2:3", updates=60, attack=0, learner="softmax", compare="plain-walk"
    )
    run_training(Scenario.from_spec(settings), out=out)
    return out


def test_finding_b1_a_run_hands_over_its_model(folder: Path, tmp_path: Path, run: Cli) -> None:
    """model.npz lies in the folder; export writes the same, whose accuracy on held-out rows is the record's."""
    code, out, _ = run(["export", str(folder), "--to", str(tmp_path / "m.npz")])
    assert (code, out) == (0, f"wrote {tmp_path / 'm.npz'}: weight 10x64, bias 10\n")
    model = load_model(tmp_path / "m.npz")
    kept = load_model(folder / "model.npz")
    record = json.loads((folder / "record.json").read_text())
    data = load_data("digits", seed=record["seed"])
    scores = make_learner("softmax", n_features=64, n_classes=10).evaluate(model, data.test)
    assert scores["accuracy"] == record["algorithms"]["private-walk"]["accuracy"]
    assert record["data"]["class_names"] == list("0123456789")
    for name, array in kept.items():
        np.testing.assert_array_equal(model[name], array)
    assert run(["export", str(folder), "--to", str(tmp_path / "p.npz"), "--algorithm", "plain-walk"])[0] == 0
    assert not np.array_equal(load_model(tmp_path / "p.npz")["weight"], model["weight"])


def test_what_is_not_there_is_said_in_one_line(folder: Path, tmp_path: Path, run: Cli) -> None:
    to = ["--to", str(tmp_path / "m.npz")]
    code, _, err = run(["export", str(folder), *to, "--algorithm", "gossip"])
    assert (code, err.count("\n")) == (2, 1)
    assert "--algorithm = 'gossip': must be one that" in err
    assert "plain-walk, private-walk" in err
    code, _, err = run(["export", str(folder), "--to", "model.bin"])
    assert (code, "--to = 'model.bin'" in err) == (2, True)
    code, _, err = run(["export", str(tmp_path), *to])
    assert (code, "holds neither a training run nor a cluster" in err) == (2, True)


def test_an_unfinished_run_is_only_given_when_asked_for(folder: Path, tmp_path: Path, run: Cli) -> None:
    from veilwalk.learning import load_checkpoint, save_checkpoint

    copy = tmp_path / "run"
    (copy / "checkpoints").mkdir(parents=True)
    for name in ("run.json", "config.toml"):
        (copy / name).write_bytes((folder / name).read_bytes())
    state = load_checkpoint(RunFolder(folder).checkpoint("private-walk"), identity=None)
    state.finished, state.done = None, 12
    save_checkpoint(RunFolder(copy).checkpoint("private-walk"), state, identity="other")
    code, _, err = run(["export", str(copy), "--to", str(tmp_path / "m.npz")])
    assert (code, "12 updates are made" in err) == (2, True)
    assert run(["export", str(copy), "--to", str(tmp_path / "m.npz"), "--unfinished"])[0] == 0


def put_model(config: Path, kind: str, iteration: int, value: float) -> None:
    """Store a model in a node's folder as the node itself would."""
    settings = load_config(config)
    manifest = Manifest.load(settings.manifest, load_root_public_key(settings.root))
    params: dict[str, Any] = {spec.name: np.full(spec.shape, value, dtype=spec.dtype) for spec in manifest.arrays}
    settings.state.mkdir(mode=0o700)
    spool = Spool(FolderDisk(settings.state))
    stored = spool.store(encode_params(manifest, params))
    with spool.transaction() as tables:
        tables.set_model(kind, stored, tag=bytes(16), iteration=iteration)
    spool.close()


def test_finding_b1_a_node_hands_over_its_model(tmp_path: Path, run: Cli) -> None:
    """Of a cluster the finished one; before the end the newest, when asked for; of one node its own."""
    setup = set_up_cluster(CLUSTER.defaults.change(graph="rrg:6:3:seed=1", suite="x25519"))
    out, to = tmp_path / "c", ["--to", str(tmp_path / "m.npz")]
    configs = prepare_or_resume(setup, out)
    assert "no model yet" in run(["export", str(out), *to])[2]
    assert "nowhere does not exist" in run(["export", "nowhere", *to])[2]
    put_model(configs[1], "checkpoint", 7, 1.0)
    put_model(configs[2], "checkpoint", 9, 2.0)
    code, _, err = run(["export", str(out), *to])
    assert (code, "its newest model has had 9 updates" in err) == (2, True)
    assert run(["export", str(out), *to, "--unfinished"])[0] == 0
    assert load_model(tmp_path / "m.npz")["bias"].tolist() == [2.0] * 10
    put_model(configs[3], "final", 8, 3.0)
    assert run(["export", str(out), *to])[0] == 0
    assert load_model(tmp_path / "m.npz")["bias"].tolist() == [3.0] * 10
    assert run(["export", str(configs[1].parent), *to, "--unfinished"])[0] == 0
    assert load_model(tmp_path / "m.npz")["bias"].tolist() == [1.0] * 10
    assert "left out" in run(["export", str(configs[3]), *to, "--algorithm", "gossip"])[2]
    assert run(["export", str(configs[4]), *to])[0] == 4
