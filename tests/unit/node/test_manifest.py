"""The run manifest: one text, one digest, signed by the root, and refused when out of form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.manifests import make_test_manifest

from veilwalk.core.errors import CryptoError, InputFileError, InvalidParameterError, ProtocolError, VeilwalkError
from veilwalk.node.members._manifest import SIGNATURE_BYTES, ArraySpec, Manifest, array_specs
from veilwalk.node.sealing._body import bucket_for
from veilwalk.node.sealing._kem import Suite

ROOT = Ed25519PrivateKey.generate()
PARAMS: dict[str, Any] = {
    "weights": np.zeros((64, 10), np.float32),
    "bias": np.zeros(10),
    "steps": np.zeros((), np.int64),
}


def manifest(**options: Any) -> Manifest:
    settled: dict[str, Any] = {
        "run_id": bytes(range(16)),
        "arrays": array_specs(PARAMS),
        "suite": Suite.HYBRID,
        "norm_bound": 100.0,
        "law_digest": "ab" * 32,
        "graph_digest": "cd" * 32,
        "n_features": 64,
        "n_classes": 10,
        "spec": {"seed": 7, "learner": "softmax:rate=0.1"} | options.pop("spec", {}),
    }
    return make_test_manifest(**(settled | options))


def test_a_signed_manifest_comes_back(tmp_path: Path) -> None:
    """Every field; and only under the root's key."""
    manifest().sign(tmp_path / "run.json", ROOT)
    found = Manifest.load(tmp_path / "run.json", ROOT.public_key())
    assert found == manifest()
    assert found.digest == manifest().digest == hashlib.sha256((tmp_path / "run.json").read_bytes()).digest()
    with pytest.raises(CryptoError, match="not signed by this root key"):
        Manifest.load(tmp_path / "run.json", Ed25519PrivateKey.generate().public_key())
    content = bytearray((tmp_path / "run.json").read_bytes())
    content[content.index(b"100.0")] += 1
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(CryptoError):
        Manifest.load(tmp_path / "run.json", ROOT.public_key())


def test_the_text_is_the_one_the_page_describes() -> None:
    """A golden text: other programs must be able to write it."""
    small = manifest(arrays=(ArraySpec(name="w", shape=(2, 3), dtype="<f4"),))
    expected = (
        '{"arrays":[{"dtype":"<f4","name":"w","shape":[2,3]}],"expires":null,'
        '"figures":{"clip":0.0,"decay":0,"fade":0.0,"hops_per_update":0.0,"late_hops":1000000000.0,'
        '"most_updates":0,"noise":0.0,"rows":0,"signatures":1,"starve_hops":1000000000000.0,"train_probability":1.0,"visits_per_link":0.0},'
        f'"format":"veilwalk-manifest-3","graph_digest":"{"cd" * 32}","law_digest":"{"ab" * 32}",'
        '"n_classes":10,"n_features":64,"network":"AAECAwQFBgcICQoLDA0ODw==","norm_bound":100.0,"prev_digest":null,'
        '"run_id":"AAECAwQFBgcICQoLDA0ODw==","spec":{"accept":"none","alarm_hops":10000000.0,"allow_sandwich":false,'
        '"away":60.0,"clip":0.0,"decay":"auto","delta":1e-05,"dwell":0.0,"epsilon":0.0,"evaluations":40,"hop":0.05,"law":null,'
        '"learner":"softmax:rate=0.1","local_steps":null,"meet":0,"most_updates":0,"noise":0.0,"payload":"fp32",'
        '"protect":"node","recipients":1,"seed":7,"target_accuracy":null,"updates":400,"walk":"simple","walks":1},'
        '"suite":2,"test_digest":"","version":1}\n'
    )
    assert small.data == expected.encode()


def test_a_manifest_of_before_is_refused_in_one_line() -> None:
    """Not misread: its rules were a line of text."""
    text = manifest().data.replace(b"manifest-3", b"manifest-2")
    with pytest.raises(InputFileError, match=r"^run\.json: veilwalk-manifest-2 is of an older version"):
        Manifest.parse(text, "run.json")


