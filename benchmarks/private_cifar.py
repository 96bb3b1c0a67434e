"""Central noise beside pfl-research's: its CIFAR-10 benchmark in both, with the same clip and the same noise.

    python benchmarks/private_cifar.py --root DATA [--python PEERS/bin/python] [--device cuda]
    python benchmarks/private_cifar.py --root DATA --network linear --rounds 300      # what a CPU can do

As pfl-research configures it (`benchmarks/image_classification/configs/baseline.yaml`, with
`gaussian_moments_accountant`): 1,000 users of 50 images, drawn at random; 50 users a round; one local epoch of SGD 0.1
in batches of 10; each update clipped to 0.4; the plain mean; a server rate of 1. Its epsilon of 2 at a delta of 1e-6 is
that of a cohort of 1,000 drawn from a population of a million in 3,000 rounds. The noise is scaled down by 50 / 1,000.
`noise` here is the least that keeps this epsilon by our accountant; both sides get it.

DATA has `cifar10.npz` (`train_x`, uint8 NHWC, `train_y`, `test_x`, `test_y`). `--python` is an interpreter that has
`torch` and `pfl`. Both sides of a seed run side by side, one process each. The accuracy is that of the global model on
all test images, at fixed rounds: none is selected. `--network linear` is one linear layer, with a local
rate of 0.01: its 31 thousand numbers instead of 1.6 million take a CPU a minute or two a run.
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
from datetime import date
from functools import partial
from pathlib import Path

USERS, COHORT, ROWS, BATCH = 1000, 50, 50, 10
RATES = {"simple_cnn": 0.1, "linear": 0.01}
CLIP, EPSILON, DELTA = 0.4, 2.0, 1e-6
POPULATION, NOISE_COHORT, LENGTH = 1_000_000, 1000, 3000
SIDES = ("ours", "pfl")


def noise() -> float:
    """Return the noise on the sum of a cohort of 50, in units of the clip."""
    from heterophony.kernel.accountant import composed, within
    from heterophony.kernel.privacy import Charge

    def kept(multiplier: float) -> bool:
        charge = Charge("update", multiplier, NOISE_COHORT / POPULATION, LENGTH)
        return within(composed([charge]), EPSILON, DELTA)

    low, high = 0.3, 2.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high * COHORT / NOISE_COHORT


def images(root: str, device: str):
    """Return training images by user, and the test images; each channel has mean 0 and deviation 1."""
    import numpy as np
    import torch

    with np.load(Path(root) / "cifar10.npz") as file:
        found = {name: torch.from_numpy(file[name]) for name in ("train_x", "train_y", "test_x", "test_y")}
    train, test = (found[f"{part}_x"].permute(0, 3, 1, 2).float() / 255 for part in ("train", "test"))
    mean, deviation = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[: USERS * ROWS]
    x = ((train - mean) / deviation)[order].reshape(-1, ROWS, 3, 32, 32)
    y = found["train_y"].long()[order].reshape(-1, ROWS)
    return x.to(device), y.to(device), ((test - mean) / deviation).to(device), found["test_y"].long().to(device)


def network(seed: int, name: str = "simple_cnn"):
    """Return a network by pfl's name for it."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    if name == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
    )  # fmt: skip


def accuracy(model, x, y) -> float:
    import torch

    model.eval()
    with torch.no_grad():
        right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(1000), y.split(1000), strict=True))
    model.train()
    return 100 * right / len(y)


class Told:
    """Prints a line of JSON at each checkpoint, so that a run that is cut off has said what it found."""

    def __init__(self, side: str, seed: int, every: int) -> None:
        self.side, self.seed, self.every, self.began = side, seed, every, time.perf_counter()

    def at(self, round: int, model, x, y) -> None:
        if round % self.every == 0:
            line = {"side": self.side, "seed": self.seed, "round": round, "accuracy": accuracy(model, x, y)}
            print(json.dumps({**line, "seconds": time.perf_counter() - self.began}), flush=True)


def ours(args: argparse.Namespace, told: Told) -> None:
    from heterophony import Compute, Data, Federation, Privacy
    from heterophony.engines import local
    from heterophony.kernel.topology import star
    from heterophony.methods import FedAvg
    from heterophony.parts import Cohort, Training

    x, y, *test = images(args.root, "cpu")  # the engine places what nodes have
    test = [part.to(args.device) for part in test]
    names = [f"u{i}" for i in range(len(x))]
    views = {name: {"train": Data(x=x[i], y=y[i], classes=10)} for i, name in enumerate(names)}
    seen = [0]

    def watch(engine) -> None:
        now = engine.boxes["server"].round
        if now > seen[0]:
            seen[0] = now
            told.at(now, engine.host.node("server").models["model"], *test)

    central = Privacy(clip=CLIP, noise=args.noise, delta=DELTA, budget=1e12, central=True)
    method = FedAvg(
        cohort=Cohort(fraction=COHORT / len(x), weighted=False),
        local=Training(epochs=1, batch=BATCH, lr=RATES[args.network]),
    )
    slots = {"model": partial(network, args.seed, args.network)}
    federation = Federation(
        method, star(names), {"server": slots, "client": slots}, views,
        seed=args.seed, evaluate=10**9, privacy={"server": central},
        compute=Compute(device=args.device, precision="tf32", deterministic=False),
    )  # fmt: skip
    local(federation, progress=watch).run(args.rounds)


