"""The front door: what has the wrong type is taken where that is natural, else refused by one error that names it."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import veilwalk as vw
from veilwalk.core.errors import InvalidParameterError


class DataFrame:
    """As of pandas, which need not be installed: iterates over its columns, prints in several lines."""

    def __iter__(self) -> Iterator[str]:
        return iter(("age", "sex", "outcome"))

    def __repr__(self) -> str:
        return "   age  sex  outcome\n0    1    2        0"


SPEC = "rrg:20:3:seed=1"
GRAPH = vw.parse_graph_spec(SPEC)
SCHEME = vw.choose_scheme(GRAPH, "uniform-node", support=(2, 3))
DENSE = SCHEME.law.matrix.toarray()
FRAME = DataFrame()
SHORT: dict[str, Any] = {"data": "digits", "learner": "softmax", "updates": 3, "compare": "none", "attack": 0}
QUICK: dict[str, Any] = {"updates": 200, "observers": "prior"}

# Wrong types on purpose: any call takes them here.
train: Any = vw.train
audit: Any = vw.audit
design: Any = vw.design
choose_scheme: Any = vw.choose_scheme
recommend: Any = vw.recommend
Scheme: Any = vw.Scheme
DestinationLaw: Any = vw.DestinationLaw

REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "train a graph": ("scheme", lambda: train(GRAPH, **SHORT)),
    "audit a graph": ("scheme", lambda: audit(GRAPH)),
    "audit a spec": ("scheme", lambda: audit(SPEC)),
    "audit with settings that are none": ("settings", lambda: audit(SCHEME, 5)),
    "audit with an option that is none": ("update", lambda: audit(SCHEME, update=5)),
    "audit with an observer that is none": ("observers", lambda: audit(SCHEME, observers=(int,))),
    "audit with a number of observers": ("observers", lambda: audit(SCHEME, observers=5)),
    "audit with an executor that is none": ("executor", lambda: audit(SCHEME, executor=5, **QUICK)),
    "audit with a folder as store": ("store", lambda: audit(SCHEME, store="jobs", **QUICK)),
    "design on a number": ("graph", lambda: design(5)),
    "design with a matrix": ("law", lambda: design(GRAPH, DENSE[:2])),
    "design with an option that is none": ("budget", lambda: design(GRAPH, "uniform-node", budget=5)),
    "design with a number that is text": ("budget_hops", lambda: design(GRAPH, "uniform-node", budget_hops="9")),
    "design with recipients": ("recipients", lambda: design(GRAPH, recipients=500)),
    "design with one distance": ("support", lambda: design(GRAPH, "uniform-node", support=5)),
    "compare with nothing": ("compare", lambda: train(SCHEME, **SHORT | {"compare": None})),
    "train with an option that is none": ("update", lambda: train(SCHEME, **SHORT, update=5)),
    "train on a frame": ("data", lambda: train(SCHEME, **SHORT | {"data": FRAME})),
    "train into a number": ("out", lambda: train(SCHEME, **SHORT, out=5)),
    "train with an epsilon that is text": ("epsilon", lambda: train(SCHEME, **SHORT, epsilon="8")),
    "choose a matrix": ("law", lambda: choose_scheme(GRAPH, DENSE[:2])),
    "choose on nothing": ("graph", lambda: choose_scheme(None)),
    "recommend on a frame": ("graph", lambda: recommend(FRAME)),
    "recommend with a sealing that is none": ("sealing", lambda: recommend(GRAPH, sealing=5)),
    "a scheme with the name of a law": ("law", lambda: Scheme(GRAPH, "uniform-node")),
    "a scheme with a walk that is none": ("walk", lambda: Scheme(GRAPH, SCHEME.law, 5)),
    "a law that is no matrix": ("law", lambda: DestinationLaw((2, 3), GRAPH.digest, None)),
    "a law that is a row": ("law", lambda: DestinationLaw((2, 3), GRAPH.digest, [0.5, 0.5])),
    "a law with a graph for its digest": ("graph_digest", lambda: DestinationLaw((2, 3), GRAPH, DENSE)),
}

TAKEN: dict[str, Callable[[], object]] = {
    "design on a spec": lambda: design(SPEC, "uniform-node", support=[2, 3]).scheme.graph.digest == GRAPH.digest,
    "compare with a list": lambda: len(train(SCHEME, **SHORT | {"compare": ["gossip"]}).rows()) > 0,
    "a scheme with the name of a walk": lambda: Scheme(GRAPH, SCHEME.law, "lazy").walk == vw.Walk("lazy"),
    "choose on a spec": lambda: choose_scheme(SPEC).graph.digest == GRAPH.digest,
    "a law that is a dense matrix": lambda: np.array_equal(
        DestinationLaw((2, 3), GRAPH.digest, DENSE).matrix.toarray(), DENSE
    ),
    "a law that is another sparse matrix": lambda: isinstance(
        DestinationLaw((2, 3), GRAPH.digest, sparse.coo_matrix(DENSE)).matrix, sparse.csr_array
    ),
    "train with the usual learner": lambda: train(SCHEME, **SHORT | {"learner": None}),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_the_wrong_type_is_refused_by_name(call: str) -> None:
    """In one line, whatever the value prints as, and by no error from inside."""
    parameter, mistake = REFUSED[call]
    with pytest.raises(InvalidParameterError) as refused:
        mistake()
    assert refused.value.name == parameter
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("call", TAKEN)
def test_what_is_natural_is_taken(call: str) -> None:
    """Text for what it names, a list of names, any kind of matrix."""
    assert TAKEN[call]()


def test_a_law_file_may_be_a_path(tmp_path: Path) -> None:
    """As well as text."""
    vw.save_scheme(tmp_path / "law.npz", SCHEME)
    assert np.array_equal(choose_scheme(GRAPH, tmp_path / "law.npz").law.matrix.toarray(), DENSE)


@pytest.mark.parametrize(
    "call",
    [
        lambda progress: audit(SCHEME, **QUICK, progress=progress),
        lambda progress: design(GRAPH, "uniform-node", progress=progress),
        lambda progress: train(SCHEME, **SHORT, progress=progress),
        lambda progress: recommend(GRAPH, progress=progress),
    ],
    ids=["audit", "design", "train", "recommend"],
)
def test_long_calls_show_how_far_they_are(
    call: Callable[..., object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where asked: a bar on a terminal, a line in a log, or a function of one's own; else nothing at all."""
    stages: list[str] = []
    call(progress=lambda stage, *_: stages.append(stage))
    call(progress=False)
    assert capsys.readouterr() == ("", "")
    call(progress=True)
    assert capsys.readouterr().err.startswith(f"veilwalk: so far: {stages[0]}")
    monkeypatch.setenv("FORCE_COLOR", "1")
    call(progress=True)
    shown = capsys.readouterr()
    assert stages[0] in shown.err
    assert (shown.out, "so far" in shown.err) == ("", False)
    with pytest.raises(InvalidParameterError) as refused:
        call(progress=5)
    assert refused.value.name == "progress"


