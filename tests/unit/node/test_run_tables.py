"""Several runs in node.toml, and what the operator reads of each: checks, metrics, health."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.runs import two_runs

from veilwalk.core.errors import ConfigError, SpoolError, VeilwalkError
from veilwalk.node import Limits, load_config, load_configs
from veilwalk.node.peer import check_node
from veilwalk.node.peer._health import DAILY
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._metrics import MetricsServer

NODE = 'keys = "keys"\nroot = "root.pub"\nroster = "roster.json"\n'


def table(name: str, /, **changes: str) -> str:
    values = {"name": name, "manifest": f"{name}.json", "data": "data.npz", "state": f"state-{name}"} | changes
    return "[[run]]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items() if value)


def written(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text)
    return path


def test_each_run_has_its_own_and_the_node_s_common_settings(tmp_path: Path) -> None:
    path = written(tmp_path, f"{NODE}{table('a')}{table('b', learner='x:Y')}[limits]\nquota = 3\n")
    first, second = load_configs(path)
    assert (first.name, second.name) == ("a", "b")
    assert (first.state, second.state) == (tmp_path / "state-a", tmp_path / "state-b")
    assert (first.learner, second.learner) == (None, "x:Y")
    assert first.keys == second.keys == tmp_path / "keys"
    assert first.limits == second.limits == Limits(quota=3)
    assert load_config(path, "b") == second


def test_one_table_is_a_run_with_a_name(tmp_path: Path) -> None:
    path = written(tmp_path, NODE + table("a"))
    assert load_config(path) == load_config(path, "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"run = []\n{NODE}", "run = []: must be one or more tables"),
        (f"run = 3\n{NODE}", "run = 3: must be one or more tables"),
        (NODE + table("a") + table("a", manifest="b.json", state="s"), "tables 1 and 2 have the same name, a"),
        (NODE + table("a") + table("b", state="x/../state-a"), "tables 1 and 2 have the same state"),
        (NODE + table("a") + table("b", manifest="a.json"), "tables 1 and 2 have the same manifest"),
        (NODE + table("a").replace('name = "a"\n', ""), "name = None: must be 1 to 40"),
        (NODE + table('a"b').replace('a"b', "a b"), "name = 'a b': must be 1 to 40"),
        (NODE + table("a", state=""), "[[run]] a: lacks 'state'"),
        (NODE + table("a", keys="other"), "[[run]] a: key 'keys': must be one of name, manifest"),
        (f'{NODE}data = "x"\n' + table("a"), "key 'data': must be in each of the [[run]] tables"),
        (f'{NODE}name = "x"\n', "key 'name': must be in a [[run]] table"),
    ],
)
def test_what_is_wrong_with_the_tables_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(VeilwalkError) as caught:
        load_configs(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_which_run_is_meant_must_be_said(tmp_path: Path) -> None:
    path = written(tmp_path, NODE + table("a") + table("b"))
    with pytest.raises(ConfigError, match=r"has several runs: run must be one of a, b$"):
        load_config(path)
    with pytest.raises(VeilwalkError, match=r"^run = 'c': must be one of a, b$"):
        load_config(path, "c")
    alone = written(tmp_path, NODE + table("a").replace("[[run]]", "").replace('name = "a"', ""))
    assert load_config(alone).name == ""
    with pytest.raises(VeilwalkError, match=r"^run = 'a': must be left out: .* has one run, of no name$"):
        load_config(alone, "a")


def test_metrics_and_health_are_told_by_run() -> None:
    """One that does not work is unwell, one that was drained is left out, and the port's own counts have no name."""

    def run(name: str, *, troubles: tuple[str, ...] = (), works: bool = True, drained: bool = False) -> Any:
        numbers = ("roster_days_left", "manifest_days_left", "quiet_s", "stuck", "disk_free_bytes", "finished")
        health: dict[str, Any] = dict.fromkeys((*numbers, *DAILY), 3) | {"notes": ()}

        async def statistics() -> Any:
            if name == "broken":
                raise SpoolError("gone")
            events = dict.fromkeys(("turned_away", "storage_troubles", "link_losses", "link_faults"), 1)
            return SimpleNamespace(tallies={"hops": 7}, events=events, in_custody=2, links_up=2, roster_version=4)

        watch = SimpleNamespace(
            look=lambda: SimpleNamespace(troubles=troubles, **health), node=SimpleNamespace(statistics=statistics)
        )
        return SimpleNamespace(name=name, log=Log(), watch=watch if works else None, drained=drained)

    events = dict.fromkeys(("turned_away", "storage_troubles", "link_losses", "link_faults"), 9)
    runs = [
        run("a"),
        run("broken", troubles=("storage fails",)),
        run("down", works=False),
        run("left", works=False, drained=True),
    ]
    server = MetricsServer(runs, Log(), events)
    shown = asyncio.run(server._metrics()).splitlines()
    assert [line for line in shown if line.startswith("veilwalk_hops")] == ['veilwalk_hops_total{run="a"} 7']
    turned = [line for line in shown if line.startswith("veilwalk_turned_away")]
    assert turned == ['veilwalk_turned_away_total{run="a"} 1', "veilwalk_turned_away_total 9"]
    healthy = [line for line in shown if line.startswith("veilwalk_healthy")]
    assert healthy == [
        f'veilwalk_healthy{{run="{name}"}} {well}' for name, well in {"a": 1, "broken": 0, "down": 0}.items()
    ]
    status, body = asyncio.run(server._answer([b"GET", b"/healthz"]))
    assert (status[:3], body) == ("503", "broken: storage fails\ndown: does not run\n")


def test_a_check_looks_at_every_run_and_reads_the_keys_once(tmp_path: Path) -> None:
    """Or at the one that is named; what fails in one is said of that one."""
    config, *_ = two_runs(tmp_path / "c", updates=5)
    load_config(config, "wide").state.write_text("not a folder")
    found = {one.name: one.ok for one in check_node(config, peers=False)}
    assert [name for name, ok in found.items() if not ok] == ["wide: state", "wide: law"]
    assert [name for name in found if name.endswith("keys")] == ["keys"]
    named = [one.name for one in check_node(config, run="small", peers=False)]
    assert "small: law" in named
    assert not [name for name in named if "wide" in name]
