"""Any Flower app as a learner: an unchanged ``ClientApp`` trains over the private walk, without a server.

The app loads its own rows. What a node hands it is the number of its partition, and of how many; the model comes and
goes as an ``ArrayRecord``. ``context.state`` stays at the node. Only this module imports flwr.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError, LearnerError
from veilwalk.core.rooms import import_extra
from veilwalk.core.spec import Spec
from veilwalk.learning._contract import (
    Array,
    Learner,
    Params,
    Partition,
    StepContext,
    UpdateResult,
    torch_threads,
    update_generator,
)
from veilwalk.learning._data import SITE, Data, Sites

#: Data of learners that load their own rows: a node has the number of its partition, and nothing else.
PARTITIONS = "partitions"
_USAGE = "package.module:client_app, with :initial=package.module.Net and :name=value where needed"
# Partitions that a model is evaluated on: of more nodes so many, evenly apart.
_EVALUATED = 20
# Folders above an app's module in which its pyproject.toml is looked for.
_LEVELS = 3
_STATE = "flower/state"


def partition_numbers(nodes: int) -> Data:
    """Return data of two equal rows a node, each the number of its partition and how many there are.

    Nodes and partitions have one order. Held out are numbers too: a learner evaluates on rows of its own.
    """

    def rows(numbers: Array) -> Partition:
        features = np.stack([numbers, np.full(len(numbers), nodes)], axis=1).astype(np.float32)
        return Partition(features, np.zeros(len(numbers), dtype=np.int64))

    every = np.arange(nodes)
    evaluated = np.unique(np.linspace(0, nodes - 1, min(nodes, _EVALUATED)).astype(np.int64))
    names = tuple(f"{number:0{len(str(nodes - 1))}}" for number in every.tolist())
    return Data(
        name=PARTITIONS,
        train=rows(np.repeat(every, 2)),
        test=rows(evaluated),
        columns={SITE: np.repeat(np.array(names), 2)},
        sites=Sites(names=names, test=evaluated, is_named=False),
        has_labels=False,
    )


def app_learner(text: str) -> str:
    """Return the learner's specification for an app named ``package.module:client_app``, options behind it."""
    spec = Spec.parse(text, parameter="app")
    if len(spec.arguments) != 1:
        raise spec.refuse(_USAGE)
    options = "".join(f":{key}={value}" for key, value in spec.options)
    return f"{__name__}:flower_app:app={spec.name}.{spec.argument}{options}"


def flower_app(*, n_features: int, n_classes: int, app: str, initial: str = "", **config: Any) -> Learner:
    """Return the learner of an app named ``package.module.client_app``: what ``--app`` comes to.

    ``config`` are values of the run configuration, ``local_epochs`` standing for ``local-epochs``.
    """
    del n_features, n_classes
    module, client_app = _import_name("app", app)
    first = _import_name("initial", initial)[1] if initial else None
    known = _read_run_config(module)
    changes = {key if key in known else key.replace("_", "-"): value for key, value in config.items()}
    for key in changes.keys() - known.keys() if known else ():
        raise InvalidParameterError("app", key, f"a key of the app's run configuration: {', '.join(known)}")
    return from_flower(client_app, initial=first, config=known | changes)


def from_flower(
    client_app: Any, *, initial: Any = None, config: Mapping[str, Any] | None = None, threads: int = 1
) -> FlowerLearner:
    """Return a learner that runs a Flower app; train it with ``data="partitions"``.

    Args:
        client_app: A ``ClientApp``, or a ``client_fn`` that makes a client (a ``NumPyClient``) of a ``Context``.
        initial: The first model: a function without arguments, or what one returns: a torch module, an
            ``ArrayRecord``, named arrays or a list of arrays. None: the client's ``get_parameters``.
        config: The run configuration; messages have it too, with ``server-round``, and ``learning-rate`` also as
            ``lr``.
        threads: Threads of torch in the app; 0 leaves them alone.

    Example:
        learner = vw.from_flower(app, initial=Net, config={"local-epochs": 1})
    """
    flwr = import_extra("flwr.clientapp", "flower")
    validate.integer(0, threads=threads)
    if not isinstance(client_app, flwr.ClientApp):
        if not callable(client_app):
            need = "a ClientApp, or a client_fn(context) that returns a client"
            raise InvalidParameterError("client_app", type(client_app).__name__, need)
        client_app = flwr.ClientApp(client_fn=client_app)
    return FlowerLearner(app=client_app, initial=initial, config=dict(config or {}), threads=threads)


