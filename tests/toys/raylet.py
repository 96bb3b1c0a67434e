"""A run on two raylets, the second of which is killed with -9 on the way: prints the digest, alone and disturbed.

python tests/toys/raylet.py WAVE    (after so many waves of events)
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import ray
import torch
from ray.cluster_utils import Cluster

from heterophony.engines import local
from heterophony.engines import ray as on_ray
from heterophony.methods import FedAvg
from toys.federations import B16, weights_star
from toys.world import net

ROUNDS, HIDDEN = 4, 4000  # 200 kB a message: large enough to live in the object stores


class Killer:
    """Kills a raylet between two waves of events, while mail of its workers is in flight."""

    def __init__(self, process: int, wave: int) -> None:
        self.process, self.wave, self.waves = process, wave, 0
        self.places: set[bool] = set()

    def __call__(self, engine) -> None:
        self.waves += 1
        self.places |= {member.near for member in engine.host.pool.members.values()}
        if self.waves == self.wave:
            os.kill(self.process, signal.SIGKILL)


def main() -> None:
    torch.set_num_threads(1)
    alone = local(weights_star(FedAvg(local=B16), net(HIDDEN))).run(ROUNDS)
    memory = {"num_cpus": 1, "object_store_memory": 100 * 10**6}
    cluster = Cluster(initialize_head=True, head_node_args={**memory, "include_dashboard": False})
    raylet = cluster.add_node(**memory).all_processes["raylet"][0].process
    ray.init(cluster.address, log_to_driver=False)
    killer = Killer(raylet.pid, int(sys.argv[1]))
    found = on_ray(weights_star(FedAvg(local=B16), net(HIDDEN)), progress=killer).run(ROUNDS)
    same = found.table.rows == alone.table.rows and found.ledger.rows == alone.ledger.rows
    told = {"alone": alone.digest, "disturbed": found.digest, "same": same, "waves": killer.waves}
    print(json.dumps({**told, "places": sorted(killer.places)}), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
