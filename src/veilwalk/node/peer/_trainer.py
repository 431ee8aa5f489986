"""Training: bytes in, bytes out, and no exception, whatever came and whatever the learner does with it.

A model that cannot be used, or makes the learner fail, is refused, and the node's own last one is trained in its place.
Where the learner fails on that too, the fault is this node's own (its data, its code, its memory), and no walk shall
end for it: what came is passed on as it is, without an update, and counted (``learner_failures``).

Where noise protects the node, a learner that fails refuses nothing: whoever opens the model next would see that there
are data which make it fail. The update is then the one that a node without data makes: noise alone.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from veilwalk.core.errors import ProtocolError, TrainingError
from veilwalk.node.members import RunRules, decode_params, encode_params, params_distance

if TYPE_CHECKING:
    from veilwalk.learning import Array, Learner, Params, Partition, Protection, UpdateResult
    from veilwalk.node.members import Manifest

#: Tally of updates that were not made in time.
OUT_OF_TIME = "out_of_time"
# In what is stored of a learner: the least loss of models accepted here, and before the names of its own arrays.
_LEAST, _OWN = "least_loss", "own/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """The inputs of an update.

    Attributes:
        received: The model that came, encoded; None where its body did not open, or its number is a lie.
        own: This node's last model; None where it has none.
        iteration: Updates that the model has had.
        step: Updates that this node has made before.
        state: What its learner keeps, encoded; empty where that is nothing.
        lane: Which of the run's models it is.
        own_iteration: Updates that this node's last model has had.
        without_data: Whether to make the update that a node without data makes.
        is_blank: Whether the model is to go on untrained.
    """

    received: bytes | None
    own: bytes | None
    iteration: int
    step: int
    state: bytes
    lane: int = 0
    own_iteration: int = 0
    without_data: bool = False
    is_blank: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOutcome:
    """The result of a training job.

    Attributes:
        model: The model to hand on, encoded.
        state: What the learner keeps from now on, encoded; None where no update was made.
        moved: How far the update moved the model; None where none was made.
        reached: Whether the model is as good as the run asks for.
        counts: Tallies to add to.
        own: Whether it was made from this node's own last model, because what came was refused.
    """

    model: bytes
    state: bytes | None = None
    moved: float | None = None
    reached: bool = False
    counts: tuple[str, ...] = ()
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The learner of this node, and its data.

    Attributes:
        learner: The model and how it is updated.
        data: This node's examples.
        manifest: How a model is encoded.
        index: This node's number in the roster.
        rules: When the model is finished, and what an update goes through.
        max_loss_ratio: A model whose loss on this node's data is more than this many times the least of those accepted
            here is refused; 0 for what the rules say.
        test: The run's public test set, where it has one.
    """

    learner: Learner
    data: Partition
    manifest: Manifest
    index: int
    rules: RunRules
    max_loss_ratio: float = 0.0
    test: Partition | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "learner", protection_of(self.rules).learner(self.learner))

    def first(self) -> bytes:
        """Return the model that the run starts from, encoded."""
        # Imported here, as below, because it takes half a second, which a relay need not wait for.
        from veilwalk.learning import init_generator

        return encode_params(
            self.manifest, self.learner.init_params(init_generator(self.manifest.spec.seed)), updates=0
        )

    def update(self, job: TrainingJob) -> TrainingOutcome:
        """Make an update of what came, or of this node's own last model where that is refused."""
        received = try_decode(self.manifest, job.received)
        own, own_model = try_decode(self.manifest, job.own), job.own
        if own is None or own_model is None:
            own_model = self.first()
            own = decode_params(self.manifest, own_model)
        refused: tuple[str, ...] = ()
        before = _read_state(job.state)[1]
        accepted, least = (False, before) if received is None else self._accepts(received, own, job, before)
        if received is None or not accepted:
            received, refused = None, ("refused",)
        else:
            outcome = self._make_update(received, job, least=least)
            if outcome is not None:
                return outcome
        # As old as it is: what is refused has no say in how much an update counts.
        ours = replace(job, received=own_model, iteration=job.own_iteration)
        outcome = self._make_update(own, ours, "refused", least=before if accepted else least)
        if outcome is not None:
            return replace(outcome, own=True)
        unchanged = own_model if received is None else (job.received or b"")
        return TrainingOutcome(model=unchanged, counts=(*refused, "learner_failures"), own=received is None)

    def reaches_target(self, model: bytes) -> bool:
        """Return whether a model is as good as the run asks for, by the public test set."""
        if not self.rules.target or self.test is None:
            return False
        try:
            accuracy = self.learner.evaluate(decode_params(self.manifest, model), self.test).get("accuracy")
            return accuracy is not None and bool(accuracy >= self.rules.target)
        except (Exception, SystemExit):  # noqa: BLE001  a learner may be anybody's code
            return False

    def close(self) -> None:
        """Do nothing: it works while it is asked."""

    def _make_update(self, params: Params, job: TrainingJob, *counts: str, least: float) -> TrainingOutcome | None:
        """Return what one update makes of the model that came; None where the learner fails.

        A model that goes on untrained is trained all the same, for as long: no time tells which it was.
        """
        from veilwalk.learning import LEARNER_FAILED

        tallies = list(counts)
        state, _ = _read_state(job.state)
        try:
            result = self._update(params, job, state)
            updated = result.params
            tallies += ["learner_failures"] if LEARNER_FAILED in result.metrics else []
            stored = self._state_to_keep(state, least)
            try:
                model = encode_params(self.manifest, updated, updates=job.iteration + 1)
            except TrainingError:
                # This node's own data made it worse than useless: pass on what came.
                updated, model = params, encode_params(self.manifest, params)
                tallies.append("diverged")
            moved = params_distance(updated, params)
        except (Exception, SystemExit):  # noqa: BLE001  a learner may be anybody's code
            return None
        reached = self._is_tried(job) and self.reaches_target(model)
        if job.is_blank:
            return TrainingOutcome(model=job.received or b"", counts=(*counts, "passed_on"))
        if 0 < self.rules.most_updates <= job.step:
            # Counted as an update, in which nothing moved: else a run would wait for those that have some left.
            model = encode_params(self.manifest, params, updates=job.iteration + 1)
            return TrainingOutcome(model=model, state=job.state, counts=(*counts, "passed_on"))
        return TrainingOutcome(model=model, state=stored, moved=moved, reached=reached, counts=("updates", *tallies))

    def _state_to_keep(self, state: Mapping[str, Array], least: float) -> bytes:
        """Return the learner's state as bytes; where noise must hide every failure and it cannot be written, none."""
        try:
            return _encode_state(state, least)
        except Exception:
            if self.rules.noise:
                return _encode_state({}, least)
            raise

    def _update(self, params: Params, job: TrainingJob, state: dict[str, Array]) -> UpdateResult:
        from veilwalk.learning import Partition, apply_update

        data = Partition(self.data.features[:0], self.data.labels[:0]) if job.without_data else self.data
        protection = protection_of(self.rules)
        with np.errstate(all="ignore"):
            return apply_update(
                self.learner,
                params,
                data,
                seed=self.manifest.spec.seed,
                node=self.index,
                step=job.step,
                age=job.iteration,
                state=state,
                mod=protection.mod(),
                secret=SecretNormal().standard_normal,
            )

    def _is_tried(self, job: TrainingJob) -> bool:
        """Return whether what comes of a job is tried on the public test set."""
        from veilwalk.learning import evaluation_points

        rules = self.rules
        if not rules.target:
            return False
        return job.iteration + 1 in evaluation_points(rules.share(job.lane), rules.evaluations)

    def _accepts(self, received: Params, own: Params, job: TrainingJob, before: float) -> tuple[bool, float]:
        """Return whether a model passes the tests of the run, and the loss that later ones are held against."""
        from veilwalk.learning import Acceptance, Held

        rules = self.rules
        rule = Acceptance(
            max_loss_ratio=self.max_loss_ratio or rules.max_loss_ratio,
            max_step=rules.max_step,
        )
        held = Held(params=own, age=job.own_iteration, loss=before)
        try:
            return rule.test(received, held, age=job.iteration, loss_of=self._loss)
        except (Exception, SystemExit):  # noqa: BLE001  a learner may be anybody's code
            return False, before

    def _loss(self, params: Params) -> float:
        return float(self.learner.evaluate(params, self.data)["loss"])