def test_sizes_follow_from_the_arrays() -> None:
    """Bytes of a model, and the bucket that holds it."""
    assert manifest().body_bytes == 64 * 10 * 4 + 10 * 8 + 8
    assert manifest().bucket_bytes == bucket_for(manifest().body_bytes + SIGNATURE_BYTES)


def test_the_byte_order_of_this_machine_does_not_show() -> None:
    """Big-endian arrays are described by the little-endian type they travel as."""
    assert array_specs({"w": np.zeros(3, ">f4")}) == array_specs({"w": np.zeros(3, "<f4")})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"run_id": b"short"}, "run_id = '5 bytes'"),
        ({"arrays": ()}, "arrays = '0 arrays'"),
        ({"arrays": array_specs({"w": np.zeros(1)}) * 2}, "no name twice"),
        ({"norm_bound": 0.0}, "norm_bound = 0.0"),
        ({"norm_bound": float("nan")}, "norm_bound = nan"),
        ({"norm_bound": float("inf")}, "norm_bound = inf"),
        ({"spec": {"recipients": 65_536}}, "recipients = 65536: must be at most 65535"),
        ({"spec": {"learner": "a\nb"}}, "learner"),
        ({"spec": {"learner": "x" * 401}}, "learner"),
        ({"spec": {"learner": None}}, "learner"),
        ({"n_features": 0}, "n_features = 0"),
        ({"n_classes": -1}, "n_classes = -1"),
        ({"arrays": (ArraySpec(name="w", shape=(2**30, 8), dtype="<f8"),)}, "body_bytes"),
    ],
)
def test_a_bad_manifest_is_named(options: dict[str, Any], line: str) -> None:
    """One line with the parameter."""
    with pytest.raises(InvalidParameterError, match=line):
        manifest(**options)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "../up\n"},
        {"name": "x" * 201},
        {"dtype": ">f4"},
        {"dtype": "O"},
        {"dtype": "<c8"},
        {"dtype": "<U4"},
        {"shape": (0,)},
        {"shape": (-1, 2)},
        {"shape": (2**31,)},
        {"shape": (1,) * 9},
        {"shape": (1.5,)},
        {"shape": (None, 1)},
        {"shape": (True,)},
    ],
)
def test_a_bad_array_is_named(fields: dict[str, Any]) -> None:
    """Objects, text, other byte orders and odd shapes never get a place on the wire."""
    settled: dict[str, Any] = {"name": "w", "shape": (1,), "dtype": "<f4"} | fields
    with pytest.raises(InvalidParameterError, match=rf"^{next(iter(fields))} = "):
        ArraySpec(**settled)


@pytest.mark.parametrize("digest", ["", "zz" * 32, "AB" * 32, "ab" * 31])
def test_digests_are_hexadecimal(digest: str) -> None:
    """64 lower-case digits."""
    for name in ("law_digest", "test_digest", "graph_digest") if digest else ("graph_digest",):
        with pytest.raises(InputFileError, match=f"{name}: must be 64 lower-case"):
            manifest(**{name: digest})


