"""Four organisations over TLS with node keys, in real processes: the same digests as in one process."""

import json
import subprocess

import pytest

from deploy.loopback import Loopback
from heterophony.engines import local
from toys.deployed import CASES, NAMES

pytest.importorskip("flwr", reason="needs heterophony[flower]")


def status(ring, place):
    command = [*ring.command("status", place), "--json"]
    return json.loads(subprocess.run(command, env=ring.environment(), check=True, capture_output=True).stdout)


# In `make test`, test_faults.py does the same with FML while processes are killed.
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_federation_over_tls_ends_with_the_local_digests(name, tmp_path):
    case = CASES[name]
    with Loopback(case, tmp_path) as ring:
        ring.start("serve", *NAMES)
        result = ring.finish()
        assert result["digest"] == local(case.federation()).run(case.rounds).digest
        assert result["rounds"] == case.rounds
        assert result["incidents"] == 0
        digests = json.loads((ring.coordinator / "digests.json").read_text())
        assert set(digests) >= set(NAMES)
        assert all(len(digest) == 64 for digest in digests.values())
        for name in NAMES:
            assert ring.ledger(name)
            assert not ring.incidents(name)
        command = [*ring.command("verify", ring.coordinator), *map(str, ring.homes.values())]
        audit = subprocess.run(command, env=ring.environment(), capture_output=True, text=True)
        assert audit.returncode == 0, audit.stdout + audit.stderr
        assert f"receipts that hold, of {len(NAMES)} nodes" in audit.stdout


@pytest.mark.slow
def test_status_tells_what_is_going_on(tmp_path):
    with Loopback(CASES["fedavg"], tmp_path) as ring:
        ring.start("serve", *NAMES[:3])
        found = ring.wait_for(
            lambda: status(ring, ring.coordinator) if ring.round() == 0 else None, 240, "nothing was reported"
        )
        assert found["nodes"]["west"] in ("registered", "offline")
        ring.wait_for(
            lambda: status(ring, ring.coordinator)["run"].get("waits_for") == ["west"], 240, "it did not wait for west"
        )
        assert status(ring, ring.homes["north"])["reactions"] == 1
        assert status(ring, ring.homes["west"])["reactions"] == 0
        ring.start("west")
        ring.finish()
        done = status(ring, ring.coordinator)
        assert done["nodes"] == {}
        assert done["run"]["finished"]
        assert done["result"]["rounds"] == 2
        north = status(ring, ring.homes["north"])
        assert north["reactions"] == 2
        assert north["left"]["update sent"] > 0
