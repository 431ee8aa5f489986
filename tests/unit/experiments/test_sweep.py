"""Sweeps: every case a job, the same table on every engine, failures listed, the rest done."""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.cli import Cli

from veilwalk.audit import audit
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.tables import csv_table, parquet_table
from veilwalk.design import choose_scheme, recommend
from veilwalk.engine import JobStore, open_engine
from veilwalk.experiments import SweepPlan, sweep
from veilwalk.graphs import random_regular
from veilwalk.training import Scenario, make_spec

TRAIN: dict[str, Any] = {
    "graph": "rrg:20:3:seed=1",
    "updates": 20,
    "attack": 0,
    "compare": "none",
    "learner": "softmax",
}
AUDIT: dict[str, Any] = {"graph": "rrg:20:3:seed=1", "support": "2:3", "observers": "last-hop", "updates": 500}
FILE = """
kind = "audit"
[settings]
graph = "rrg:20:3:seed=1"
support = "2:3"
observers = "prior,last-hop"
updates = 500
[grid]
law = ["uniform-node", "nonsense"]
seed = [1, 2]
"""


def test_a_grid_is_every_combination_with_every_case() -> None:
    """The last key fastest; what is swept is told."""
    plan = SweepPlan(
        kind="train",
        settings=TRAIN,
        grid={"partition": ["iid", "shards:2"], "seed": [1, 2]},
        cases=[{"walks": 1}, {"walks": 2}],
    )
    jobs = plan.jobs()
    assert [(job["walks"], job["partition"], job["seed"]) for job in jobs[:3]] == [
        (1, "iid", 1),
        (1, "iid", 2),
        (1, "shards:2", 1),
    ]
    assert len(jobs) == 8
    assert plan.swept == ["walks", "partition", "seed"]


def test_a_training_sweep_is_the_same_in_processes(tmp_path: Path) -> None:
    """By the bytes of its table and of every kept case; a second run does nothing again."""
    asked: dict[str, Any] = {"settings": TRAIN, "grid": {"partition": ["iid", "dirichlet:0.3"], "seed": [1, 2]}}
    here = sweep("train", **asked, store=JobStore(tmp_path / "here"))
    with open_engine("process:2") as pool:
        there = sweep("train", **asked, executor=pool, store=JobStore(tmp_path / "there"))
    assert csv_table(there.rows) == csv_table(here.rows)
    files = [{one.name: one.read_bytes() for one in (tmp_path / name).iterdir()} for name in ("here", "there")]
    assert files[0] == files[1]
    assert len(files[0]) == 4
    summary = here.summary()
    assert [(row["partition"], row["runs"]) for row in summary] == [("iid", 2), ("dirichlet:0.3", 2)]
    assert summary[0]["loss_low"] < summary[0]["loss"] < summary[0]["loss_high"]


def test_an_audit_attacks_the_scheme_that_train_uses() -> None:
    """By default the recommended one, as ``audit --graph`` does; the paper's where it is named."""
    settings = {key: value for key, value in AUDIT.items() if key != "support"}
    (default,) = sweep("audit", settings=settings).rows
    auto, paper = sweep("audit", settings=settings, grid={"scheme": ["auto", "paper"]}).rows
    graph = random_regular(20, 3, seed=1)
    trained = Scenario.from_spec(make_spec(**TRAIN)).scheme
    assert trained.law.name == recommend(graph).scheme.law.name == "far:2" != choose_scheme(graph).law.name
    for row, scheme in ((default, trained), (auto, trained), (paper, choose_scheme(graph))):
        expected = audit(scheme, observers="last-hop", updates=500)
        assert row["hops_per_update"] == expected.hops_per_update.mean
        assert row["hit_ratio"] == expected["last-hop"].hit_ratio


def test_more_seeds_keep_what_was_done(tmp_path: Path) -> None:
    """Cases are named by their settings, not by their number."""
    store = JobStore(tmp_path)
    sweep("audit", settings=AUDIT, grid={"law": ["plain"], "seed": [2]}, store=store)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    found = sweep("audit", settings=AUDIT, grid={"law": ["plain"], "seed": [1, 2]}, store=store)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert [row["job"] for row in found.rows] == [0, 1]


