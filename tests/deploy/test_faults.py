"""Real processes really killed: nothing is counted twice, nothing is lost, the digests are those of a calm run."""

import os
import signal
import time

import pytest

from deploy.loopback import Loopback
from heterophony.engines import local
from toys.deployed import CASES, HIDDEN, NAMES, network_call

pytest.importorskip("flwr", reason="needs heterophony[flower]")
FML = CASES["fml"]
ROUNDS = 2


def slow(name="north", pause=1.0):
    """One organisation whose network takes its time, so that it can be caught in the middle of a reaction."""
    return {name: {"model": network_call(HIDDEN[name], pause=pause)}}


def wait_until_busy(ring, round):
    ring.wait_for(lambda: ring.round() >= round and ring.busy("north"), 240, f"north did not work in round {round}")
    time.sleep(0.5)
    assert ring.busy("north")


def check(ring, result):
    assert result["digest"] == local(FML.federation()).run(ROUNDS).digest
    assert result["rounds"] == ROUNDS
    for name in NAMES:
        assert [row["round"] for row in ring.ledger(name)] == list(range(ROUNDS))
    memes = [(row["from"], row["round"]) for row in ring.rows() if row.get("kind") == "meme"]
    assert sorted(memes) == sorted((name, round) for name in NAMES for round in range(ROUNDS))


def kill_supernode(ring):
    """Only Flower's process dies; the reaction goes on and its answer is asked for again."""
    (pid,) = ring.pids("north", "flower-supernode")
    os.kill(pid, signal.SIGKILL)


def kill_node(ring):
    """All of the node dies, in the middle of a reaction; somebody starts it again."""
    ring.kill("north")
    ring.start("north")


def kill_superlink(ring):
    (pid,) = ring.pids("serve", "flower-superlink")
    os.kill(pid, signal.SIGKILL)


def kill_coordinator(ring):
    ring.kill("serve")
    ring.start("serve")


def stand_still(ring, name):
    """All its processes get no time for longer than Flower's tokens last, as on a machine that is far too busy.

    What they say next is refused with 401, and they have to begin again.
    """
    leader = ring.processes[name].pid
    os.killpg(leader, signal.SIGSTOP)
    time.sleep(75)
    os.killpg(leader, signal.SIGCONT)


def node_stands_still(ring):
    stand_still(ring, "north")


def coordinator_stands_still(ring):
    stand_still(ring, "serve")


KILLS = (kill_supernode, kill_node, kill_superlink, kill_coordinator)
FAULTS = {fault.__name__: fault for fault in (*KILLS, node_stands_still, coordinator_stands_still)}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_that_is_killed_or_stands_still_costs_time_and_nothing_else(fault, tmp_path):
    with Loopback(FML, tmp_path, slow(), pace={"poll": 0.2, "again": 10.0}) as ring:
        ring.start("serve", *NAMES)
        wait_until_busy(ring, 0)
        FAULTS[fault](ring)
        check(ring, ring.finish())


@pytest.mark.slow
def test_kills_on_both_sides(tmp_path):
    """The short version: over TLS with node keys, a node dies in one round, the SuperLink in the
    next, and the federation ends with the digests of a calm run in one process."""
    with Loopback(FML, tmp_path, slow(pause=0.7), pace={"poll": 0.2, "again": 10.0}) as ring:
        ring.start("serve", *NAMES)
        wait_until_busy(ring, 0)
        kill_node(ring)
        wait_until_busy(ring, 1)
        kill_superlink(ring)
        check(ring, ring.finish())
