"""``veilwalk train``: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.cli import Cli, without_compiling

from veilwalk.cli._options import merge_settings, parse_assignment
from veilwalk.core.errors import ConfigError, InputFileError
from veilwalk.training import TRAIN

SMALL = [
    "train", "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--updates", "120", "--attack", "40",
    "--set", "evaluations=5",
]  # fmt: skip


def refused(arguments: list[str], run: Cli, code: int = 2) -> str:
    """Run what must be refused: one line on standard error, nothing on standard output."""
    found, out, err = run(arguments)
    assert (found, out) == (code, ""), err
    assert err.startswith("veilwalk: ")
    assert err.count("\n") == 1
    return err


def test_the_table_says_what_every_number_is(run: Cli) -> None:
    """Accuracy, cost, node entropy in nats and bits, hit ratio beside a blind guess; then content."""
    code, out, err = run(SMALL)
    assert (code, err) == (0, "")
    head = out.splitlines()[1]
    for column in ("accuracy", "at 120 hops", "hops/update", "bytes/update", "entropy, nats", "named (blind)"):
        assert column in head
    # Of several tables the first.
    rows = {line.split()[0]: line for line in reversed(out.splitlines()) if line}
    assert "100% (33.33%)" in rows["plain-walk"]
    assert " 0.000 " in rows["gossip"]
    assert "100%" not in rows["private-walk"]
    assert re.search(r"nats \([\d.]+ bits\) are as good as \d+ equally likely makers", out)
    assert "exact, with all return times above" in out
    assert "what content gives away (40 deliveries" in out
    assert "route and content: drop" in out


def test_json_is_versioned_and_alone_on_standard_output(run: Cli) -> None:
    """A program reads it."""
    code, out, err = run([*SMALL, "--json", "--compare", "plain-walk"])
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["format"] == "veilwalk-train-1"
    assert found["kind"] == "train"
    assert list(found["algorithms"]) == ["private-walk", "plain-walk"]
    assert set(found) == {
        "kind", "version", "seed", "params", "format", "network", "data", "equal_hops", "algorithms",
        "content_attack", "sample", "privacy", "sites", "warnings",
    }  # fmt: skip


def test_noise_prints_epsilon_beside_accuracy_and_against_whom(run: Cli) -> None:
    """In the table's head and in words; nothing for unknown senders."""
    code, out, _ = run([*SMALL, "--noise", "1", "--clip", "0.2", "--attack", "0"])
    assert code == 0
    head = out.split("private-walk")[0].split()
    assert {"epsilon", "(everybody,", "sender", "known)"} <= set(head)
    assert "Holds against everybody together, sender known" in out
    assert "unknown" not in out


def test_flags_win_over_sets_and_sets_over_the_file(tmp_path: Path, run: Cli) -> None:
    """And the resolved settings are kept."""
    config = tmp_path / "c.toml"
    config.write_text('graph = "rrg:30:3:seed=1"\nsupport = "2:3"\nupdates = 60\nseed = 1\nwalks = 3\nattack = 0\n')
    arguments = ["train", "--config", str(config), "--set", "seed=2", "--set", "walks=2", "--walks", "1", "--json"]
    code, out, _ = run([*arguments, "--compare", "none"])
    params = json.loads(out)["params"]
    assert code == 0
    assert (params["updates"], params["seed"], params["walks"]) == (60, 2, 1)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("a=1", ("a", 1)),
        ("a-b = 0.5", ("a-b", 0.5)),
        ("a=rrg:30:3", ("a", "rrg:30:3")),
        ('a="x y"', ("a", "x y")),
        ("learner=softmax:learning_rate=0.1", ("learner", "softmax:learning_rate=0.1")),
    ],
)
def test_sets_are_read_as_toml_or_as_text(entry: str, expected: tuple[str, Any]) -> None:
    """The first equals sign parts key and value."""
    assert parse_assignment(entry) == expected


@pytest.mark.parametrize("entry", ["a", "=1"])
def test_bad_sets_are_refused(entry: str) -> None:
    """By what was written."""
    with pytest.raises(ConfigError, match="--set"):
        parse_assignment(entry)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    """Not there, not TOML."""
    with pytest.raises(InputFileError, match="No such file"):
        merge_settings(TRAIN, tmp_path / "none.toml", [], {})
    bad = tmp_path / "bad.toml"
    bad.write_text("a = ")
    with pytest.raises(InputFileError, match="not TOML"):
        merge_settings(TRAIN, bad, [], {})