def test_results_print_in_a_line() -> None:
    """With what tells them from others, and without their arrays."""
    found = vw.design(GRAPH, "uniform-node", support=(2, 3))
    assert repr(found.scheme) == "Scheme(rrg:20:3:seed=1, law uniform-node, simple walk, sealed for 1)"
    for one in (found, found.scheme, found.exposure, found.scheme.law):
        assert repr(one).startswith(type(one).__name__)
        assert len(repr(one)) <= 160
        assert "\n" not in repr(one)


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (vw.audit, {"scheme": inspect.Parameter.empty, "updates": 500_000, "colluders": None}),
        (vw.design, {"graph": inspect.Parameter.empty, "law": None, "observer": "return-time"}),
        (vw.train, {"scheme": inspect.Parameter.empty, "updates": 3000, "epsilon": 0.0}),
    ],
    ids=["audit", "design", "train"],
)
def test_help_shows_the_call_with_its_options(call: Any, options: dict[str, object]) -> None:
    """Each with its type and its default, of the room as of its function."""
    shown = inspect.signature(call).parameters
    assert {name: shown[name].default for name in options} == options
    assert all(one.annotation is not inspect.Parameter.empty for one in shown.values())
    assert not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in shown.values())
    page = pydoc.plain(pydoc.render_doc(call)).replace("'", "")
    assert "Example:" in page
    assert "progress: Progress | bool = False" in page
