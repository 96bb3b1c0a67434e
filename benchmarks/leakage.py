"""What a coordinator learns of private rows from what leaves a node: undefended, clipped, summed, noised.

    python benchmarks/leakage.py [--only inversion members canary] [--worlds 64]

Three attacks on the same door that every engine has, each under the same blocks. In `secure sum` the coordinator hears
nothing but the mean of 20 participants (`secure`), of whom it attacks all, or one beside 19 others:

- `inversion`: a coordinator sends crafted weights (Fowl et al., Robbing the Fed, ICLR 2022; Boenisch et al., When the
  Curious Abandon Honesty, EuroS&P 2023). Each neuron of the first layer opens above one brightness, so the difference
  of two neighbours' gradients over that of their biases is the one image between. 20 participants of 20 digits each
  answer once, by FedAvg. An image counts as recovered where the mean error of its grey values is below 0.05.
- `members`: whether a row was trained on (LiRA, Carlini et al., S&P 2022, in small). In each of `--worlds` worlds one
  participant trains on a random half of 40 rows. For each row, normal distributions of its score are fitted in the
  other worlds, with it and without.
- `canary`: the lower bound of epsilon, at 99 in 100 by Clopper and Pearson, that the best threshold on what leaves
  proves: once with the declared noise, once with half of it. The second has to exceed what is claimed.

The digits are the thousand that come with the package. Each figure follows from the seed.
"""

from __future__ import annotations

import argparse
import math
import platform
from datetime import date
from typing import Any

import torch
from torch import Tensor, nn

from heterophony import Data, Federation, Kind, Privacy, PrivateSteps, Weights, secure
from heterophony.base.noise import Seeded
from heterophony.base.seeds import generator
from heterophony.data.sources.catalogue import load
from heterophony.engines import local
from heterophony.engines.outward import noised
from heterophony.kernel.accountant import composed, epsilon_of
from heterophony.kernel.privacy import Charge
from heterophony.kernel.topology import star
from heterophony.methods import FedAvg
from heterophony.parts import Training

DELTA, CLIP, NOISE, ROWS, CLIENTS = 1e-2, 1.0, 2.0, 20, 20
SUMMED = "secure sum"
BLOCKS = ("undefended", "clipped", SUMMED, "noised for each row", "noised at the door")
ATTACKS = ("inversion", "members", "canary")
ONE = Kind("update", to="parent", weights=Weights("model", change=True))


def digits() -> tuple[Tensor, Tensor]:
    """Return the digits that come with the package, in an order of our own."""
    found = load("digits-embedded").train
    order = torch.randperm(len(found), generator=generator("leakage digits"))
    x = torch.as_tensor(found.x).float()
    return (x / 255 if x.max() > 1 else x)[order].flatten(1), torch.as_tensor(found.y).long()[order]


def block(name: str, training: dict[str, Any]) -> tuple[Training, dict[str, Privacy]]:
    """Return the training and the privacy of a block. Clipping alone is noise of next to nothing."""
    if name == "noised for each row":
        return Training(**training, private=PrivateSteps(clip=CLIP, noise=NOISE)), {}
    noise = {"clipped": 1e-12, "noised at the door": NOISE}.get(name)
    if noise is None:
        return Training(**training), {}
    return Training(**training), {"client": Privacy(clip=CLIP, noise=noise, delta=DELTA, budget=1e300)}


