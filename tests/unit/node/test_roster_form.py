"""The one text of a roster: what is out of form is refused in one line, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.rosters import first

from veilwalk.core.errors import (
    InputFileError,
    VeilwalkError,
)
from veilwalk.node.members._roster import Roster


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(first().data)
    change(content)
    return (json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode()


def node(content: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = content["members"][index]
    return found


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown field": (lambda c: c.update(extra=1), "extra"),
    "missing field": (lambda c: c.pop("epoch"), "epoch"),
    "other format": (lambda c: c.update(format="x"), "not a roster of this version"),
    "version zero": (lambda c: c.update(version=0), "version = 0"),
    "version true": (lambda c: c.update(version=True), "version"),
    "version text": (lambda c: c.update(version="1"), "version"),
    "version fraction": (lambda c: c.update(version=1.0), "version"),
    "version huge": (lambda c: c.update(version=2**40, prev_digest="A" * 43 + "="), "version"),
    "first with a predecessor": (lambda c: c.update(prev_digest="A" * 43 + "="), "prev_digest"),
    "second without": (lambda c: c.update(version=2), "prev_digest"),
    "short predecessor": (lambda c: c.update(version=2, prev_digest="AA=="), "prev_digest"),
    "id short": (lambda c: c.update(network="AAAA"), "network"),
    "suite unknown": (lambda c: c.update(suite=9), "suite"),
    "suite of other keys": (lambda c: c.update(suite=2), "1216 bytes"),
    "expires before created": (lambda c: c.update(expires=c["created"]), "expires"),
    "expires never": (lambda c: c.update(expires=10**15), "expires"),
    "negative epoch": (lambda c: c.update(epoch=-1), "epoch = -1"),
    "other epoch than the keys": (lambda c: c.update(epoch=1), "sealing keys of a"),
    "members not a list": (lambda c: c.update(members={}), "members"),
    "no nodes": (lambda c: c.update(members=[]), "edges"),
    "member not an object": (lambda c: c.update(members=[1]), "members"),
    "nodes unsorted": (lambda c: c["members"].reverse(), "sorted, each once"),
    "node twice": (lambda c: c["members"].insert(0, c["members"][0]), "sorted, each once"),
    "node with a field more": (lambda c: node(c).update(weight=1), "weight"),
    "node id a number": (lambda c: node(c).update(id=1), "members"),
    "name of another": (lambda c: node(c).update(id="b"), "certificate of b"),
    "bad address": (lambda c: node(c).update(address="nowhere"), "must be host:port"),
    "no keys": (lambda c: node(c).update(kem={}), "sealing keys of a"),
    "key for a bad epoch": (lambda c: node(c)["kem"].update({"01": ""}), "kem"),
    "key not base64": (lambda c: node(c)["kem"].update({"0": "?"}), "kem"),
    "a third key": (lambda c: node(c, 1)["kem"].update({"2": "CQ" + "A" * 41 + "="}), "sealing keys of b"),
    "a key too few": (lambda c: node(c, 1)["kem"].pop("1"), "sealing keys of b"),
    "a period left out": (lambda c: [n["kem"].update({"2": n["kem"].pop("1")}) for n in c["members"]], "keys of a"),
    "no period": (lambda c: c.update(period_s=0), "period_s"),
    "a first period to come": (lambda c: c.update(seals_from=c["created"] + 1), "seals_from"),
    "a key of no use": (lambda c: node(c)["kem"].update({"0": "A" * 43 + "="}), "messages can be sealed to"),
    "certificate cut": (lambda c: node(c).update(certificate=node(c)["certificate"][:40]), "certificate"),
    "certificate empty": (lambda c: node(c).update(certificate=""), "certificate"),
    "certificate huge": (lambda c: node(c).update(certificate="A" * 4000), "at most 1024 bytes"),
    "one sealing key for two": (lambda c: node(c, 1).update(kem=node(c)["kem"]), "their sealing keys"),
    "one sealing key for two epochs": (lambda c: node(c)["kem"].update({"1": node(c)["kem"]["0"]}), "their sealing"),
    "edges not a list": (lambda c: c.update(edges="ab"), "edges"),
    "edge of three": (lambda c: c["edges"].append(["a", "b", "c"]), "edges"),
    "edge of numbers": (lambda c: c["edges"].append([0, 1]), "edges"),
    "edge to a stranger": (lambda c: c["edges"].append(["d", "z"]), "between members"),
    "edge the wrong way": (lambda c: c.update(edges=[["b", "a"]]), "the smaller id first"),
    "edge to itself": (lambda c: c.update(edges=[["a", "a"]]), "the smaller id first"),
    "edge twice": (lambda c: c["edges"].insert(0, c["edges"][0]), "sorted, each once"),
    "no edges": (lambda c: c.update(edges=[]), "no edge"),
    "not connected": (lambda c: c.update(edges=[["a", "b"], ["c", "d"]]), "must be connected"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_roster_out_of_form_is_refused_in_one_line(case: str) -> None:
    """The line names the file and what is wrong."""
    change, line = MALFORMED[case]
    with pytest.raises(InputFileError, match=line) as refused:
        Roster.parse(changed(change), "roster.json")
    assert "\n" not in str(refused.value)
    assert Roster.parse(changed(lambda _: None), "roster.json").version == 1


@pytest.mark.parametrize(
    "turn",
    [
        lambda data: data + b"\n",
        lambda data: data[:-1],
        lambda data: b" " + data,
        lambda data: data.replace(b":", b": ", 1),
        lambda data: b'{"created":1,' + data[1:],
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b'"a"', b'"\\u0061"', 1),
        lambda data: b"[" + data[:-1] + b"]\n",
        lambda _: b"[" * 100_000,
        lambda _: b"9" * 10_000,
        lambda _: b"NaN\n",
        lambda _: b"",
    ],
)
def test_there_is_one_text_of_a_roster(turn: Callable[[bytes], bytes]) -> None:
    """Spaces, keys twice, escapes, marks, nesting: not canonical, not a roster."""
    with pytest.raises(InputFileError):
        Roster.parse(turn(first().data), "roster.json")


BASE = first().data


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), value=PLAIN)
def test_no_document_crashes_the_parser(data: st.DataObject, value: Any) -> None:
    """Any value at any place: accepted with its own bytes, or refused on purpose."""
    content = json.loads(BASE)
    place: Any = content
    while True:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    raw = (json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode()
    try:
        assert Roster.parse(raw, "roster.json").data == raw
    except VeilwalkError as error:
        assert "\n" not in str(error)  # noqa: PT017  whichever it is, it is one line


@given(raw=st.binary(max_size=300))
def test_no_bytes_crash_the_parser(raw: bytes) -> None:
    """Refused, whatever they are."""
    with pytest.raises(InputFileError):
        Roster.parse(raw, "roster.json")
