"""One contender of :mod:`benchmarks.speed.peers`, run in an environment of its own; prints one line of JSON.

This file imports nothing of veilwalk where another contender runs. All make the same updates: ten steps of plain
descent on 32 rows drawn at the node, fewer where it has fewer. What is timed begins where the first update may begin.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

BEGUN = time.perf_counter()
#: Seconds that pass, and those of this process's processor time.
Times = tuple[float, float]
Found = dict[str, Any]
STEPS, BATCH, HIDDEN = 10, 32, 128
RATES = {"softmax": 0.3, "mlp": 0.3}
#: FedAvg asks a tenth of the nodes in a round.
PEERS_SHARE = 10
Array = npt.NDArray[Any]
Model = list[Array]


def read_clocks() -> Times:
    """Return the time, and the processor time of this process."""
    return time.perf_counter(), time.process_time()


class Rows:
    """The rows of all nodes, as the runner dealt them."""

    def __init__(self, folder: Path) -> None:
        # Mapped: several processes share the pages.
        self.features = np.load(folder / "features.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy")
        self.starts: list[int] = np.load(folder / "starts.npy").tolist()
        self.edges = np.load(folder / "edges.npy")
        self.test = np.load(folder / "test_features.npy"), np.load(folder / "test_labels.npy")

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, node: int) -> tuple[Array, Array]:
        """Return the rows of a node, in memory."""
        rows = slice(self.starts[node], self.starts[node + 1])
        return np.array(self.features[rows]), np.array(self.labels[rows])


def first_model(name: str, n_features: int) -> Model:
    """Return weights and biases, layer by layer."""
    rng, zeros = np.random.default_rng(1), make_zeros
    if name == "softmax":
        return [zeros(10, n_features), zeros(10)]
    half = np.float32((6 / n_features) ** 0.5)
    hidden = (2 * rng.random((HIDDEN, n_features), dtype=np.float32) - 1) * half
    return [hidden, zeros(HIDDEN), zeros(10, HIDDEN), zeros(10)]


def make_zeros(*shape: int) -> Array:
    """Return zeros in single precision."""
    return np.zeros(shape, dtype=np.float32)


def descend(model: Model, rows: tuple[Array, Array], rate: float, rng: np.random.Generator) -> Model:
    """Make one update in bare NumPy, the fewest operations there are."""
    features, labels = rows
    model = [part.copy() for part in model]
    for _ in range(STEPS):
        inputs, truth = features, labels
        if len(labels) > BATCH:
            chosen = rng.choice(len(labels), BATCH, replace=False, shuffle=False)
            inputs, truth = features[chosen], labels[chosen]
        units = inputs if len(model) == 2 else np.maximum(inputs @ model[0].T + model[1], 0)
        outputs = units @ model[-2].T + model[-1]
        outputs -= outputs.max(axis=1, keepdims=True)
        np.exp(outputs, out=outputs)
        outputs /= outputs.sum(axis=1, keepdims=True)
        outputs[np.arange(len(truth)), truth] -= 1
        outputs *= np.float32(rate / len(truth))
        if len(model) == 4:
            back = (outputs @ model[2]) * (units > 0)
            model[0] -= back.T @ inputs
            model[1] -= back.sum(axis=0)
        model[-2] -= outputs.T @ units
        model[-1] -= outputs.sum(axis=0)
    return model


def find_accuracy(model: Model, test: tuple[Array, Array]) -> float:
    """Return the share of test rows that a model gets right."""
    units = test[0] if len(model) == 2 else np.maximum(test[0] @ model[0].T + model[1], 0)
    return float(((units @ model[-2].T + model[-1]).argmax(axis=1) == test[1]).mean())


def run_bare(rows: Rows, model: str, updates: int) -> Found:
    """Train in a bare loop: a model goes from one random node to the next."""
    parts, rng = [rows.of(node) for node in range(len(rows))], np.random.default_rng(1)
    held, began = first_model(model, rows.features.shape[1]), read_clocks()
    for node in rng.integers(len(rows), size=updates).tolist():
        held = descend(held, parts[node], RATES[model], rng)
    return {"began": began, "ended": read_clocks(), "accuracy": find_accuracy(held, rows.test)}


def run_veilwalk(rows: Rows, model: str, updates: int) -> Found:  # noqa: ARG001 - it deals the same itself
    """Train by the private walk with what is usual, nothing compared, audited or attacked; the walk itself is timed."""
    from benchmarks.speed.peers import build_scenario
    from veilwalk.training import run_training

    learner = model if model == "softmax" else f"mlp:hidden={HIDDEN}"
    learner += f":learning_rate={RATES[model]}:local_steps={STEPS}:batch_size={BATCH}"
    settings = {"updates": updates, "compare": "none", "audit": "none", "attack": 0, "evaluations": 1}
    scenario = build_scenario(os.environ["PEERS_DATA"], learner, **settings)
    began = read_clocks()
    run = run_training(scenario)
    point = run.trainings["private-walk"].points[-1]
    return {"began": began, "ended": read_clocks(), "accuracy": float(point.accuracy or 0)}


def run_flower(rows: Rows, model: str, updates: int) -> Found:
    """Train by FedAvg in Flower's simulation; clients are NumPy, which spares it torch."""
    client, server, common = (import_module(f"flwr.{name}") for name in ("client", "server", "common"))
    strategies, simulation = import_module("flwr.server.strategy"), import_module("flwr.simulation")
    peers, folder = len(rows) // PEERS_SHARE, Path(os.environ["PEERS_ROWS"])
    rounds, first = max(updates // peers, 1), first_model(model, rows.features.shape[1])
    marks: Found = {}

    class Client(client.NumPyClient):  # type: ignore[misc, name-defined]
        def __init__(self, node: int) -> None:
            self._node = node

        def fit(self, parameters: Model, config: Any) -> tuple[Model, int, dict[str, Any]]:
            held = Rows(folder)
            rng = np.random.default_rng([self._node, int(config["round"])])
            return descend(parameters, held.of(self._node), RATES[model], rng), 1, {}

    def score(number: int, parameters: Model, config: Any) -> None:  # noqa: ARG001 - Flower's signature
        if number == 0:
            marks["began"] = read_clocks()
        if number == rounds:
            marks["ended"] = read_clocks()
            marks["accuracy"] = find_accuracy(parameters, rows.test)

    def serve(context: Any) -> Any:  # noqa: ARG001 - Flower's signature
        strategy = strategies.FedAvg(
            fraction_fit=1 / PEERS_SHARE,
            fraction_evaluate=0.0,
            min_fit_clients=peers,
            min_available_clients=len(rows),
            evaluate_fn=score,
            on_fit_config_fn=lambda number: {"round": number},
            initial_parameters=common.ndarrays_to_parameters(first),
        )
        return server.ServerAppComponents(strategy=strategy, config=server.ServerConfig(num_rounds=rounds))

    simulation.run_simulation(
        server_app=server.ServerApp(server_fn=serve),
        client_app=client.ClientApp(client_fn=lambda context: Client(context.node_config["partition-id"]).to_client()),
        num_supernodes=len(rows),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return marks


def make_module(torch: ModuleType, model: str, n_features: int) -> Any:
    """Return the model in torch, with the same first numbers."""
    nn = torch.nn
    layers = [nn.Linear(n_features, 10)]
    if model == "mlp":
        layers = [nn.Linear(n_features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)]
    net, first = nn.Sequential(*layers), first_model(model, n_features)
    with torch.no_grad():
        for tensor, numbers in zip(net.parameters(), first, strict=True):
            tensor.copy_(torch.from_numpy(numbers))
    return net


def run_pfl(rows: Rows, model: str, updates: int) -> Found:
    """Train by FedAvg in pfl-research, with torch, in one process."""
    torch, functional = import_module("torch"), import_module("torch.nn.functional")
    torch.set_num_threads(1)
    data, datasets = import_module("pfl.data.dataset"), import_module("pfl.data.federated_dataset")
    sampling, hyper = import_module("pfl.data.sampling"), import_module("pfl.hyperparam")
    algorithms, rng = import_module("pfl.algorithm.federated_averaging"), np.random.default_rng(1)
    peers, net = len(rows) // PEERS_SHARE, make_module(torch, model, rows.features.shape[1])

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def loss(self, features: Any, labels: Any, *, is_eval: bool = False) -> Any:  # noqa: ARG002 - pfl's signature
            return functional.cross_entropy(self.net(features), labels)

        def metrics(self, features: Any, labels: Any, *, is_eval: bool = False) -> dict[str, Any]:  # noqa: ARG002
            return {}

    class Drawn(data.Dataset):  # type: ignore[misc, name-defined]
        """An epoch is ten batches drawn, so that a node with few rows makes as many steps as any."""

        def iter(self, batch_size: int | None) -> Any:
            features, labels = self.raw_data
            if batch_size is None or len(labels) <= batch_size:
                yield from [(features, labels)] * STEPS
                return
            for _ in range(STEPS):
                chosen = rng.choice(len(labels), batch_size, replace=False, shuffle=False)
                yield features[chosen], labels[chosen]

    parts = [tuple(map(torch.from_numpy, rows.of(node))) for node in range(len(rows))]
    sampler = sampling.get_user_sampler("minimize_reuse", list(range(len(rows))))
    federated = datasets.FederatedDataset(lambda node: Drawn(parts[node], user_id=node), sampler)
    module = Module()
    held = import_module("pfl.model.pytorch").PyTorchModel(
        module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)
    )
    backend = import_module("pfl.aggregate.simulate").SimulatedBackend(training_data=federated, val_data=federated)
    rounds = max(updates // peers, 1)
    size = import_module("pfl.algorithm.base").NNAlgorithmParams(
        central_num_iterations=rounds, evaluation_frequency=rounds + 1, train_cohort_size=peers, val_cohort_size=0
    )
    step = hyper.NNTrainHyperParams(
        local_num_epochs=None, local_learning_rate=RATES[model], local_batch_size=BATCH, local_num_steps=STEPS
    )
    began = read_clocks()
    algorithms.FederatedAveraging().run(size, backend, held, step, send_metrics_to_platform=False)
    ended, found = read_clocks(), [tensor.detach().numpy() for tensor in net.parameters()]
    return {"began": began, "ended": ended, "accuracy": find_accuracy(found, rows.test)}


def run_gossipy(rows: Rows, model: str, updates: int) -> Found:
    """Train by push gossip in gossipy, with torch; the accuracy is that of the mean of all models."""
    # It imports torchvision for data sets that are not used here.
    sys.modules["torchvision"] = ModuleType("torchvision")
    torch, core, simul = import_module("torch"), import_module("gossipy.core"), import_module("gossipy.simul")
    torch.set_num_threads(1)
    node_of, handlers = import_module("gossipy.node").GossipNode, import_module("gossipy.model.handler")
    n_nodes, width, ticks = len(rows), rows.features.shape[1], 100

    class Net(import_module("gossipy.model").TorchModel):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = make_module(torch, model, width)

        def init_weights(self) -> None:
            """Keep the first numbers, the same for all."""

        def forward(self, features: Any) -> Any:
            return self.net(features)

        def __str__(self) -> str:
            return model

    class Handler(handlers.TorchModelHandler):  # type: ignore[misc, name-defined]
        def _update(self, part: tuple[Any, Any]) -> None:
            features, labels = part
            for _ in range(STEPS):
                chosen = torch.randperm(len(labels))[:BATCH]
                self._local_step(features[chosen], labels[chosen])
            self.n_updates += 1

    network = np.zeros((n_nodes, n_nodes))
    network[rows.edges[:, 0], rows.edges[:, 1]] = network[rows.edges[:, 1], rows.edges[:, 0]] = 1
    net = core.StaticP2PNetwork(n_nodes, network)
    loss, optimizer, settings = torch.nn.CrossEntropyLoss(), torch.optim.SGD, {"lr": RATES[model]}
    nodes = {}
    for number in range(n_nodes):
        part = tuple(map(torch.from_numpy, rows.of(number)))
        handler = Handler(Net(), optimizer, settings, loss, local_epochs=0, batch_size=BATCH)
        nodes[number] = node_of(number, (part, None), ticks, handler, net)
    untested = type("Untested", (), {"has_test": lambda _: False})()
    simulator = simul.GossipSimulator(nodes, untested, ticks, core.AntiEntropyProtocol.PUSH)
    # The first model of each node is trained there once, as it is by default: a tenth of all updates.
    began = read_clocks()
    simulator.init_nodes()
    simulator.start(n_rounds=max(updates // n_nodes - 1, 1))
    ended = read_clocks()
    states = [[tensor.detach().numpy() for tensor in node.model_handler.model.parameters()] for node in nodes.values()]
    mean = [np.mean(parts, axis=0) for parts in zip(*states, strict=True)]
    own = float(np.mean([find_accuracy(state, rows.test) for state in states[::10]]))
    return {"began": began, "ended": ended, "accuracy": find_accuracy(mean, rows.test), "own": own}


RUNS = {"bare": run_bare, "veilwalk": run_veilwalk, "flower": run_flower, "pfl": run_pfl, "gossipy": run_gossipy}


def main() -> None:
    """Run the contender that the arguments name: contender, model, updates, folder of rows."""
    contender, model, updates, folder = sys.argv[1:]
    os.environ["PEERS_ROWS"] = folder
    found = RUNS[contender](Rows(Path(folder)), model, int(updates))
    began, ended = found.pop("began"), found.pop("ended")
    spent = {"set_up_s": began[0] - BEGUN, "seconds": ended[0] - began[0]}
    # Flower's work is done by other processes.
    spent |= {} if contender == "flower" else {"processor_s": ended[1] - began[1]}
    print(json.dumps(spent | found), flush=True)


if __name__ == "__main__":
    main()
