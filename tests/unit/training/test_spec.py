"""The specification of a run, its views, and the folder that a run belongs to."""

from __future__ import annotations

import inspect
import json
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError, RecordError
from veilwalk.training import CLUSTER, MANIFEST, TRAIN, RunFolder, RunSpec, make_spec, train
from veilwalk.training._spec import TrainOptions


def test_settings_survive_their_own_file() -> None:
    """Text, whole numbers, fractions, and what is not set."""
    settings = make_spec(data='npz:a "b" ü\\c.npz', updates=5, noise=1e-7, clip=2.0, max_hops=10, seed=0)
    again = TRAIN.read(tomllib.loads(settings.to_toml(TRAIN)))
    assert again == settings
    assert again.digest == settings.digest
    assert again.end.target_accuracy is None


def test_every_setting_counts() -> None:
    """Two that differ anywhere have different names."""
    base = make_spec().digest
    changes: list[dict[str, Any]] = [{"seed": 8}, {"attack": 1}, {"latency_s": 0.03}, {"compare": "none"}]
    for change in (*changes, {"max_bytes": 1}, {"attack": 9}, {"payload": "int8"}):
        assert make_spec(**change).digest != base


@pytest.mark.parametrize("key", ["update", "latency-s", "Seed", "learner.rate"])
def test_unknown_keys_are_refused_by_name(key: str) -> None:
    """Also the right word with the wrong sign in it."""
    with pytest.raises(ConfigError, match=f"unknown key '{key}': must be one of accept, app, attack, audit, bandwidth"):
        TRAIN.read({key: 1})


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"updates": "many"}, "updates = 'many': must be a whole number"),
        ({"updates": 2.5}, "updates = 2.5: must be a whole number"),
        ({"updates": 0}, "updates = 0: must be >= 1"),
        ({"walks": True}, "walks = True: must be a whole number"),
        ({"walks": 9, "updates": 8}, "walks = 9: must be at most 8, the updates that they share"),
        ({"audit": "some"}, "audit = 'some': must be one of auto, none"),
        ({"noise": "loud"}, "noise = 'loud': must be a number"),
        ({"noise": 1.0}, "noise = 1.0: must be given with clip"),
        ({"payload": "int4"}, "payload = 'int4': must be one of fp32, fp16, int8, int8-nearest"),
        ({"graph": 7}, "graph = 7: must be text"),
        ({"walk": "drunken"}, "walk = 'drunken': must be one of simple"),
        ({"compare": "gossip,server"}, "compare = 'gossip,server': must be none, or some of"),
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
        TRAIN.read(given)


def test_comparisons_may_be_none() -> None:
    """By word or by nothing."""
    assert make_spec(compare="none").checks.comparisons == ()
    assert make_spec(compare="").checks.comparisons == ()
    assert make_spec(compare="central, gossip").checks.comparisons == ("central", "gossip")


def test_a_folder_belongs_to_its_settings(tmp_path: Path) -> None:
    """Begun once; gone on with only by the same settings, and only when asked to."""
    folder, settings = RunFolder(tmp_path / "run"), make_spec(seed=3)
    with pytest.raises(ConfigError, match="holds no run to resume"):
        folder.open(settings, resume=True)
    assert folder.open(settings, resume=False) == []
    with pytest.raises(ConfigError, match="holds a run already: resume it"):
        folder.open(settings, resume=False)
    assert folder.open(settings, resume=True) == []
    with pytest.raises(ConfigError, match=r"other settings \(seed = 3, not 4; updates = 3000, not 5\)"):
        folder.open(make_spec(seed=4, updates=5), resume=True)
    assert folder.spec() == settings
    assert folder.spec({"seed": 4}).seed == 4


def test_an_edited_config_is_another_run(tmp_path: Path) -> None:
    """The settings are kept by digest beside their text."""
    folder = RunFolder(tmp_path / "run")
    folder.open(make_spec(), resume=False)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("seed = 7", "seed = 8"))
    with pytest.raises(ConfigError, match="other settings"):
        folder.open(folder.spec(), resume=True)


def test_other_versions_are_told(tmp_path: Path) -> None:
    """Bits may differ then; the run goes on."""
    folder = RunFolder(tmp_path / "run")
    folder.open(make_spec(), resume=False)
    about = tmp_path / "run" / "run.json"
    content = json.loads(about.read_text())
    content["versions"]["numpy"] = "1.0"
    about.write_text(json.dumps(content))
    (warning,) = folder.open(make_spec(), resume=True)
    assert "numpy 1.0, now" in warning


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    """Anything in it but what a run killed in its first moment leaves."""
    (tmp_path / "thesis.tex").write_text("dear reader")
    with pytest.raises(ConfigError, match="not an empty folder and holds no run"):
        RunFolder(tmp_path).open(make_spec(), resume=False)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "config.toml").write_text("half")
    (fresh / ".run.json.x1").write_text("half")
    assert RunFolder(fresh).open(make_spec(), resume=False) == []
    with pytest.raises(ConfigError, match="not an empty folder"):
        RunFolder(tmp_path / "thesis.tex").open(make_spec(), resume=False)


