"""What BatchNorm's running statistics cost on few images: accuracy in evaluation mode, before and after a refresh.

A participant of FCCL's digits trains alone on its own images (USPS: 80, MNIST: 150) for 50 epochs, as before the first
round of `fccl-digits`. Then its running statistics are taken anew from the same images (`refresh`). Accuracies are in
evaluation mode: on the training images, and on up to 500 validation images. Test images are not asked for.

python benchmarks/running_statistics.py [--seeds 3] [--domains usps mnist] [--networks efficientnet-b0] [--data FOLDER]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from heterophony.compute.eager import fit, predict, refresh
from heterophony.data.table import Data
from heterophony.parts.losses import cross_entropy
from heterophony.parts.training import Training
from heterophony.settings import assemble

ROWS = {"usps": 80, "mnist": 150}
TRAINING = Training(epochs=50, batch=512, lr=1e-3, optimiser="adam", refresh=True)


def accuracy(network: torch.nn.Module, data: Data) -> float:
    """Per cent right in evaluation mode."""
    return 100 * float((predict(network, data).argmax(1) == data.y).float().mean())


def row(domain: str, network: str, seed: int, data: str | None) -> str:
    """One line of the table."""
    changes = {
        "data.domains": {domain: {"source": domain, "rows": ROWS[domain]}},
        "data.validation": 0.05,
        "data.public": None,
        "models.participants": network,
    }
    made = assemble("solo", "digits", seed=seed, changes=changes, root=data)
    node, tests = made.node(next(iter(made.homes))), made.tests[domain]["validation"]
    some, model = tests.take(torch.arange(min(500, len(tests)))), node.models["model"]
    work = TRAINING.fit("model", cross_entropy)
    fit(node, replace(work, epochs=49, refresh=False, keep="own"))
    loss = fit(node, replace(work, epochs=1, refresh=False, keep="own")).losses["model"]["ce"]
    before = [accuracy(model, rows) for rows in (node.data["train"], some)]
    refresh(node, work)
    after = [accuracy(model, rows) for rows in (node.data["train"], some)]
    cells = [f"{old:.1f} -> {new:.1f}" for old, new in zip(before, after, strict=True)]
    return f"| {domain} | {network} | {seed} | {loss:.5f} | {cells[0]} | {cells[1]} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--domains", nargs="+", default=["usps"], choices=tuple(ROWS))
    parser.add_argument("--networks", nargs="+", default=["efficientnet-b0"])
    parser.add_argument("--data", help="folder with data sets; as everywhere if not given")
    args = parser.parse_args()

    print("| images | network | seed | loss | on training images | on validation images |")
    print("|---|---|---|---|---|---|")
    for domain in args.domains:
        for network in args.networks:
            for seed in range(args.seeds):
                print(row(domain, network, seed, args.data), flush=True)


if __name__ == "__main__":
    main()
