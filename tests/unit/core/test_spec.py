"""One parser for every one-line specification, and one kind of error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.spec import Spec


def test_a_spec_has_a_name_arguments_and_options() -> None:
    """Options keep their order and may occur twice; what stands before the first is an argument."""
    spec = Spec.parse(" csv:rows.csv:label=y:group=a:group=b ", parameter="data")
    assert (spec.name, spec.arguments, spec.option("label")) == ("csv", ("rows.csv",), "y")
    assert spec.option_values("group") == ("a", "b")
    assert spec.option("target") is None
    assert Spec.parse("iid", parameter="partition").arguments == ()


def test_a_file_name_may_look_like_anything() -> None:
    """The arguments that a kind needs are never read as options, and a colon in them stays."""
    spec = Spec.parse("csv:a=b.csv:label=x=y", parameter="data", files={"csv"})
    assert (spec.argument, spec.option("label")) == ("a=b.csv", "x=y")
    assert Spec.parse("csv:C:rows.csv:label=y", parameter="data", files={"csv"}).argument == "C:rows.csv"


def test_faults_name_the_parameter_and_the_text() -> None:
    """Also a name that version 0.2 had."""
    spec = Spec.parse("mlp:hidden=9:hidden=8", parameter="learner")
    faults: list[Callable[[], object]] = [
        lambda: Spec.parse("mlp:hidden=9:deep", parameter="learner"),
        lambda: Spec.parse("mlp:hidden=", parameter="learner"),
        lambda: spec.option("hidden"),
        lambda: spec.require_options(("fade",)),
        lambda: spec.convert("many", int, "mlp:hidden=UNITS"),
    ]
    for fault in faults:
        with pytest.raises(InvalidParameterError) as caught:
            fault()
        assert caught.value.name == "learner"
        assert "mlp:hidden=" in str(caught.value)
    with pytest.raises(InvalidParameterError, match="non-backtracking"):
        Spec.parse("least-recent", parameter="walk")


def test_numbers_are_converted_or_refused() -> None:
    """A whole number, a number, a text."""
    spec = Spec.parse("dirichlet:0.3", parameter="partition")
    assert spec.convert("0.3", float, "") == 0.3
    assert spec.convert("3", int, "") == 3
    assert spec.convert("3", str, "") == "3"