def pfl(args: argparse.Namespace, told: Told) -> None:
    os.environ["PFL_PYTORCH_DEVICE"] = args.device
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
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism

    set_framework_module(pytorch_ops)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    x, y, *test = images(args.root, args.device)
    net = network(args.seed, args.network)
    np.random.seed(args.seed)

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

    class Watch(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            told.at(central_iteration + 1, net, *test)
            return False, Metrics()

    module = Net()
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    users = FederatedDataset(
        lambda user: Dataset(raw_data=[x[int(user)], y[int(user)]], user_id=str(user), eval_kwargs={"eval": True}),
        get_user_sampler("random", np.arange(len(x)).tolist()),
    )
    mechanism = CentrallyAppliedPrivacyMechanism(GaussianMechanism(CLIP, args.noise))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=args.rounds, evaluation_frequency=10**6, train_cohort_size=COHORT, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=users, val_data=users, postprocessors=[mechanism]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_learning_rate=RATES[args.network], local_num_epochs=1, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Watch()],
    )


def table(lines: list[dict]) -> str:
    """Return the accuracies as a table in Markdown: mean and spread of the seeds, and the difference's interval."""
    rows = ["| round | ours | pfl-research | difference, 95 % interval |", "|---|---|---|---|"]
    for at in sorted({line["round"] for line in lines}):
        sides = [[line["accuracy"] for line in lines if (line["round"], line["side"]) == (at, side)] for side in SIDES]
        if all(len(side) > 1 for side in sides):
            said = [f"{statistics.mean(side):.1f} ± {statistics.stdev(side):.1f}" for side in sides]
            rows.append(f"| {at} | {' | '.join(said)} | {interval(*sides)} |")
    return "\n".join(rows)


def interval(one: list[float], two: list[float]) -> str:
    """Return the difference of two means with its interval by Welch's formula."""
    from scipy import stats

    low, high = stats.ttest_ind(one, two, equal_var=False).confidence_interval(0.95)
    return f"{statistics.mean(one) - statistics.mean(two):+.1f} ({low:+.1f} to {high:+.1f})"


def main() -> None:
    """Run all seeds of both sides, and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--root", required=True)
    options.add_argument("--python", default=sys.executable)
    options.add_argument("--rounds", type=int, default=LENGTH)
    options.add_argument("--every", type=int, default=100)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--device", default="cpu")
    options.add_argument("--network", default="simple_cnn", choices=RATES)
    options.add_argument("--noise", type=float, help="instead of the one for epsilon 2")
    options.add_argument("--as", dest="side", choices=SIDES, help=argparse.SUPPRESS)
    options.add_argument("--read", nargs="*", help="only print the table of these files of lines")
    args = options.parse_args()
    if args.read:
        text = "\n".join(Path(file).read_text() for file in args.read)
        print(table([json.loads(line) for line in text.splitlines() if line.startswith("{")]))
        return
    args.noise = args.noise or noise()
    if args.side:
        {"ours": ours, "pfl": pfl}[args.side](args, Told(args.side, args.seed, args.every))
        return
    print(f"{date.today()}, {platform.machine()}, {args.device}, noise {args.noise:.4f} of the clip\n", flush=True)
    lines = []
    for seed in range(args.seeds):
        running = [_started(args, side, seed) for side in SIDES]
        said = [line for process in running for line in process.communicate()[0].splitlines() if line.startswith("{")]
        print("\n".join(said), file=sys.stderr, flush=True)
        lines += [json.loads(line) for line in said]
    print(table(lines))


def _started(args: argparse.Namespace, side: str, seed: int) -> subprocess.Popen[str]:
    """Start one side in a process of its own."""
    options = {name: getattr(args, name) for name in ("root", "rounds", "every", "device", "noise", "network")}
    given = [
        part for name, value in {**options, "as": side, "seed": seed}.items() for part in (f"--{name}", str(value))
    ]
    interpreter = args.python if side == "pfl" else sys.executable
    return subprocess.Popen([interpreter, __file__, *given], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