def try_decode(manifest: Manifest, model: bytes | None) -> Params | None:
    """Return a model's parameters; None where there is none, or it is not such as the manifest allows."""
    try:
        return None if model is None else decode_params(manifest, model)
    except ProtocolError:
        return None


class SecretNormal:
    """Normal numbers that nobody can predict: straight from the operating system's source."""

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Return independent standard normal numbers (Box and Muller)."""
        # The upper 53 bits, moved off zero, whose logarithm is none.
        words = np.frombuffer(os.urandom(16 * math.prod(shape)), dtype=np.uint64).reshape(2, *shape) >> np.uint64(11)
        radius, angle = (words + 0.5) * 2.0**-53
        return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle))


def protection_of(rules: RunRules) -> Protection:
    """Return what every update of a run goes through, as in ``train``; its noise is not from the run's seed."""
    from veilwalk.learning import Protection

    # Each number of it is a figure of the run by the same name; for which epsilon it was found is not said.
    return Protection(**{name: getattr(rules, name) for name in Protection.list_figures()})


def _encode_state(state: Mapping[str, Array], least: float) -> bytes:
    """Return what is stored of a learner: its arrays, and the least loss of the models accepted here, if any."""
    arrays: dict[str, Any] = {_OWN + name: np.asarray(array) for name, array in state.items()}
    if any(array.dtype.hasobject for array in arrays.values()):
        raise TrainingError("a learner keeps Python objects: only arrays can be stored")
    if math.isfinite(least):
        arrays[_LEAST] = np.array(least)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _read_state(stored: bytes) -> tuple[dict[str, Array], float]:
    """Return what a learner keeps, and the least loss of the models accepted here; NaN where none is known."""
    if not stored:
        return {}, math.nan
    with np.load(io.BytesIO(stored), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    least = float(arrays.pop(_LEAST, math.nan))
    return {name.removeprefix(_OWN): array for name, array in arrays.items()}, least