class OtherLibrary:
    """A learner whose updates are made by another library's code, which is tried before a run."""

    def require_same_bits(self: Any, data: Partition, *, seed: int) -> None:
        """Refuse code whose update does not give the same bits twice: a run could be neither repeated nor resumed.

        Whoever sets a run up asks this, and no node in its run, whose first update would take twice as long.
        """
        first = self.init_params(update_generator(seed, 0, 0))
        results = [
            self.update(first, data, StepContext(rng=update_generator(seed, 0, 0), step=0)).params for _ in range(2)
        ]
        changed = [name for name in first if not np.array_equal(results[0][name], results[1][name], equal_nan=True)]
        if changed:
            raise LearnerError(
                f"{type(self).__name__}: an update gives other numbers the second time, first in {changed[0]!r}. "
                "random, NumPy and torch are seeded before it; what else it draws from must be seeded by its own code, "
                "and it may keep nothing but what its context keeps"
            )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FlowerLearner(OtherLibrary):
    """A Flower app under the contract of learners. Its rows are those of :func:`partition_numbers`.

    Before each call ``random``, NumPy and torch are seeded by the node's own stream.
    """

    app: Any
    initial: Any = None
    config: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1

    def __repr__(self) -> str:
        """Return the configuration and the name of the first model: the same in another process."""
        name = getattr(self.initial, "__qualname__", type(self.initial).__name__)
        return f"FlowerLearner(initial={name}, config={self.config}, threads={self.threads})"

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return the first model, under the names that it has in its ``ArrayRecord``."""
        with seeded(rng, threads=self.threads):
            model = self.initial() if callable(self.initial) and not _is_module(self.initial) else self.initial
            if model is None:
                model = self._ask_first_model()
        if _is_module(model):
            model = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
        if isinstance(model, list | tuple):
            model = {str(number): array for number, array in enumerate(model)}
        if not isinstance(model, Mapping) or not model:
            need = "a torch module, an ArrayRecord, named arrays or a list of arrays, or a function that returns one"
            raise InvalidParameterError("initial", type(model).__name__, need)
        return {name: np.array(array.numpy() if hasattr(array, "numpy") else array) for name, array in model.items()}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return what the app's ``train`` makes of a model; of several partitions one is drawn, as in a central run."""
        if not len(data):
            return UpdateResult(params=params, num_examples=0)
        places = np.unique(data.features, axis=0)
        place = places[0] if len(places) == 1 else places[ctx.rng.integers(len(places))]
        state = ctx.state.get(_STATE)
        with seeded(ctx.rng, threads=self.threads):
            content, own_state = self._call("train", place, params, round_number=ctx.step + 1, state=state)
        if own_state is not None:
            ctx.state[_STATE] = own_state
        scores, count = _read_scores(content)
        return UpdateResult(params=_read_model(content, params), num_examples=max(1, count), metrics=scores)

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Return the mean of what the app's ``evaluate`` says of each partition, weighed by its examples."""
        totals, examples = dict[str, float](), 0
        for place in np.unique(data.features, axis=0):
            with seeded(np.random.default_rng(0), threads=self.threads):
                content, _ = self._call("evaluate", place, params, round_number=1, state=None)
            scores, count = _read_scores(content)
            examples += count
            for name, value in scores.items():
                totals[name] = totals.get(name, 0.0) + count * value
        means = {name: total / max(1, examples) for name, total in totals.items()}
        return {**_name_scores(means), "num_examples": float(examples)}

    def _ask_first_model(self) -> Any:
        """Return what ``get_parameters`` of a client says."""
        if not self._is_legacy:
            raise InvalidParameterError(
                "initial", None, "the first model: an app made of functions has none to ask for"
            )
        place = np.zeros(2)
        content, _ = self._call("get_parameters", place, {}, round_number=0, state=None)
        return [array.numpy() for array in _only_record(content).values()]

    @property
    def _is_legacy(self) -> bool:
        """Whether the app wraps a ``client_fn``: its messages have other names, and its arrays none."""
        return getattr(self.app, "_call", None) is not None

    def _call(
        self, kind: str, place: Array, params: Params, *, round_number: int, state: Array | None
    ) -> tuple[Any, Array | None]:
        """Return what the app answers, and what it keeps in ``context.state``, as bytes."""
        from flwr.app import Array as FlowerArray
        from flwr.app import ArrayRecord, ConfigRecord, Context, Message, Metadata, RecordDict
        from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
        from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict

        number, total = int(place[0]), max(int(place[1]), int(place[0]) + 1)
        arrays = ArrayRecord({name: FlowerArray(np.array(array, order="C")) for name, array in params.items()})
        rates = {"lr": self.config["learning-rate"]} if "learning-rate" in self.config else {}
        config = ConfigRecord({**rates, **self.config, "server-round": round_number})
        if self._is_legacy:
            names = {"train": "fitins", "evaluate": "evaluateins"}.get(kind, "getparametersins")
            content = RecordDict({f"{names}.parameters": arrays, f"{names}.config": config})
        else:
            content = RecordDict({"arrays": arrays, "config": config})
        records = RecordDict()
        if state is not None:
            records = recorddict_from_proto(ProtoRecordDict.FromString(state.tobytes()))
        context = Context(
            run_id=1,
            node_id=number,
            node_config={"partition-id": number, "num-partitions": total},
            state=records,
            run_config=dict(self.config),
        )
        metadata = Metadata(
            run_id=1,
            message_id="1",
            src_node_id=0,
            dst_node_id=number,
            reply_to_message_id="",
            group_id=str(round_number),
            created_at=time.time(),
            ttl=3600.0,
            message_type=kind,
        )
        # What an app prints is not among our results.
        with redirect_stdout(sys.stderr):
            answer = self.app(Message(metadata=metadata, content=content), context).content
        if not len(context.state):
            return answer, None
        written = recorddict_to_proto(context.state).SerializeToString(deterministic=True)
        return answer, np.frombuffer(written, dtype=np.uint8).copy()