def test_a_run_is_kept_and_resumed_by_its_folder_alone(tmp_path: Path, run: Cli) -> None:
    """Its own settings come back; others are refused; nothing is overwritten unasked."""
    out = ["--out", str(tmp_path / "run")]
    code, shown, _ = run([*SMALL, *out])
    assert code == 0
    report = tmp_path / "run" / "report.html"
    assert f"wrote {report}" in shown
    assert report.stat().st_size > 50_000
    before = (tmp_path / "run" / "record.json").read_bytes()
    code, again, _ = run(["train", "--resume", *out])
    assert (code, again) == (0, shown)
    assert "holds a run already: resume it" in refused([*SMALL, *out], run)
    message = refused(["train", "--resume", *out, "--seed", "8"], run)
    assert "other settings (seed = 7, not 8)" in message
    assert (tmp_path / "run" / "record.json").read_bytes() == before


def test_resume_needs_a_run(tmp_path: Path, run: Cli) -> None:
    """A folder, and something in it."""
    assert "--resume needs --out" in refused(["train", "--resume"], run)
    assert "holds no run to resume" in refused(["train", "--resume", "--out", str(tmp_path)], run)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "updates=[5]"], "updates = [5]: must be a whole number"),
        (["--set", "uptades=5"], "unknown key 'uptades'"),
        (["--partition", "dirichlet:x"], "partition = 'dirichlet:x'"),
        (["--partition", "thirds"], "partition = 'thirds': must be one of iid"),
        (["--graph", "rrg:2000:3:seed=1", "--support", "2:6"], "2000"),
        (["--learner", "softmax:depth=3"], "learner = 'softmax:depth=3'"),
        (["--learner", "no_such_module:Thing"], "cannot be imported"),
        (["--data", "mnist:/no/such/folder"], "no such folder"),
        (["--data", "imagenet"], "data = 'imagenet': must be digits"),
        (["--noise", "1"], "must be given with clip"),
        (["--law", "plain"], "law = 'plain'"),
        (
            ["--law", "uniform"],
            "far:R, paper, paper-printed, paper-exact, optimal, plain (for design and audit)",
        ),
        (["--partition", "natural:hosp"], "must be natural:COLUMN with one of the columns label"),
        (["--law", "law.npz"], "law.npz"),
        (["--walk", "least-recent"], "walk = 'least-recent'"),
        (["--compare", "server"], "compare = 'server'"),
        (["--support", "2:40"], "support"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments: list[str], words: str, run: Cli) -> None:
    """Before anything is trained."""
    assert words in refused(["train", "--graph", "rrg:30:3:seed=1", "--support", "2:3", *arguments], run)


def test_more_nodes_than_rows_is_refused_by_name(run: Cli) -> None:
    """1,438 rows of digits cannot be dealt to 2,000 nodes."""
    message = refused(["train", "--graph", "rrg:2000:3:seed=1", "--partition", "iid"], run)
    assert "graph = '2000 nodes': must be of at most 1438 nodes" in message


def test_a_dry_run_names_the_learner_that_is_chosen(run: Cli) -> None:
    """Also where nobody has named one."""
    code, out, err = run(["train", "--graph", "rrg:30:3:seed=1", "--updates", "10", "--dry-run"])
    assert (code, err) == (0, "")
    assert out.startswith("digits over rrg:30:3:seed=1 (30 peers), softmax")


