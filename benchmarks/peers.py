"""The same federated averaging in Heterophony and in its peers, in one run: seconds a round, and ratios.

    python benchmarks/peers.py [--python PEERS/bin/python] [--only logistic] [--systems ours pfl] [--repeats 3]
    python benchmarks/peers.py --device cuda [--python PEERS/bin/python]

Two rounds: `cifar`, pfl-research's CIFAR-10 benchmark (cohort of 50 users x 50 images, batch 10, one epoch, SGD 0.1,
the 1.63M-parameter CNN), and `logistic`, logistic regression (10 clients of 60 rows a round, batch 10), where only the
engine counts; both of 1,000 clients, with random images in memory. Each system runs in a process of its own, in turn,
`--repeats` times, with all cores; the first round is not counted. pfl runs with one thread and with one a core, and the
faster counts: on cores that others use too, threads that wait for each other made it 40 times slower. `--python` is an
interpreter that has `torch`, `pfl` and `fedjax` (in an environment of their own: they pin versions that others do not);
Flower's simulation needs `flwr` and `ray` beside us.

With `--device cuda` the data and models are on one GPU, products are tf32 and kernels need not repeat to the bit; the
GPU is waited for at the end of each round, and the first three are not counted. Ours is told of a long run, so that
what pays in one, such as compiling, is done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import types
from datetime import date

from heterophony.parts.cohort import Cohort

CORES = len(os.sched_getaffinity(0))
SYSTEMS = ("loop", "ours", "pfl", "fedjax", "flower")
CASES = {"cifar": (1000, 50, 50, 0.1), "logistic": (1000, 10, 60, 0.1)}  # clients, cohort, rows, learning rate
BATCH = 10
WARM = {"cpu": 1, "cuda": 3}  # rounds that are not counted
ROUNDS = {"cpu": {"cifar": 4, "logistic": 60}, "cuda": {"cifar": 20, "logistic": 20}}
LONG = 100_000  # rounds that our run is said to have
ONLY_CPU = {
    "fedjax": "left out on a GPU, which needs another build of JAX",
    "flower": "left out on a GPU, which its many processes would have to share",
}


def data(case: str):
    import numpy as np

    clients, _, rows, _ = CASES[case]
    draw = np.random.default_rng(0)
    shape = (3, 32, 32) if case == "cifar" else (784,)
    x = draw.standard_normal((clients, rows, *shape), dtype=np.float32)
    return x, draw.integers(10, size=(clients, rows))


def tensors(case: str, device: str):
    import torch

    return [torch.from_numpy(part).to(device) for part in data(case)]


def free_numerics() -> None:
    """What `precision="tf32", deterministic=False` is, for the others; on a CPU it says nothing."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def now(device: str) -> float:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def network(case: str, device: str = "cpu"):
    """On a CPU in the layout that suits it, the same for everyone (see `layout`)."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if case == "logistic":
        return nn.Linear(784, 10)
    made = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
    )  # fmt: skip
    last = device == "cpu" and os.environ.get("LAYOUT") == "channels-last"
    return made.to(memory_format=torch.channels_last) if last else made


def loop(case: str, rounds: int, device: str) -> list[float]:
    """What one writes without a framework, in one process."""
    import random

    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    free_numerics()
    clients, cohort, rows, lr = CASES[case]
    x, y = tensors(case, device)
    model = network(case, device).to(device)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    times = []
    for round in range(rounds):
        began = now(device)
        states = []
        for client in random.Random(round).sample(range(clients), cohort):
            model.load_state_dict(weights)
            optimiser = torch.optim.SGD(model.parameters(), lr)
            for batch in torch.randperm(rows, device=device).split(BATCH):
                optimiser.zero_grad()
                F.cross_entropy(model(x[client][batch]), y[client][batch]).backward()
                optimiser.step()
            states.append({key: value.clone() for key, value in model.state_dict().items()})
        weights = {key: sum(state[key] for state in states) / cohort for key in weights}
        times.append(now(device) - began)
    return times


def ours(case: str, rounds: int, device: str) -> list[float]:
    from contextlib import suppress
    from functools import partial

    from heterophony import Compute, Data, Federation
    from heterophony.engines import local
    from heterophony.kernel.topology import star
    from heterophony.methods import FedAvg
    from heterophony.parts.training import Training

    clients, cohort, _, lr = CASES[case]
    x, y = tensors(case, "cpu")  # the engine places them
    names = [f"c{i}" for i in range(clients)]
    views = {name: {"train": Data(x=x[i], y=y[i], classes=10)} for i, name in enumerate(names)}

    times, last = [], [time.perf_counter(), 0]

    def watch(engine) -> None:
        if engine.boxes["server"].round > last[1]:
            times.append(now(device) - last[0])
            last[:] = time.perf_counter(), engine.boxes["server"].round
            engine.stop = len(times) == rounds

    method = FedAvg(cohort=Cohort(fraction=cohort / clients), local=Training(epochs=1, batch=BATCH, lr=lr))
    models = {role: {"model": partial(network, case)} for role in ("server", "client")}
    federation = Federation(
        method, star(names), models, views, evaluate=10**6,
        compute=Compute(device=device, precision="tf32", deterministic=False, workers=CORES),
    )  # fmt: skip
    engine = local(federation, progress=watch)
    for name in names:
        engine.host.node(name).data.placed("train")
    last[0] = now(device)
    with suppress(KeyboardInterrupt):
        engine.run(LONG)
    return times


def pfl(case: str, rounds: int, device: str) -> list[float]:
    os.environ["PFL_PYTORCH_DEVICE"] = device  # where it puts models and batches
    import numpy as np
    import torch
    import torch.nn.functional as F
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    set_framework_module(pytorch_ops)
    free_numerics()
    clients, cohort, _, lr = CASES[case]
    x, y = tensors(case, device)
    net = network(case, device)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def loss(self, inputs, labels, eval=False):
            self.train(not eval)
            return F.cross_entropy(self.net(inputs), labels)

        def metrics(self, inputs, labels, eval=False):
            with torch.no_grad():
                return {"loss": Weighted(self.loss(inputs, labels, eval).item(), len(inputs))}

    times, last = [], [time.perf_counter()]

    class Watch(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            times.append(now(device) - last[0])
            last[0] = time.perf_counter()
            return False, Metrics()

    net_model = Net()
    model = PyTorchModel(
        model=net_model,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net_model.parameters(), lr=1.0),
    )
    users = FederatedDataset(
        lambda user: Dataset(raw_data=[x[int(user)], y[int(user)]], user_id=str(user), eval_kwargs={"eval": True}),
        get_user_sampler("random", np.arange(clients).tolist()),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=10**6, train_cohort_size=cohort, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=model,
        model_train_params=NNTrainHyperParams(local_learning_rate=lr, local_num_epochs=1, local_batch_size=BATCH),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Watch()],
    )
    return times


def fedjax(case: str, rounds: int) -> list[float]:
    import random

    import fedjax
    import haiku as hk
    import jax
    from fedjax.algorithms import fed_avg

    jax.tree_map = jax.tree.map  # FedJAX's last release still calls it so

    clients, cohort, _, lr = CASES[case]
    x, y = data(case)
    if case == "cifar":
        x = x.transpose(0, 1, 3, 4, 2).copy()

    def forward(batch, is_train=True):
        h = batch["x"]
        if case == "logistic":
            return hk.Linear(10)(h)
        h = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(h))
        h = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(h))
        h = hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID")(h)
        h = hk.dropout(hk.next_rng_key(), 0.25, h) if is_train else h
        h = jax.nn.relu(hk.Linear(128)(hk.Flatten()(h)))
        h = hk.dropout(hk.next_rng_key(), 0.5, h) if is_train else h
        return hk.Linear(10)(h)

    transformed = hk.transform(forward)
    sample = {"x": x[0][:BATCH], "y": y[0][:BATCH]}
    model = fedjax.create_model_from_haiku(
        transformed_forward_pass=transformed,
        sample_batch=sample,
        train_loss=lambda batch, preds: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], preds),
        eval_metrics={},
        train_kwargs={"is_train": True},
        eval_kwargs={"is_train": False},
    )
    users = {str(i).encode(): fedjax.ClientDataset({"x": x[i], "y": y[i]}) for i in range(clients)}
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    times = []
    for round in range(rounds):
        began = time.perf_counter()
        chosen = random.Random(round).sample(range(clients), cohort)
        keys = jax.random.split(jax.random.PRNGKey(round), cohort)
        given = [(str(c).encode(), users[str(c).encode()], key) for c, key in zip(chosen, keys, strict=True)]
        state, _ = algorithm.apply(state, given)
        jax.block_until_ready(state.params)
        times.append(time.perf_counter() - began)
    return times


def flower(case: str, rounds: int) -> list[float]:
    import torch
    import torch.nn.functional as F
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    clients, cohort, rows, lr = CASES[case]
    client, server = ClientApp(), ServerApp()
    times = []

    @client.train()
    def train(message, context):
        torch.set_num_threads(1)
        # Once a worker process: what the function closes over, or finds in this file, comes anew with every message.
        held = vars(sys.modules.setdefault("held", types.ModuleType("held"))).setdefault("data", {})
        if not held:
            held["x"], held["y"] = (torch.from_numpy(part) for part in data(case))
            held["model"] = network(case)
        model, own = held["model"], int(context.node_config["partition-id"])
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr)
        for batch in torch.randperm(rows).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(held["x"][own][batch]), held["y"][own][batch]).backward()
            optimiser.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": rows})}
        return Message(content=RecordDict(content), reply_to=message)

    @server.main()
    def main(grid, context):
        last = [time.perf_counter()]

        def watch(round, arrays):
            times.append(time.perf_counter() - last[0])
            last[0] = time.perf_counter()

        strategy = FedAvg(fraction_train=cohort / clients, fraction_evaluate=0.0, min_available_nodes=clients)
        strategy.start(
            grid=grid, initial_arrays=ArrayRecord(network(case).state_dict()), num_rounds=rounds, evaluate_fn=watch
        )

    run_simulation(
        server_app=server, client_app=client, num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    return times[1:]  # the first is taken before any round


def measured(system: str, case: str, rounds: int, device: str, python: str) -> tuple[float, str] | str:
    """Seconds a round of one system, with as many threads as suit it, and what it is; or why there is none."""
    # ours: one thread in each of as many processes
    threads = {"loop": {1}, "ours": {1}, "pfl": {1, CORES} if device == "cpu" else {1}}.get(system, {CORES})
    answers = [alone(system, case, rounds, device, python, number) for number in sorted(threads)]
    return min((a for a in answers if not isinstance(a, str)), default=answers[0])


def alone(system: str, case: str, rounds: int, device: str, python: str, threads: int) -> tuple[float, str] | str:
    """The same in one process with so many threads."""
    if device == "cuda" and system in ONLY_CPU:
        return ONLY_CPU[system]
    interpreter = python if system in ("pfl", "fedjax") else sys.executable
    command = [interpreter, __file__, "--as", system, "--only", case, "--rounds", str(rounds), "--device", device]
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **quiet, "OMP_NUM_THREADS": str(threads)},
        check=False,
    )
    try:
        answer = json.loads(found.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return (found.stderr.strip().splitlines() or ["no answer"])[-1][:120]
    return statistics.median(answer["times"][WARM[device] :]), answer["version"]


def layout(case: str, python: str) -> str:
    """In which layout the plain loop is faster on this CPU."""
    seconds = {}
    for name in ("contiguous", "channels-last"):
        os.environ["LAYOUT"] = name
        answer = alone("loop", case, 3, "cpu", python, 1)
        seconds[name] = answer[0] if isinstance(answer, tuple) else float("inf")
    return min(seconds, key=lambda name: seconds[name])


def version(system: str) -> str:
    from importlib.metadata import version

    if system == "ours":  # which may not be installed, only found
        from heterophony import __version__

        return f"heterophony {__version__}"
    name = {"loop": "torch", "flower": "flwr"}.get(system, system)
    return f"{name} {version(name)}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", default=sys.executable)
    options.add_argument("--only", default="")
    options.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--rounds", type=int, default=0)
    options.add_argument("--device", default="cpu", choices=WARM)
    options.add_argument("--as", dest="role", choices=SYSTEMS, help=argparse.SUPPRESS)
    args = options.parse_args()
    if args.role:
        where = () if args.role in ONLY_CPU else (args.device,)
        times = globals()[args.role](args.only, args.rounds, *where)
        print(json.dumps({"times": times, "version": version(args.role)}), flush=True)
        os._exit(0)
    print(f"{date.today()}, {platform.machine()}, {CORES} cores, {args.device}, {args.repeats} repeats in turn")
    print("| round | system | seconds a round (median, range) | ours is so many times faster |\n|---|---|---|---|")
    for case in CASES:
        if args.only not in case:
            continue
        rounds = args.rounds or ROUNDS[args.device][case]
        if case == "cifar" and args.device == "cpu":
            os.environ["LAYOUT"] = layout(case, args.python)
            print(f"{case}: networks are {os.environ['LAYOUT']}, which suits the loop", file=sys.stderr, flush=True)
        found: dict[str, list[float]] = {system: [] for system in args.systems}
        names, failures = {}, {}
        for _ in range(args.repeats):
            for system in args.systems:
                answer = measured(system, case, rounds, args.device, args.python)
                print(f"{case}, {system}: {answer}", file=sys.stderr, flush=True)
                if isinstance(answer, str):
                    failures[system] = answer
                else:
                    found[system].append(answer[0])
                    names[system] = answer[1]
        base = statistics.median(found["ours"]) if found.get("ours") else float("nan")
        for system, times in found.items():
            if not times:
                print(f"| {case} | {system} | not measured: {failures[system]} | |", flush=True)
                continue
            middle = statistics.median(times)
            spread = f"{middle:.4f} ({min(times):.4f} to {max(times):.4f})"
            print(f"| {case} | {names[system]} | {spread} | {middle / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
