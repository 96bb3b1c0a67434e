"""A regression between five made-up power stations, from Python: python regression.py

Each station has rows of four measurements and the power that it gives: the same rule, with a share of its own.
"""

import torch
from torch import nn

from heterophony import Data, Federation, Regression, star
from heterophony.methods import Ditto
from heterophony.parts import Training

STATIONS = ["north", "east", "south", "west", "coast"]


def rows(station, count, purpose):
    """Return measurements and power of one station."""
    draw = torch.Generator().manual_seed(10 * STATIONS.index(station) + purpose)
    x = torch.randn(count, 4, generator=draw)
    rule = torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.3 * STATIONS.index(station) * torch.tensor([0.0, 0.0, 1.0, 1.0])
    return Data(x=x, y=x @ rule + 0.1 * torch.randn(count, generator=draw), task=Regression(error="huber"))


def net():
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))


def main():
    federation = Federation(
        Ditto(local=Training(batch=16, lr=0.05)),
        star(STATIONS),
        models={"server": {"model": net}, "client": {"model": net, "fork": net}},
        data={station: rows(station, 60, purpose=0) for station in STATIONS},
        tests={station: rows(station, 40, purpose=1) for station in STATIONS},
        homes={station: station for station in STATIONS},
    )
    result = federation.run(rounds=20)
    found = result.metrics()
    print(f"MAE on the own station {found.wdp:.2f}, on the others {found.cdp:.2f}")
    return result


if __name__ == "__main__":
    main()