def test_a_folder_is_open_to_one_at_a_time(tmp_path: Path) -> None:
    """The second is told so, and comes in once the first has closed it; a refused one leaves no folder behind."""
    with RunFolder(tmp_path / "run") as first:
        first.open(make_spec(), resume=False)
        with pytest.raises(RecordError, match="run: another process trains in this folder") as refused:
            RunFolder(tmp_path / "run").open(make_spec(), resume=True)
        assert refused.value.exit_code == 4
    with RunFolder(tmp_path / "run") as second:
        assert second.open(make_spec(), resume=True) == []
    with pytest.raises(ConfigError, match="no run to resume"):
        RunFolder(tmp_path / "none").open(make_spec(), resume=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("name", "content"), [("run.json", "{"), ("run.json", '{"format": "other"}'), ("config.toml", "= 1")]
)
def test_a_damaged_folder_is_named(tmp_path: Path, name: str, content: str) -> None:
    """The file that cannot be read."""
    folder = RunFolder(tmp_path / "run")
    folder.open(make_spec(), resume=False)
    (tmp_path / "run" / name).write_text(content)
    with pytest.raises(InputFileError, match=name):
        folder.open(folder.spec(), resume=True)


def test_drafts_of_a_killed_writer_are_swept_up(tmp_path: Path) -> None:
    """When the run is resumed; whole files stay."""
    folder = RunFolder(tmp_path / "run")
    folder.open(make_spec(), resume=False)
    (tmp_path / "run" / "checkpoints").mkdir()
    drafts = [tmp_path / "run" / ".record.json.ab12", tmp_path / "run" / "checkpoints" / ".gossip.npz.cd34"]
    for draft in drafts:
        draft.write_text("half")
    whole = tmp_path / "run" / "checkpoints" / "gossip.npz"
    whole.write_text("whole")
    folder.open(make_spec(), resume=True)
    assert not any(draft.exists() for draft in drafts)
    assert whole.exists()


def test_no_budget_may_be_said_by_none_or_by_nought() -> None:
    """As the settings say of themselves."""
    ledger = SimpleNamespace(hops=np.arange(5), sent_bytes=np.arange(5))
    for none in (None, 0):
        assert make_spec(max_hops=none, max_bytes=none).end.budget(ledger) == (4, "all updates made")  # type: ignore[arg-type]
    assert make_spec(max_hops=2).end.budget(ledger) == (2, "budget of hops spent")  # type: ignore[arg-type]


VIEWS = {"train": TRAIN, "cluster": CLUSTER, "manifest": MANIFEST}


def test_keywords_of_train_are_the_options_of_its_view() -> None:
    """Type checkers know each by its name and type; data, partition and learner are arguments, the scheme says more."""
    said_otherwise = {"graph", "choice", "law", "support", "walk", "recipients", "data", "partition", "learner"}
    said_otherwise.add("app")
    known, typed = {one.name: one.type for one in TRAIN.options}, get_type_hints(TrainOptions)
    assert typed.keys() == known.keys() - said_otherwise
    # In Python the names of comparisons may also be a list.
    assert {name for name, kind in typed.items() if kind != known[name]} == {"compare"}
    shown = inspect.signature(train).parameters
    assert all(shown[name].default == make_spec().options[name].default for name in typed)
    assert not shown.keys() & {"graph", "choice", "scheme_choice", "law", "walk", "recipients", "options"}


@pytest.mark.parametrize("verb", VIEWS)
def test_a_view_takes_its_own_options_and_refuses_all_others(verb: str) -> None:
    """By name and by key; every option belongs to some verb."""
    view = VIEWS[verb]
    for name, one in RunSpec().options.items():
        for spelling in {name, one.key}:
            if name in {one.name for one in view.options}:
                assert view.read({spelling: view.defaults.options[name].default}) == view.defaults
                continue
            with pytest.raises(InvalidParameterError, match="does not take it") as refused:
                view.read({spelling: one.default})
            assert refused.value.name == spelling
    assert {one.name for each in VIEWS.values() for one in each.options} == set(RunSpec().options)


@pytest.mark.parametrize(("key", "instead"), [("tokens", "walks"), ("membership", "examples.comparisons")])
def test_keys_of_version_0_2_are_refused_with_what_replaces_them(key: str, instead: str) -> None:
    with pytest.raises(InvalidParameterError, match=instead):
        TRAIN.read({key: 1})


def test_options_have_one_name_and_one_key_each() -> None:
    """No two options of a run share a name or a key, and none is called like a part, but for the choice of a scheme."""
    options = RunSpec().options.values()
    spellings = [spelling for one in options for spelling in {one.name, one.key}]
    assert len(spellings) == len(set(spellings))
    assert set(spellings) & {one.part for one in options} == {"scheme"}
    with pytest.raises(ConfigError, match="'target-accuracy' is given twice"):
        TRAIN.read({"target-accuracy": 0.5, "target_accuracy": 0.6})


def test_a_run_is_changed_by_name_or_by_key_and_checked_again() -> None:
    spec = make_spec().change(hop=0.5, max_hops=9, scheme="paper")
    assert (spec.timing.hop_s, spec.end.max_hops, spec.scheme.choice) == (0.5, 9, "paper")
    assert spec.params()["hop"] == 0.5
    assert spec.params(TRAIN).keys() == {one.key.replace("-", "_") for one in TRAIN.options}
    assert TRAIN.read(spec.params(TRAIN)) == spec.change(hop=0.05)
    with pytest.raises(InvalidParameterError, match="walks = 9"):
        spec.change(updates=8, walks=9)
    with pytest.raises(ConfigError, match="unknown key 'speed'"):
        spec.change(speed=1)
