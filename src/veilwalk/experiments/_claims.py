"""The paper's claims: what each says, which function implements it, which test checks it, and how it stands."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

STATUSES = ("as-printed", "corrected", "not-reproduced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One definition, assumption, lemma, proposition, theorem, corollary, equation or figure of the paper."""

    label: str
    kind: str
    says: str
    function: str
    test: str
    status: str
    note: str = ""


def load_claims() -> tuple[Claim, ...]:
    """Read the table of claims, ``paper/claims.toml`` in the repository."""
    text = resources.files(__package__).joinpath("claims.toml").read_text(encoding="utf-8")
    return tuple(Claim(**entry) for entry in tomllib.loads(text)["claim"])