def _read_model(content: Any, params: Params) -> Params:
    """Return the arrays of an answer under the names that the model has: by name, or else in order."""
    record = _only_record(content)
    arrays = {name: np.asarray(array.numpy()) for name, array in record.items()}
    if arrays.keys() != params.keys() and len(arrays) == len(params):
        arrays = dict(zip(params, arrays.values(), strict=True))
    return {name: arrays[name] for name in params} if arrays.keys() == params.keys() else arrays


def _only_record(content: Any) -> Any:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise LearnerError(f"the Flower app answers with {len(records)} ArrayRecords: it must be one, the model")
    return records[0]


def _read_scores(content: Any) -> tuple[dict[str, float], int]:
    """Return the numbers of an answer by name, and how many examples they are of."""
    scores, count = dict[str, float](), 1
    for record in [*content.metric_records.values(), *content.config_records.values()]:
        for name, value in record.items():
            if name.replace("_", "-") == "num-examples":
                count = int(value)
            elif isinstance(value, int | float) and name != "code":
                scores[name] = float(value)
    return scores, count


def _name_scores(scores: Mapping[str, float]) -> Mapping[str, float]:
    """Return scores with ``loss`` and, where there is one, ``accuracy``; apps call them eval_loss or val_acc."""
    named = dict(scores)
    for name, endings in {"loss": ("loss",), "accuracy": ("accuracy", "acc")}.items():
        similar = [score for score in named if score.lower().endswith(endings)]
        if name not in named and similar:
            named[name] = named.pop(similar[0])
    if "loss" not in named:
        raise LearnerError(f"the Flower app's evaluate gives {', '.join(scores) or 'no numbers'}: it must give a loss")
    return named


def _is_module(value: Any) -> bool:
    return hasattr(value, "state_dict") and not isinstance(value, type)


def _import_name(parameter: str, text: str) -> tuple[Any, Any]:
    """Return a module, and what it calls by the last word of ``package.module.name``."""
    module_name, _, name = text.rpartition(".")
    try:
        module = importlib.import_module(module_name)
        return module, getattr(module, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidParameterError(parameter, text, f"{_USAGE} ({error})") from error


def _read_run_config(module: Any) -> dict[str, Any]:
    """Return the run configuration in the pyproject.toml of an app, as ``flwr run`` reads it; none where none is."""
    for folder in list(Path(module.__file__).resolve().parents)[:_LEVELS]:
        if (path := folder / "pyproject.toml").is_file():
            app = tomllib.loads(path.read_text()).get("tool", {}).get("flwr", {}).get("app", {})
            return dict(_flatten(app.get("config", {})))
    return {}


def _flatten(config: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{start}{key}.")
        else:
            yield f"{start}{key}", value


@contextmanager
def seeded(rng: np.random.Generator, *, threads: int = 1) -> Iterator[None]:
    """Seed ``random``, NumPy and torch inside, hold torch to ``threads`` (0: as it is), and put all back afterwards."""
    seed, torch = int(rng.integers(2**32)), sys.modules.get("torch")
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 - the stream of others' code
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        if torch is not None:
            stack.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
            torch.manual_seed(seed)
            stack.enter_context(torch_threads(threads))
        yield