def heard(build: Any, sets: list[Data], name: str, training: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Return what a coordinator hears in one round of FedAvg: the mean of one participant is its update."""
    own, privacy = block(name, training)
    method = secure(FedAvg(local=own)) if name == SUMMED else FedAvg(local=own)
    models = {role: {"model": build} for role in ("server", "client")}
    data = {f"client-{i}": {"train": rows} for i, rows in enumerate(sets)}
    made = Federation(method, star(list(data)), models, data, seed=seed, privacy=privacy)
    run = local(made).run(1)
    return {n: t.detach() for n, t in run.host.state("server")["models"]["model"].items()}


# -- inversion ---------------------------------------------------------------------------------------------------
NEURONS = 200


def crafted(levels: Tensor, size: int) -> nn.Module:
    """Return a network each of whose neurons opens above one brightness, and tells the loss the same."""
    made = nn.Sequential(nn.Linear(size, NEURONS), nn.ReLU(), nn.Linear(NEURONS, 10))
    with torch.no_grad():
        made[0].weight.fill_(1 / size)
        made[0].bias.copy_(-levels)
        made[2].weight.copy_(torch.linspace(-1, 1, 10).unsqueeze(1).expand(10, NEURONS) / NEURONS)
        made[2].bias.zero_()
    return made


def inversion(name: str) -> str:
    """Return how many images one answer each of the participants gives away."""
    x, y = digits()
    known, private = x[CLIENTS * ROWS :], x[: CLIENTS * ROWS]  # the attacker knows how bright digits are, by others
    levels = known.mean(1).quantile(torch.linspace(0, 1, NEURONS + 1)[:-1])
    begun = crafted(levels, x.shape[1]).state_dict()
    each = [slice(client * ROWS, (client + 1) * ROWS) for client in range(CLIENTS)]
    sets = [Data(x=private[rows], y=y[rows], classes=10) for rows in each]
    recovered = 0
    for seed, heard_of in enumerate([sets] if name == SUMMED else [[one] for one in sets]):
        training = {"batch": None, "epochs": 1, "lr": 0.1}
        told = heard(lambda: crafted(levels, x.shape[1]), heard_of, name, training, seed)
        weight, bias = (begun[key] - told[key] for key in ("0.weight", "0.bias"))
        images = (weight[:-1] - weight[1:]) / (bias[:-1] - bias[1:]).unsqueeze(1)
        images = torch.cat([images, weight[-1:] / bias[-1:]]).nan_to_num()
        true = torch.cat([one.x for one in heard_of])
        error = torch.stack([(row - images).abs().mean(1).min() for row in true])
        recovered += int((error < 0.05).sum())
    return f"{recovered} of {CLIENTS * ROWS}"


# -- members -----------------------------------------------------------------------------------------------------
def members(name: str, worlds: int) -> str:
    """Return how well worlds in which a row was trained on are told from others, and how surely."""
    x, y = digits()
    x, y = x[:40], y[:40]
    inside = torch.stack([torch.randperm(40, generator=generator("leakage world", w)) < 20 for w in range(worlds)])
    scores = torch.stack([_confidence(name, x, y, inside[w], w) for w in range(worlds)])
    says, truth = [], []
    for row in range(40):
        for world in range(worlds):
            others = torch.arange(worlds) != world
            fits = [scores[others & (inside[:, row] == was), row] for was in (True, False)]
            one, two = (torch.distributions.Normal(fit.mean(), fit.std().clamp(min=1e-3)) for fit in fits)
            says.append(float(one.log_prob(scores[world, row]) - two.log_prob(scores[world, row])))
            truth.append(bool(inside[world, row]))
    found, was = torch.tensor(says, dtype=torch.float64), torch.tensor(truth)
    ins, outs = found[was], found[~was]
    area = float((ins.unsqueeze(1) > outs.unsqueeze(0)).double().mean())
    return f"{area:.2f}, {100 * float((ins > outs.quantile(0.95)).double().mean()):.0f} %"


def _confidence(name: str, x: Tensor, y: Tensor, inside: Tensor, world: int) -> Tensor:
    sets = [Data(x=x[inside], y=y[inside], classes=10)]
    if name == SUMMED:  # of the others the attacker knows nothing, but that they are the same in all worlds
        all_x, all_y = digits()
        sets += [Data(x=all_x[at : at + ROWS], y=all_y[at : at + ROWS], classes=10) for at in range(40, 420, ROWS)]
    told = heard(lambda: nn.Linear(x.shape[1], 10), sets, name, {"batch": 10, "epochs": 20, "lr": 0.5}, world)
    chance = torch.softmax(x @ told["weight"].T + told["bias"], 1)[torch.arange(len(y)), y].double()
    return torch.logit(chance, eps=1e-9)


# -- canary ------------------------------------------------------------------------------------------------------
def canary(name: str, releases: int = 4000) -> str:
    """Return the epsilon that releases of a canary prove, with the declared noise and with half of it."""
    if name != "noised at the door":
        return "-"
    declared = Privacy(clip=CLIP, noise=NOISE, delta=DELTA, budget=1e6)
    proved = []
    for noise in (NOISE, NOISE / 2):
        privacy = Privacy(clip=CLIP, noise=noise, delta=DELTA, budget=1e6)
        worlds = [_released(privacy, value, releases) for value in (-50.0, 50.0)]
        proved.append(_bound(*worlds))
    claimed = epsilon_of(composed([charge] if (charge := declared.charge(ONE)) else []), DELTA)
    assert proved[0] < claimed, "more is told than is claimed"
    assert proved[1] > claimed, "the audit is blind: half of the noise was not found out"
    return f"{proved[0]:.2f}; half the noise: {proved[1]:.2f}"


def _released(privacy: Privacy, value: float, releases: int) -> Tensor:
    source = Seeded("leakage canary", privacy.noise, value)
    body = ONE(weights={"w": torch.full((1,), value)}).body
    return torch.cat([noised(ONE, body, privacy, {}, source)["weights"]["w"] for _ in range(releases)]).double()


def _bound(without: Tensor, with_: Tensor) -> float:
    """Return the lower bound by the best threshold, which the first half chooses and the second judges."""
    half = len(without) // 2
    best = max(
        with_[:half].quantile(torch.linspace(0.05, 0.95, 19).double()),
        key=lambda t: _proved(without[:half], with_[:half], t),
    )
    return _proved(without[half:], with_[half:], best)


def _proved(without: Tensor, with_: Tensor, threshold: Tensor) -> float:
    from scipy import stats

    right, wrong, n = int((with_ > threshold).sum()), int((without > threshold).sum()), len(with_)
    least = stats.beta.ppf(0.005, right, n - right + 1) if right else 0.0
    most = stats.beta.ppf(0.995, wrong + 1, n - wrong)
    return math.log((least - DELTA) / most) if least > DELTA else 0.0


def claims(name: str) -> str:
    """Return the epsilon that is claimed for one answer, where there is noise."""
    if name == "noised at the door":
        return f"{epsilon_of(composed([Charge('update', NOISE / 2)]), DELTA):.1f}, of all rows"
    if name == "noised for each row":
        return f"{epsilon_of(composed([Charge('training', NOISE)]), DELTA):.1f}, of one row in one step"
    return "-"


def main() -> None:
    """Print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", default=ATTACKS, choices=ATTACKS)
    options.add_argument("--worlds", type=int, default=64)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {chosen.worlds} worlds\n")
    print("| block | images recovered | members: area, found at 5 % false | epsilon claimed | epsilon proved |")
    print("|---|---|---|---|---|", flush=True)
    for name in BLOCKS:
        cells = [
            inversion(name) if "inversion" in chosen.only else "",
            members(name, chosen.worlds) if "members" in chosen.only else "",
            claims(name),
            canary(name) if "canary" in chosen.only else "",
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