def test_real_labels_need_another_learner(tmp_path: Path, run: Cli) -> None:
    """Which ones, in words."""
    np.savez(tmp_path / "d.npz", features=np.eye(50), labels=np.linspace(0, 1, 50))
    message = refused(["train", "--graph", "rrg:30:3:seed=1", "--data", f"npz:{tmp_path / 'd.npz'}"], run)
    assert message.endswith("must be linear or mlp where labels are real numbers\n")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"features": np.zeros((50, 3))}, "has no labels"),
        ({"features": np.zeros((50, 3)), "labels": np.zeros(40, dtype=int)}, "need one row of features for each label"),
        ({"features": np.full((50, 3), np.nan), "labels": np.zeros(50, dtype=int)}, "are not finite"),
        ({"features": np.zeros((50, 3)), "labels": np.full(50, np.nan)}, "the label of row 0 is missing"),
        ({"x_train": np.zeros((50, 3)), "y_train": np.zeros(50, dtype=int)}, "need arrays x_train, y_train"),
    ],
)
def test_bad_data_are_refused_in_one_line(arrays: dict[str, Any], words: str, tmp_path: Path, run: Cli) -> None:
    """Labels missing, shapes that do not fit, numbers that are none."""
    np.savez(tmp_path / "d.npz", **arrays)
    arguments = ["train", "--graph", "rrg:30:3:seed=1", "--support", "2:3", "--data", f"npz:{tmp_path / 'd.npz'}"]
    assert words in refused(arguments, run)


def test_a_diverging_run_stops_and_keeps_what_was_good(tmp_path: Path, run: Cli) -> None:
    """Exit code 1; node, update and the kept checkpoint are named; the checkpoint is finite."""
    steep = ["--learner", "softmax:learning_rate=1e38", "--out", str(tmp_path / "run")]
    message = refused([*SMALL, *steep], run, code=1)
    assert "private-walk: " in message
    assert "of node" in message
    kept = tmp_path / "run" / "checkpoints" / "private-walk.npz"
    assert f"{kept} keeps the model after update" in message
    with np.load(kept) as archive:
        assert np.isfinite(archive["model/weight"]).all()


@pytest.mark.parametrize("name", ["checkpoints/private-walk.npz", "config.toml", "run.json"])
def test_an_unreadable_run_is_refused(name: str, tmp_path: Path, run: Cli) -> None:
    """One line that names the file; the file stays as it is."""
    run([*SMALL, "--attack", "0", "--compare", "none", "--out", str(tmp_path / "run")])
    path = tmp_path / "run" / name
    path.write_bytes(b"\xff\x00 garbage")
    assert path.name in refused(["train", "--resume", "--out", str(tmp_path / "run")], run)
    assert path.read_bytes() == b"\xff\x00 garbage"


def test_a_learner_of_ones_own_with_wrong_shapes_is_refused(tmp_path: Path) -> None:
    """module:Class from the folder the command runs in."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from veilwalk.learning import UpdateResult\n"
        "class Bad:\n"
        "    def __init__(self, *, n_features, n_classes): pass\n"
        "    def init_params(self, rng): return {'w': np.zeros(3)}\n"
        "    def update(self, params, data, ctx): return UpdateResult(params={'w': np.zeros(4)}, num_examples=1)\n"
        "    def evaluate(self, params, data): return {'loss': 1.0}\n"
    )
    shown = subprocess.run(
        [Path(sys.executable).parent / "veilwalk", *SMALL, "--learner", "mine:Bad"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 2
    assert "w of shape (4,)" in shown.stderr
    assert without_compiling(shown.stderr).count("\n") == 1


def test_without_an_audit_the_table_has_dashes(run: Cli) -> None:
    """And says why; several walks have their line all the same."""
    small = ["train", "--graph", "rrg:20:3:seed=1", "--updates", "40", "--attack", "0", "--audit", "none"]
    code, out, err = run([*small, "--compare", "plain-walk", "--walks", "2"])
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in reversed(out.splitlines()) if line}
    assert rows["private-walk"][-3:] == ["-", "-", "(-)"]
    assert rows["plain-walk"][-3:] == ["0.000", "100%", "(33.33%)"]
    assert "not measured (--audit none)" in out
    assert "2 walks train a model each" in out
    assert "None" not in out


def test_flags_of_version_0_2_say_what_replaces_them(run: Cli) -> None:
    """Also in a file, which names the key."""
    assert "walks" in refused(["train", "--set", "tokens=2"], run)
    assert "--walks" in refused(["train", "--tokens", "2"], run)
    assert "examples.comparisons" in refused(["train", "--set", "membership=5"], run)
    assert "examples/trackers.py" in refused(["train", "--track", "wandb:here"], run)


def test_an_option_of_nodes_is_refused_by_train(run: Cli) -> None:
    assert "hop = 1: must be left out" in refused(["train", "--set", "hop=1"], run)