def test_a_file_that_changed_is_another_case(tmp_path: Path) -> None:
    """By what it holds: the same content is found again, other content is run, and rows name the file alone."""
    store, path = JobStore(tmp_path / "jobs"), tmp_path / "ring.txt"
    fixed = {"law": "uniform-node", "observers": "last-hop", "updates": 500, "support": "2:3", "seed": 1}

    def swept(nodes: int) -> tuple[float, int]:
        path.write_text("".join(f"{node} {(node + step) % nodes}\n" for node in range(nodes) for step in (1, 2)))
        found = sweep("audit", settings=fixed, grid={"graph": [f"file:{path}"]}, store=store)
        assert found.failed == []
        assert found.rows[0]["graph"] == f"file:{path}"
        return found.rows[0]["node_entropy_nats"], len(list((tmp_path / "jobs").iterdir()))

    (first, one), (other, two), (again, still) = swept(12), swept(15), swept(12)
    assert (one, two, still) == (1, 2, 2)
    assert first == again != other


def test_designs_are_swept_too() -> None:
    """One row a case: what it costs and what it leaves hidden."""
    fixed = {"graph": "rrg:20:3:seed=1", "support": "2:3", "law": "uniform-node"}
    rows = sweep("design", settings=fixed, grid={"walk": ["simple", "non-backtracking"]}).rows
    assert rows[0]["hops_per_update"] > rows[1]["hops_per_update"]
    assert {"node_entropy_nats", "hit_ratio"} <= set(rows[0])


def test_the_first_case_tells_what_all_take(tmp_path: Path) -> None:
    """It is kept; with all done nothing is left."""
    plan, store = SweepPlan(kind="audit", settings=AUDIT, grid={"seed": [1, 2, 3]}), JobStore(tmp_path)
    found = plan.estimate_cost(workers=2, store=store)
    assert (found["jobs"], found["done"], found["error"]) == (3, 0, None)
    assert found["seconds"] == found["seconds_each"] > 0
    assert found["memory_bytes"] > 10_000_000
    assert plan.estimate_cost(workers=2, store=store)["done"] == 1
    sweep(plan, store=store)
    assert plan.estimate_cost(workers=2, store=store)["seconds"] == 0.0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"kind": "fly"}, "kind"),
        ({"kind": "routes"}, "tools.rivals.sweep"),
        ({"kind": "learn"}, 'audit = "none"'),
        ({"kind": "train", "settings": {"hop": 1.0}}, "hop"),
        ({"kind": ["train"]}, "kind"),
        ({"kind": "train", "settings": 3}, "settings"),
        ({"kind": "train", "grid": [1]}, "grid"),
        ({"kind": "train", "cases": 3}, "cases"),
        ({"kind": "train", "cases": [3]}, "cases"),
        ({"kind": "train", "grid": {"sead": [1]}}, "sead"),
        ({"kind": "audit", "grid": {"sead": [1]}}, "sead"),
        ({"kind": "design", "grid": {"updates": [1]}}, "updates"),
        ({"kind": "audit", "grid": {"seed": 1}}, "seed"),
        ({"kind": "audit", "grid": {"seed": []}}, "seed"),
        ({"kind": "audit", "settings": {"seed": 1}, "grid": {"seed": [1]}}, "seed"),
        ({"kind": "audit", "cases": [{"seed": 1}], "grid": {"seed": [1]}}, "seed"),
    ],
)
def test_a_plan_is_refused_before_anything_is_run(given: dict[str, Any], named: str) -> None:
    """By the key that is wrong."""
    with pytest.raises((ConfigError, InvalidParameterError), match=named):
        SweepPlan(**{"settings": {}, "grid": {}} | given)