def test_a_law_is_a_rule_or_a_file() -> None:
    """One of the two, and a rule that nodes can work out."""
    assert manifest(spec={"law": "far:4"}, law_digest="").law == "far:4"
    assert manifest(spec={"law": "uniform-node:2:6"}, law_digest="").law == "uniform-node:2:6"
    for law, digest in ((None, ""), ("far:4", "ab" * 32), ("far:0", ""), ("paper", ""), ("uniform-node:4:3", "")):
        with pytest.raises(InvalidParameterError, match=r"^law = "):
            manifest(spec={"law": law}, law_digest=digest)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(manifest().data)
    change(content)
    return (json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n").encode()


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown field": (lambda c: c.update(extra=1), "extra"),
    "missing field": (lambda c: c.pop("spec"), "spec"),
    "missing field with a default": (lambda c: c.pop("test_digest"), "as this version writes it"),
    "other format": (lambda c: c.update(format="x"), "not a manifest of this version"),
    "norm a whole number": (lambda c: c.update(norm_bound=1), "as this version writes it"),
    "norm text": (lambda c: c.update(norm_bound="1"), "norm_bound"),
    "version true": (lambda c: c.update(version=True), "version"),
    "suite text": (lambda c: c.update(suite="2"), "suite"),
    "suite unknown": (lambda c: c.update(suite=9), "suite"),
    "array of objects": (lambda c: c["arrays"][0].update(dtype="|O"), "dtype"),
    "array shape text": (lambda c: c["arrays"][0].update(shape="12"), "shape"),
    "array name a number": (lambda c: c["arrays"][0].update(name=1), "name"),
    "array field more": (lambda c: c["arrays"][0].update(fill=0), "fill"),
    "arrays missing": (lambda c: c.update(arrays=[]), "arrays"),
    "run short": (lambda c: c.update(run_id="AAAA"), "run_id"),
    "run no base64": (lambda c: c.update(run_id="?"), "run_id"),
    "an option more": (lambda c: c["spec"].update(colour=1), "colour"),
    "an option of a simulation": (lambda c: c["spec"].update(poison="nan"), "poison"),
    "an option missing": (lambda c: c["spec"].pop("away"), "as this version writes it"),
    "an option by its other name": (lambda c: c["spec"].update(dwell_s=c["spec"].pop("dwell")), "this version writes"),
    "seed negative": (lambda c: c["spec"].update(seed=-1), "seed"),
    "recipients none": (lambda c: c["spec"].update(recipients=0), "recipients"),
    "recipients half": (lambda c: c["spec"].update(recipients=1.5), "recipients"),
    "spec no table": (lambda c: c.update(spec=[]), "spec"),
    "figures no table": (lambda c: c.update(figures=1), "figures"),
    "figure more": (lambda c: c["figures"].update(beauty=1.0), "beauty"),
    "lateness never": (lambda c: c["figures"].update(late_hops=0.0), "late_hops"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_manifest_out_of_form_is_refused_in_one_line(case: str) -> None:
    """The line says what is wrong."""
    change, line = MALFORMED[case]
    with pytest.raises(InputFileError, match=line):
        Manifest.parse(changed(change), "run.json")
    assert Manifest.parse(changed(lambda _: None), "run.json") == manifest()


PLAIN: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.just([])
)


@settings(max_examples=200, deadline=None)
@given(
    field=st.sampled_from(sorted(json.loads(manifest().data))),
    value=PLAIN,
    inner=st.sampled_from(["", "arrays", "spec", "figures"]),
)
def test_no_document_crashes_the_parser(field: str, value: Any, inner: str) -> None:
    """Any value anywhere: accepted with its own bytes, or refused on purpose."""

    def change(content: dict[str, Any]) -> None:
        place = content[inner] if inner else content
        place = place[0] if isinstance(place, list) else place
        place[sorted(place)[len(field) % len(place)] if inner else field] = value

    raw = changed(change)
    try:
        assert Manifest.parse(raw, "run.json").data == raw
    except VeilwalkError as error:
        assert "\n" not in str(error)  # noqa: PT017  whichever it is, it is one line


def test_an_oversized_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded before it is read."""
    manifest().sign(tmp_path / "run.json", ROOT)
    monkeypatch.setattr(Manifest, "limit", 100)
    with pytest.raises(InputFileError, match="larger than the 100 bytes allowed"):
        Manifest.load(tmp_path / "run.json", ROOT.public_key())


def test_two_runs_differ_in_their_digest() -> None:
    """Whatever field changes."""
    changes: list[dict[str, Any]] = [
        {"run_id": bytes(16)},
        {"n_classes": 8},
        {"norm_bound": 101.0},
        {"suite": Suite.X25519},
    ]
    digests = {manifest().digest, *(replace(manifest(), **change).digest for change in changes)}
    assert len(digests) == len(changes) + 1


def test_a_manifest_of_another_run_says_what_a_new_run_needs(tmp_path: Path) -> None:
    """Who puts the next run's manifest in place has the old run's folder still."""
    replace(manifest(), run_id=bytes(16)).sign(tmp_path / "run.json", ROOT)
    with pytest.raises(ProtocolError, match="of another run than the one before: a new run begins with an empty state"):
        Manifest.load(tmp_path / "run.json", ROOT.public_key(), current=manifest())
