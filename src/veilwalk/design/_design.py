"""Designs a scheme: the law for a graph with its price, its exposure and its distance from the best.

A scheme with one recipient has an exact law: price, exposure, window floor and certificates follow from tables of all
pairs. With more recipients, or on graphs too large for tables, walks are sampled (``evaluate_scheme``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from scipy import special

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import MessageGeometry, SuiteChoice, choose_suite
from veilwalk.core.progress import Progress, show_progress, silent
from veilwalk.core.records import Record
from veilwalk.core.rooms import show_options
from veilwalk.core.sizes import SMALL_NODES
from veilwalk.core.stats import Estimate
from veilwalk.core.support import DistanceSupport
from veilwalk.core.tables import Tabular
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._channel import Exposure
from veilwalk.design._files import choose_scheme, is_law_file
from veilwalk.design._law import DestinationLaw, LawLike
from veilwalk.design._openings import (
    SHARES,
    THOROUGH,
    estimate_coalition,
    estimate_opener_exposure,
    estimate_predecessor_guess,
    estimate_return_guesses,
)
from veilwalk.design._optimal import Certificate
from veilwalk.design._paper import (
    WindowDesign,
    WindowFloor,
    choose_return_time,
    exact_window_likelihood,
    window_entropies,
)
from veilwalk.design._registry import LawRequest, default_support, farthest_law, make_from_request
from veilwalk.design._scheme import Price, Scheme
from veilwalk.graphs import Graph, distances, parse_graph_spec

_SUITES = ("auto", "hybrid", "x25519")


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """The size of a model, by default softmax regression on MNIST in float32, and the suite that seals it.

    ``auto`` is the suite that is usual on a graph (:meth:`settle`).
    """

    model_bytes: int = 31_400
    suite: SuiteChoice = "auto"

    def __post_init__(self) -> None:
        validate.integer(1, model_bytes=self.model_bytes)
        if self.suite not in _SUITES:
            raise InvalidParameterError("suite", self.suite, "auto, hybrid or x25519")

    def settle(self, graph: Graph) -> Sealing:
        """Return the same with the suite that networks like ``graph`` take, where none is given."""
        return replace(self, suite=choose_suite(self.suite, is_overlay=graph.is_overlay))

    def message_bytes(self, recipients: int) -> int:
        """Return the length of a message that is sealed for so many."""
        suite = choose_suite(self.suite, is_overlay=False)
        return MessageGeometry.for_body(self.model_bytes, suite=suite, recipients=recipients).message_bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Design(Tabular):
    """A scheme with its price and its exposure; results that do not exist for its law or size are None or empty.

    Attributes:
        scheme: Graph, law, walk and number of recipients.
        price: Mean hops between two updates.
        exposure: The knowledge of observers about the source.
        prior_range: Updates of the rarest and of the most frequent source, times the mean.
        sealing: Size and suite of a message, for prices in bytes.
        is_balanced: Whether the law was made so that every node updates equally often; None where it is not known.
        window: Definition PrivacyNotion at the return time designed for.
        certificates: Distance of the law from the best one.
        paper: The paper's own design, of the law ``paper-exact``.
    """

    scheme: Scheme
    price: Price
    exposure: Exposure
    prior_range: tuple[float, float]
    sealing: Sealing = Sealing()
    is_balanced: bool | None = None
    window: WindowFloor | None = None
    certificates: tuple[Certificate, ...] = ()
    paper: WindowDesign | None = None

    @property
    def bytes_per_update(self) -> float:
        """Mean hops times the length of a message."""
        return self.price.hops * self.sealing.message_bytes(self.scheme.recipients)

    @property
    def entropy_share(self) -> float:
        """Node entropy as a share of log(N - 1), the entropy of a source that may be any other node."""
        return self.exposure.node_entropy.mean / self._most_entropy

    @property
    def least_entropy_share(self) -> float:
        """The lower end of its interval."""
        return self.exposure.node_entropy.low / self._most_entropy

    @property
    def _most_entropy(self) -> float:
        return math.log(max(self.scheme.graph.n_nodes - 1, 2))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per node: its share of updates, and its entropies where they are known."""
        graph, exposure = self.scheme.graph, self.exposure
        updates = self.scheme.source_prior * graph.n_nodes
        columns = {
            "node_entropy_nats": exposure.node_entropy_by_destination,
            "hit_ratio": exposure.hit_ratio_by_destination,
            "weight_as_source": exposure.weight_by_source,
        }
        return [
            {"node": graph.label(node), "degree": int(graph.degrees[node]), "updates": float(updates[node])}
            | {name: float(values[node]) for name, values in columns.items() if values is not None}
            for node in range(graph.n_nodes)
        ]

    def __repr__(self) -> str:
        return f"Design({self.scheme!r}, {self.price.hops:.1f} hops per update)"

    def _overview(self) -> list[dict[str, Any]]:
        plain = {name: value for name, value in self.summary().items() if isinstance(value, int | float | str)}
        return [{"": name.replace("_", " "), "value": value} for name, value in plain.items()]

    def summary(self) -> dict[str, Any]:
        """Return the scheme, its price and the opener's node entropy as plain data: a row of a search."""
        scheme, exposure = self.scheme, self.exposure
        return {
            "law": scheme.law.name,
            "walk": str(scheme.walk),
            "recipients": scheme.recipients,
            **({} if scheme.train_probability == 1.0 else {"train_probability": scheme.train_probability}),
            **({} if scheme.most_updates == 0 else {"most_updates": scheme.most_updates}),
            "mean_iteration_hops": self.price.hops,
            "mean_iteration_hops_kind": self.price.kind,
            **({} if self.price.interval is None else {"mean_iteration_hops_interval": self.price.interval}),
            **({} if scheme.is_direct else {"bytes_per_update": self.bytes_per_update}),
            **({} if exposure.observer == "blind" else {"node_entropy_share": self.entropy_share}),
            **exposure.summary(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data under its stable JSON keys; unknown results are left out."""
        scheme, graph = self.scheme, self.scheme.graph
        content = self.summary() | {
            "n_nodes": graph.n_nodes,
            "graph_digest": scheme.law.graph_digest,
            "support": [scheme.law.support.lo, scheme.law.support.hi],
            "eligible": [int(scheme.law.n_choices.min()), int(scheme.law.n_choices.max())],
            "prior_range": self.prior_range,
            "certain_to_a_relay": scheme.certain_to_a_relay(),
            "eclipse": [{"neighbours": count, "known": share} for count, share in scheme.eclipse_shares.items()],
        }
        if self.is_balanced is not None:
            content["balanced"] = self.is_balanced
        if scheme.has_exact_law:
            content["prior_range_nodes"] = [scheme.source_prior.argmin(), scheme.source_prior.argmax()]
        if not scheme.is_direct:
            content |= {"model_bytes": self.sealing.model_bytes, "suite": self.sealing.suite}
            content["message_bytes"] = self.sealing.message_bytes(scheme.recipients)
        content |= self.exposure.to_dict(graph.degrees)
        if self.window is not None:
            content["window"] = {
                "return_time": self.window.return_time,
                "chosen_by": self.window.chosen_by,
                "node_entropy_nats": self.window.node_entropy_nats,
                "worst_destinations": self.window.worst_destinations(),
            }
        if self.certificates:
            content["certificates"] = [certificate.to_dict() for certificate in self.certificates]
        if self.paper is not None:
            # The node entropy of the paper is that of its window notion.
            content |= self.paper.to_dict()
        return content if graph.labels is None else content | {"labels": list(graph.labels)}

    def record(self) -> Record:
        """Return the request, the version of the code, and the result."""
        scheme = self.scheme
        params: dict[str, Any] = {"graph": scheme.graph.name, "law": scheme.law.name, "walk": str(scheme.walk)}
        params |= {"support": str(scheme.law.support), "recipients": scheme.recipients}
        seed = 1 if self.exposure.observer == "opener" else None
        return Record(kind="design", params=params, seed=seed, result=self.to_dict())


class DesignOptions(TypedDict, total=False):
    """The fields of :class:`LawRequest` that ``design`` takes as keywords, for type checkers and editors."""

    balanced: bool | None
    budget_hops: float
    observer: str
    window_radius: int
    tail_probability: float
    return_time: float | None
    memory_bytes: int


@show_options(LawRequest, but=("far",))
def design(
    graph: Graph | str,
    law: LawLike | None = None,
    *,
    recipients: int | None = None,
    train_probability: float | None = None,
    support: DistanceSupport | tuple[int, int] | str | None = None,
    walk: Walk | str | None = None,
    sealing: Sealing | None = None,
    progress: Progress | bool = False,
    **options: Unpack[DesignOptions],
) -> Design:
    """Design a scheme for ``graph``: law, price, exposure, and distance from the best.

    Args:
        graph: any connected graph, or its spec.
        law: a name of ``LAWS``, a law file, or your own law: a matrix of probabilities, dense or sparse, or a function
            of the graph that returns one. By default ``optimal``; with ``recipients`` the farthest of far:2 to far:4.
        recipients: number of recipients, whose openings are sampled with a fixed seed; by default that of the file, or
            one, which is exact; on an overlay as recommended.
        train_probability: chance that an opener trains and does not only seal again: fewer guess who trains next, and
            an update takes more hops. With ``recipients``; by default 1.
        support: distances a destination may have; by default from 2 to 6, or to as far as all nodes reach.
        walk: how ciphertexts walk; by default that of the file, or the simple walk.
        sealing: size and suite of a message, for prices in bytes.
        progress: True for a display on standard error, or a function that receives stage, done and total.
        options: of :class:`LawRequest`; a law refuses options that it does not take.

    Example:
        >>> from veilwalk.graphs import random_regular
        >>> small = random_regular(20, 3, seed=1)
        >>> exact = design(small, "uniform-node", support=(2, 3))
        >>> round(exact.price.hops, 2), exact.price.kind
        (31.43, 'exact')
        >>> design(small, "far:2", recipients=4).price.hops < exact.price.hops
        True
    """
    graph = parse_graph_spec(graph)
    validate.options(LawRequest, options)
    if graph.is_overlay and recipients is None and not (isinstance(law, str) and is_law_file(law)):
        from veilwalk.design._search import recommend

        recipients = recommend(graph, sealing=sealing).scheme.recipients
    if law is None:
        law = "optimal" if recipients is None else farthest_law(graph, recipients)
    with show_progress(progress=progress) as listener:
        name_or_law: str | DestinationLaw
        if recipients is None and train_probability is not None:
            raise InvalidParameterError("train_probability", train_probability, "given with recipients")
        if isinstance(law, str) and not is_law_file(law) and recipients is None:
            name_or_law, chosen_walk = law, Walk.parse(walk or SIMPLE)
            chosen = default_support(graph) if support is None else DistanceSupport.parse(support)
        else:
            scheme = choose_scheme(
                graph, law, support=support, walk=walk, recipients=recipients, train_probability=train_probability
            ).require_sealed()
            if recipients is not None or not scheme.has_exact_law:
                for name, value in options.items():
                    raise InvalidParameterError(name, value, "left out: the exposure to several recipients is sampled")
                return evaluate_scheme(scheme, sealing=sealing, progress=listener)
            name_or_law, chosen_walk, chosen = scheme.law, scheme.walk, scheme.law.support
        request = LawRequest(graph=graph, support=chosen, walk=chosen_walk, **options)
        result = _design_exactly(name_or_law, request, progress=listener)
        return result if sealing is None else replace(result, sealing=sealing.settle(graph))


def evaluate_scheme(
    scheme: Scheme,
    *,
    effort: int = THOROUGH,
    colluders: Sequence[float] | None = SHARES,
    sealing: Sealing | None = None,
    progress: Progress = silent,
) -> Design:
    """Evaluate any scheme by sampled walks, with a fixed seed.

    ``effort`` is the hops per entry of a table, 20 is quick; without ``colluders`` only openers are asked.
    """
    scheme.require_everybody()
    steps = 1 if colluders is None else 2 + len(colluders)
    progress("exposure to openers", 0, steps)
    price, exposure, often = estimate_opener_exposure(scheme, effort=effort)
    if colluders is not None:
        if (
            not scheme.hides_names
            and scheme.graph.n_nodes <= SMALL_NODES
            and (best := estimate_return_guesses(scheme)) is not None
        ):
            mean, percent, worst = best
            exposure = replace(
                exposure, return_hit_ratio=mean, worst_percent_hit_ratio=percent, worst_arc_hit_ratio=worst
            )
        progress("guesses of the source", 1, steps)
        if not scheme.hides_names and (guesses := estimate_predecessor_guess(scheme, hops=price.hops)) is not None:
            exposure = replace(exposure, predecessor_guess=guesses[0], predecessor_guess_with_hop=guesses[1])
        named, read = dict[float, Estimate](), dict[float, Estimate]()
        for step, share in enumerate(colluders, start=2):
            progress(f"{share:.0%} of nodes collude", step, steps)
            placed, named_share, read_share = estimate_coalition(scheme, share, hops=price.hops)
            named[placed], read[placed] = named_share, read_share
        exposure = replace(exposure, named_by_colluders=named, read_by_colluders=read)
    return Design(
        scheme=scheme,
        price=price,
        exposure=exposure,
        prior_range=often,
        sealing=(sealing or Sealing()).settle(scheme.graph),
    )


def _design_exactly(law: str | DestinationLaw, request: LawRequest, *, progress: Progress) -> Design:
    """Design a law for one recipient, with tables of all pairs; where they do not fit, by sampled walks."""
    progress(f"making the law {law if isinstance(law, str) else law.name}", 0, 3)
    result = make_from_request(law, request)
    scheme = Scheme(request.graph, result.law, request.walk, designed_for=request.walk)
    if request.is_large and not scheme.is_direct:
        return replace(evaluate_scheme(scheme, progress=progress), is_balanced=request.balanced)
    blind = Estimate.exact(_blind_node_entropy(result.law))
    common: dict[str, Any] = {
        "scheme": scheme,
        "prior_range": scheme.prior_range,
        "is_balanced": law == "optimal" if request.balanced is None else request.balanced,
    }
    unobserved = Exposure(observer="blind", node_entropy=blind, blind_node_entropy=blind)
    if scheme.is_direct or result.paper is not None:
        return Design(**common, price=scheme.price, exposure=unobserved, paper=result.paper)
    progress("price and exposure", 1, 3)
    designer, best = request.designer, result.best
    channel = designer.channel(scheme.law, request.observer) if best is None else best.channel
    window = _evaluate_window(request, scheme.law)
    progress("certificates", 2, 3)
    certificates = result.certificates or designer.certify(scheme.law.name, scheme.law, channel)
    return Design(
        **common, price=scheme.price, exposure=channel.expose(scheme.law), window=window, certificates=certificates
    )


def _evaluate_window(request: LawRequest, law: DestinationLaw) -> WindowFloor:
    """Return the window floor of ``law`` at the return time of the request, by default the paper's."""
    chain, support, radius = request.designer.chain, request.support, request.window_radius
    validate.integer(0, window=radius)
    time, chosen_by = request.return_time, "given"
    if time is None:
        time, chosen_by = choose_return_time(chain, support, request.tail_probability)
    if not time > support.hi:
        raise InvalidParameterError("return time", time, f"more than the largest distance, {support.hi}")
    likelihood = exact_window_likelihood(chain, time, radius)
    entropies, _ = window_entropies(law, likelihood, distances(request.graph))
    return WindowFloor(time, chosen_by, entropies)


def _blind_node_entropy(law: DestinationLaw) -> float:
    """Mean entropy of the source given only its destination, in nats: H(source, destination) - H(destination)."""
    rows = np.repeat(np.arange(law.matrix.shape[0]), np.diff(law.matrix.indptr))
    pairs = special.entr(law.source_prior[rows] * law.matrix.data).sum()
    return float(pairs - special.entr(law.source_prior).sum())