def test_the_command_writes_tables_figure_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that fails is listed; the others are there, and the exit code says so."""
    path, out = tmp_path / "laws.toml", tmp_path / "out"
    path.write_text(FILE)
    code, said, complaint = Cli(capsys)(["sweep", str(path), "--out", str(out), "--engine", "serial"])
    assert code == 1
    assert complaint.count("failed: law = 'nonsense'") == 2
    with (out / "sweep.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["law"], row["seed"], row["observer"]) for row in rows] == [
        ("uniform-node", seed, observer) for seed in "12" for observer in ("prior", "last-hop")
    ]
    assert all(name in said for name in ("record.json", "summary.csv", "sweep.png", "report.html"))
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    assert "nonsense" in page
    assert "uniform-node" in page
    # Numbers say what they are, in the terminal and on the page.
    assert all("95% t intervals over seeds" in text and "of each observer" in text for text in (said, page))
    assert " ± " in said
    assert "http" not in page.partition("<body>")[2]
    # Read in the dark, on paper and aloud.
    assert all(part in page for part in ("prefers-color-scheme: dark", "@media print", '<th scope="col">', "<caption>"))


def test_a_dry_run_says_how_much_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases, time and memory."""
    path = tmp_path / "laws.toml"
    path.write_text(FILE)
    code, said, _ = Cli(capsys)(["sweep", str(path), "--out", str(tmp_path / "out"), "--dry-run"])
    assert code == 0
    assert said.startswith("4 cases of audit, 0 of them done; swept: law, seed\none took ")
    assert not (tmp_path / "out" / "sweep.csv").exists()


def test_parquet_holds_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixed columns become text; without pyarrow there is none."""
    rows: list[dict[str, Any]] = [{"a": 1, "b": "x"}, {"a": 2.5, "b": 3}, {"a": None}]
    data = parquet_table(rows)
    if data is not None:
        from io import BytesIO

        from pyarrow import parquet

        assert parquet.read_table(BytesIO(data)).to_pylist() == [
            {"a": 1.0, "b": "x"},
            {"a": 2.5, "b": "3"},
            {"a": None, "b": None},
        ]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert parquet_table(rows) is None


@pytest.mark.parametrize(("page", "cases"), [("how-to/work-with-a-run.md", 9), ("reference/cli.md", 12)])
def test_the_files_that_pages_show_are_sweeps(page: str, cases: int, tmp_path: Path) -> None:
    """Read as they stand there."""
    text = (Path(__file__).parents[3] / "docs" / page).read_text()
    block = re.search(r"\n\n((?:    .*\n)*    kind = .*\n(?:    .*\n)+)", text)
    assert block is not None
    path = tmp_path / "shown.toml"
    path.write_text(textwrap.dedent(block[1]))
    assert len(SweepPlan.read(path).jobs()) == cases


def test_the_how_to_can_be_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file, with fewer updates; its commands but for the one of another engine; its lines of Python."""
    page = Path(__file__).parents[3] / "docs" / "how-to" / "work-with-a-run.md"
    text = page.read_text().partition("## Sweep over")[2]
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE)]
    settings, commands, python = (block.strip() for block in blocks)
    monkeypatch.chdir(tmp_path)
    assert len(settings.splitlines()) == 10
    assert "updates = 400" in settings
    (tmp_path / "noise.toml").write_text(settings.replace("updates = 400", "updates = 40"))
    dry, whole, elsewhere = commands.splitlines()
    assert elsewhere == f"{whole} --engine ray"
    for line in (dry, f"{whole} --engine serial"):
        code, _, complaint = Cli(capsys)(line.split()[1:])
        assert (code, complaint) == (0, "")
    assert all((tmp_path / "noise" / name).exists() for name in ("report.html", "sweep.csv"))
    names: dict[str, Any] = {}
    exec(python.replace("5_000", "500"), names)  # noqa: S102  our own page
    assert [(row["law"], row["runs"]) for row in names["found"].summary()] == [
        (law, 3) for law in ("uniform-distance", "uniform-node") for _ in ("prior", "last-hop")
    ]


def test_a_case_has_one_coalition() -> None:
    """Several are swept over, by a list; what fails says what is needed."""
    found = sweep("audit", settings=AUDIT | {"colluders": "5%,10%"})
    assert [one["error"] for one in found.failed] == [
        "colluders = '5%,10%': must be one number or share of the nodes, 0 to 20 of them"
    ]
