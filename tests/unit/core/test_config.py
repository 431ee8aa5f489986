"""The one decoder of settings: what it takes, what it refuses, in which words."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from veilwalk.core.config import decode, encode, read_toml, to_toml
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A table inside."""

    wait_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One field of each kind."""

    place: Path
    max_hops: int | None = None
    latency_s: float = field(default=0.5, metadata={"key": "latency"})
    name: str = ""
    starts: bool = False
    key_file: Path | None = None
    inner: Inner = field(default_factory=Inner)


def test_keys_are_names_with_dashes_or_as_the_field_says() -> None:
    """Whole numbers do for numbers; tables become dataclasses; paths begin at the folder."""
    given = {"place": "a", "max-hops": 3, "latency": 2, "key-file": "/k", "starts": True, "inner": {"wait-s": 4}}
    assert decode(Settings, given, folder=Path("/etc")) == Settings(
        place=Path("/etc/a"), max_hops=3, latency_s=2.0, key_file=Path("/k"), starts=True, inner=Inner(wait_s=4.0)
    )
    assert isinstance(decode(Settings, given).latency_s, float)
    assert decode(Settings, {"place": "a", "max-hops": None}) == Settings(place=Path("a"))


def test_files_whose_keys_have_underscores_are_read_as_such() -> None:
    """And then dashes are unknown; a key of the field's own stays what it is."""
    given = {"place": "a", "max_hops": 3, "inner": {"wait_s": 4.0}, "latency": 1.0}
    assert decode(Settings, given, dashes=False).max_hops == 3
    with pytest.raises(ConfigError, match="unknown key 'max-hops'"):
        decode(Settings, {"place": "a", "max-hops": 3}, dashes=False)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"placé": "a"}, ConfigError, "f.toml: unknown key 'placé': must be one of inner, key-file, latency, max-hops"),
        ({"latency-s": 1.0, "place": ""}, ConfigError, "unknown key 'latency-s'"),
        ({}, ConfigError, "f.toml: lacks 'place'"),
        ({"place": 3}, InvalidParameterError, "f.toml: place = 3: must be text"),
        ({"place": "", "starts": 1}, InvalidParameterError, "f.toml: starts = 1: must be true or false"),
        ({"place": "", "max-hops": True}, InvalidParameterError, "max-hops = True: must be a whole number"),
        ({"place": "", "max-hops": 2.5}, InvalidParameterError, "max-hops = 2.5: must be a whole number"),
        ({"place": "", "latency": "fast"}, InvalidParameterError, "latency = 'fast': must be a number"),
        ({"place": "", "latency": None}, InvalidParameterError, "latency = None: must be a number"),
        ({"place": "", "name": ["x"]}, InvalidParameterError, "name = ['x']: must be text"),
        ({"place": "", "inner": 3}, InvalidParameterError, "inner = 3: must be a table"),
        ({"place": "", "inner": {"wait": 3}}, ConfigError, "f.toml [inner]: unknown key 'wait': must be one of wait-s"),
    ],
)
def test_what_does_not_fit_is_one_line(given: dict[str, Any], error: type[Exception], words: str) -> None:
    """The file, the key, its value, what it must be."""
    with pytest.raises(error, match=re.escape(words)):
        decode(Settings, given, where="f.toml")


def test_toml_is_read_and_written(tmp_path: Path) -> None:
    """Text of every kind comes back; what is None stays out; a bad file is named."""
    values = {"a-b": 'say "ü"\\\n', "c": 1e-7, "d": None, "e": True}
    path = tmp_path / "f.toml"
    path.write_text(to_toml(values))
    assert read_toml(path) == {key: value for key, value in values.items() if value is not None}
    assert tomllib.loads(to_toml({})) == {}
    path.write_bytes(b"\xff = 1")
    with pytest.raises(InputFileError, match=r"f\.toml: not TOML"):
        read_toml(path)
    with pytest.raises(InputFileError, match=r"none\.toml: No such file"):
        read_toml(tmp_path / "none.toml")


class Colour(IntEnum):
    """A numbered choice."""

    RED = 1
    BLUE = 2


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a signed file holds."""

    key: bytes
    colour: Colour
    edges: tuple[tuple[str, str], ...] = ()
    keys: Mapping[int, bytes] = field(default_factory=dict)
    parts: tuple[Inner, ...] = ()
    before: bytes | None = None


RECORD = Record(key=b"\0\1", colour=Colour.BLUE, edges=(("a", "b"),), keys={3: b"k"}, parts=(Inner(wait_s=2.0),))


def test_a_record_comes_back_from_json() -> None:
    """Bytes, numbered choices, tuples, mappings by number, and dataclasses in lists."""
    text = json.loads(json.dumps(encode(RECORD)))
    assert text == {
        "key": "AAE=", "colour": 2, "edges": [["a", "b"]], "keys": {"3": "aw=="}, "parts": [{"wait_s": 2.0}],
        "before": None,
    }  # fmt: skip
    assert decode(Record, text, dashes=False) == RECORD


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key", "?"),
        ("key", 3),
        ("colour", 3),
        ("colour", True),
        ("colour", "1"),
        ("edges", "ab"),
        ("edges", [["a"]]),
        ("edges", [["a", "b", "c"]]),
        ("edges", [["a", 1]]),
        ("keys", {"03": "aw=="}),
        ("keys", {"x": "aw=="}),
        ("keys", {"²": "aw=="}),
        ("keys", {"3": 1}),
        ("keys", []),
        ("parts", [1]),
        ("parts", [{"wait": 1}]),
        ("edges", "x" * 1_000_000),
    ],
)
def test_a_record_out_of_form_is_refused_in_one_short_line(key: str, value: Any) -> None:
    with pytest.raises((ConfigError, InvalidParameterError), match=key) as refused:
        decode(Record, encode(RECORD) | {key: value}, dashes=False)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250
