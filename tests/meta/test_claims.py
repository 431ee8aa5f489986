"""The table of claims is complete and true to the code."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path

import pytest

from veilwalk.experiments import load_claims
from veilwalk.experiments._figures import Claim

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "paper" / "source-anonymity-random-walk-learning.tex.txt"
CLAIMS = load_claims()
STATUSES = ("as-printed", "corrected", "not-reproduced")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.label)
def test_each_claim_resolves(claim: Claim) -> None:
    """Its function can be imported, its test exists, its status is known."""
    assert claim.status in STATUSES
    assert callable(pkgutil.resolve_name(claim.function))
    file, _, name = claim.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_what_is_not_as_printed_says_why() -> None:
    """Except the corollary, which inherits its theorem's note."""
    silent = [c.label for c in CLAIMS if c.status != "as-printed" and not c.note]
    assert silent == ["unlabelled: corollary"]


def test_labels_are_unique() -> None:
    """One row a claim."""
    labels = [claim.label for claim in CLAIMS]
    assert len(labels) == len(set(labels))


@pytest.mark.shared_data
@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside this checkout")
def test_no_label_of_the_paper_is_missing() -> None:
    """Every label but those of sections stands in the table."""
    labels = set(re.findall(r"\\label\{([^}]*)\}", PAPER.read_text()))
    labels = {label for label in labels if not label.startswith(("sec:", "app:"))}
    assert labels <= {claim.label for claim in CLAIMS}


def test_errata_named_in_the_claims_exist() -> None:
    """A number in a note points at a numbered point of paper/errata.md."""
    text = (ROOT / "paper" / "errata.md").read_text()
    for claim in CLAIMS:
        for group in re.findall(r"errat(?:um|a) ([\d, ]+)", claim.note):
            for number in re.findall(r"\d+", group):
                assert f"**{number}." in text
