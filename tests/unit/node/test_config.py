"""A node's own settings: what is wrong with them is one line that says so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns.campaign_crashes import AIMS
from tests.helpers.manifests import make_test_manifest

import veilwalk.node
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.core.walk import Walk
from veilwalk.node import Limits, NodeConfig, RunRules, load_config
from veilwalk.node.members import Manifest, RunFigures
from veilwalk.node.spool import arm

ROOT = Path(__file__).parents[3]
GOOD = """
keys = "keys"
root = "../root.pub"
roster = "../roster.json"
manifest = "../manifest.json"
law = "/etc/law.npz"
data = "data.npz"
state = "state"
starts = true
max_loss_ratio = 2
metrics = "127.0.0.1:9100"

[limits]
pin_s = 30
quota = 2
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, GOOD))
    assert config.keys == tmp_path / "keys"
    assert config.law == Path("/etc/law.npz")
    assert config.starts
    assert config.max_loss_ratio == 2.0
    assert config.limits == Limits(pin_s=30.0, quota=2)
    assert config.password_file is None


def test_metrics_leave_the_machine_only_when_told(tmp_path: Path) -> None:
    """As in a container: one word more than the address."""
    told = GOOD.replace("127.0.0.1:9100", "0.0.0.0:9100").replace("starts", "metrics_public = true\nstarts")
    assert load_config(written(tmp_path, told)).metrics == "0.0.0.0:9100"


def test_tables_of_several_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    """Each run is a node with settings of its own."""
    with pytest.raises(InvalidParameterError, match=r"run = .*: must be left out: .*operate-nodes\.md"):
        load_config(written(tmp_path, f'{GOOD}\n[[run]]\nname = "small"\n'))


@pytest.mark.parametrize(
    ("change", "error", "names"),
    [
        (("starts", "start"), ConfigError, "'start'"),
        (("pin_s", "pins_s"), ConfigError, "'pins_s'"),
        (('keys = "keys"', ""), ConfigError, "lacks 'keys'"),
        (("starts = true", "starts = 1"), InvalidParameterError, "starts = 1: must be true or false"),
        (('data = "data.npz"', "data = 3"), InvalidParameterError, "data = 3: must be text"),
        (("quota = 2", "quota = 2.5"), InvalidParameterError, "quota = 2.5: must be a whole number"),
        (("quota = 2", "quota = 0"), InvalidParameterError, "quota"),
        (("pin_s = 30", "pin_s = -1"), InvalidParameterError, "pin_s"),
        (("127.0.0.1:9100", "0.0.0.0:9100"), InvalidParameterError, "loopback"),
        (("starts = true", 'log = "xml"'), InvalidParameterError, "log = 'xml': must be one of json, text"),
        (("127.0.0.1:9100", "nonsense"), InvalidParameterError, "host:port"),
        (("max_loss_ratio = 2", "max_loss_ratio = -2"), InvalidParameterError, "max_loss_ratio"),
        (("starts = true", "training_s = -1"), InvalidParameterError, "training_s = -1"),
        (('state = "state"', 'state = "keys/"'), InvalidParameterError, "another folder than keys"),
        (("[limits]", "[limits"), InputFileError, "TOML"),
        (("[limits]\npin_s = 30\nquota = 2", "limits = 3"), InvalidParameterError, "limits = 3: must be a table"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, change: tuple[str, str], error: type[VeilwalkError], names: str
) -> None:
    text = GOOD.replace("limits = 3", "") if change[1] == "limits = 3" else GOOD
    text = text.replace(*change)
    if change[1] == "limits = 3":
        text = "limits = 3\n" + text.replace("limits = 3", "")
    with pytest.raises(error, match=names) as caught:
        load_config(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"none\.toml"):
        load_config(tmp_path / "none.toml")


def test_every_key_is_documented() -> None:
    """The page on settings names each key of node.toml and each limit."""
    text = (ROOT / "docs" / "reference" / "node-settings.md").read_text()
    for kind in (NodeConfig, Limits):
        for entry in fields(kind):
            assert f"`{entry.name}`" in text or entry.name == "limits", entry.name


def test_rules_are_what_the_manifest_says() -> None:
    """The options of the run as they were given, and its figures."""
    manifest = make_test_manifest(
        spec={"walk": "non-backtracking", "updates": 400, "hop": 0.02, "dwell": 1.5, "target_accuracy": 0.925},
        figures=RunFigures(
            late_hops=7070.0, clip=0.5, noise=2.0, rows=10, most_updates=3, decay=9, fade=2.0, train_probability=0.5
        ),
    )
    rules = Manifest.parse(manifest.data, "m").rules
    assert rules == RunRules(
        walk=Walk("non-backtracking"), updates=400, target=0.925, late_hops=7070, hop_s=0.02, dwell_s=1.5,
        clip=0.5, noise=2.0, rows=10, most_updates=3, decay=9, fade=2.0, train_probability=0.5,
    )  # fmt: skip
    assert rules.late_s == 7070 * 1.5


@pytest.mark.parametrize(
    ("spec", "figures"),
    [
        ({"walk": "lazy"}, {}),
        ({"walk": None}, {}),
        ({"dwell": None}, {}),
        ({"updates": 5_000_000_000}, {}),
        ({"updates": 99, "walks": 65}, {}),
        ({"recipients": None}, {}),
        ({"accept": "loss:1.5"}, {"noise": 1.0, "clip": 1.0}),
        ({}, {"late_hops": float("nan")}),
        ({}, {"late_hops": 0.0}),
        ({}, {"noise": 1.0}),
        ({}, {"rows": 10}),
        ({}, {"decay": -1}),
        ({}, {"fade": -1.0}),
    ],
)
def test_rules_that_make_no_sense_are_refused(spec: dict[str, Any], figures: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, InvalidParameterError)):
        make_test_manifest(spec=spec, figures=RunFigures(**({"late_hops": 9.0} | figures)))


def test_failpoints_are_armed_by_name() -> None:
    arm({"VEILWALK_FAILPOINTS": "take.received=0,*=0.0"})
    with pytest.raises(ConfigError, match="often"):
        arm({"VEILWALK_FAILPOINTS": "take.received=often"})
    arm({})


def test_campaigns_aim_at_failpoints_that_there_are() -> None:
    """A name that is misspelt would kill nobody."""
    files = Path(veilwalk.node.__file__).parent.rglob("*.py")
    lines = [line for file in files for line in file.read_text().splitlines() if "hit(" in line]
    names = {name for line in lines for name in re.findall(r'"([a-z]+\.[a-z_]+)"', line)}
    assert len(names) >= 12
    assert names >= {point for points in AIMS.values() for point in points if point != "*"}
