"""Settings of a training run, and the folder they belong to."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, RecordError
from veilwalk.training import RunFolder, TrainSettings


def test_settings_survive_their_own_file() -> None:
    """Text, whole numbers, fractions, and what is not set."""
    settings = TrainSettings(data='npz:a "b" ü\\c.npz', updates=5, noise=1e-7, clip=2.0, max_hops=10, seed=0)
    again = TrainSettings.of(tomllib.loads(settings.to_toml()))
    assert again == settings
    assert again.digest == settings.digest
    assert again.target_accuracy is None
    # Not said where it is as ever: runs from before there was a choice keep their names.
    assert "payload" not in settings.to_dict()


def test_every_setting_counts() -> None:
    """Two that differ anywhere have different names."""
    base = TrainSettings().digest
    changes: list[dict[str, Any]] = [{"seed": 8}, {"attack": 1}, {"latency_s": 0.03}, {"compare": "none"}]
    for change in (*changes, {"max_bytes": 1}, {"exact_nodes": 9}, {"payload": "int8"}):
        assert TrainSettings(**change).digest != base


@pytest.mark.parametrize("key", ["update", "target_accuracy", "latency-s", "Seed", "learner.rate"])
def test_unknown_keys_are_refused_by_name(key: str) -> None:
    """Also the right word with the wrong sign in it."""
    with pytest.raises(ConfigError, match=f"unknown key '{key}': must be one of accept, attack, bandwidth"):
        TrainSettings.of({key: 1})


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"updates": "many"}, "updates = 'many': must be a whole number"),
        ({"updates": 2.5}, "updates = 2.5: must be a whole number"),
        ({"updates": 0}, "updates = 0: must be >= 1"),
        ({"tokens": True}, "tokens = True: must be a whole number"),
        ({"tokens": 9, "updates": 8}, "tokens = 9: must be at most 8, the updates that they share"),
        ({"noise": "loud"}, "noise = 'loud': must be a number"),
        ({"noise": 1.0}, "noise = 1.0: must be given with clip"),
        ({"payload": "int4"}, "payload = 'int4': must be one of fp32, fp16, int8, int8-nearest"),
        ({"graph": 7}, "graph = 7: must be text"),
        ({"walk": "drunken"}, "walk = 'drunken': must be one of simple"),
        ({"compare": "gossip,fedavg"}, "compare = 'gossip,fedavg': must be none, or some of"),
        ({"compare": "gossip,gossip"}, "once each"),
        ({"support": "6"}, "support = '6': must be LO:HI"),
        ({"delta": 1.0}, "delta = 1.0"),
        ({"bandwidth": 0}, "bandwidth = 0"),
        ({"target-accuracy": 2}, "target_accuracy = 2"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_bad_values_are_refused_in_one_line(given: dict[str, object], match: str) -> None:
    """Parameter, value, need."""
    with pytest.raises(InvalidParameterError, match=match):
        TrainSettings.of(given)


def test_comparisons_may_be_none() -> None:
    """By word or by nothing."""
    assert TrainSettings(compare="none").comparisons == ()
    assert TrainSettings(compare="").comparisons == ()
    assert TrainSettings(compare="central, gossip").comparisons == ("central", "gossip")


def test_a_folder_belongs_to_its_settings(tmp_path: Path) -> None:
    """Begun once; gone on with only by the same settings, and only when asked to."""
    folder, settings = RunFolder(tmp_path / "run"), TrainSettings(seed=3)
    with pytest.raises(ConfigError, match="holds no run to resume"):
        folder.open(settings, resume=True)
    assert folder.open(settings, resume=False) == []
    with pytest.raises(ConfigError, match="holds a run already: resume it"):
        folder.open(settings, resume=False)
    assert folder.open(settings, resume=True) == []
    with pytest.raises(ConfigError, match=r"other settings \(updates = 3000, not 5; seed = 3, not 4\)"):
        folder.open(TrainSettings(seed=4, updates=5), resume=True)
    assert folder.settings() == settings
    assert folder.settings({"seed": 4}).seed == 4


def test_an_edited_config_is_another_run(tmp_path: Path) -> None:
    """The settings are kept by digest beside their text."""
    folder = RunFolder(tmp_path / "run")
    folder.open(TrainSettings(), resume=False)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("seed = 7", "seed = 8"))
    with pytest.raises(ConfigError, match="other settings"):
        folder.open(folder.settings(), resume=True)


def test_other_versions_are_told(tmp_path: Path) -> None:
    """Bits may differ then; the run goes on."""
    folder = RunFolder(tmp_path / "run")
    folder.open(TrainSettings(), resume=False)
    about = tmp_path / "run" / "run.json"
    content = json.loads(about.read_text())
    content["versions"]["numpy"] = "1.0"
    about.write_text(json.dumps(content))
    (warning,) = folder.open(TrainSettings(), resume=True)
    assert "numpy 1.0, now" in warning


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    """Anything in it but what a run killed in its first moment leaves."""
    (tmp_path / "thesis.tex").write_text("dear reader")
    with pytest.raises(ConfigError, match="not an empty folder and holds no run"):
        RunFolder(tmp_path).open(TrainSettings(), resume=False)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "config.toml").write_text("half")
    (fresh / ".run.json.x1").write_text("half")
    assert RunFolder(fresh).open(TrainSettings(), resume=False) == []
    with pytest.raises(ConfigError, match="not an empty folder"):
        RunFolder(tmp_path / "thesis.tex").open(TrainSettings(), resume=False)


def test_a_folder_is_open_to_one_at_a_time(tmp_path: Path) -> None:
    """The second is told so, and comes in once the first has closed it; a refused one leaves no folder behind."""
    with RunFolder(tmp_path / "run") as first:
        first.open(TrainSettings(), resume=False)
        with pytest.raises(RecordError, match="run: another process trains in this folder") as refused:
            RunFolder(tmp_path / "run").open(TrainSettings(), resume=True)
        assert refused.value.exit_code == 4
    with RunFolder(tmp_path / "run") as second:
        assert second.open(TrainSettings(), resume=True) == []
    with pytest.raises(ConfigError, match="no run to resume"):
        RunFolder(tmp_path / "none").open(TrainSettings(), resume=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("name", "content"), [("run.json", "{"), ("run.json", '{"format": "other"}'), ("config.toml", "= 1")]
)
def test_a_damaged_folder_is_named(tmp_path: Path, name: str, content: str) -> None:
    """The file that cannot be read."""
    folder = RunFolder(tmp_path / "run")
    folder.open(TrainSettings(), resume=False)
    (tmp_path / "run" / name).write_text(content)
    with pytest.raises(InputFileError, match=name):
        folder.open(folder.settings(), resume=True)


def test_drafts_of_a_killed_writer_are_swept_up(tmp_path: Path) -> None:
    """When the run is resumed; whole files stay."""
    folder = RunFolder(tmp_path / "run")
    folder.open(TrainSettings(), resume=False)
    (tmp_path / "run" / "checkpoints").mkdir()
    drafts = [tmp_path / "run" / ".record.json.ab12", tmp_path / "run" / "checkpoints" / ".gossip.npz.cd34"]
    for draft in drafts:
        draft.write_text("half")
    whole = tmp_path / "run" / "checkpoints" / "gossip.npz"
    whole.write_text("whole")
    folder.open(TrainSettings(), resume=True)
    assert not any(draft.exists() for draft in drafts)
    assert whole.exists()


def test_no_budget_may_be_said_by_none_or_by_nought() -> None:
    """As the settings say of themselves."""
    for none in (None, 0):
        stopping = TrainSettings(max_hops=none, max_bytes=none).stopping
        assert (stopping.max_hops, stopping.max_bytes) == (math.inf, math.inf)
