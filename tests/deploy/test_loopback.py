"""Four organisations over TLS with node keys, in real processes: the same digests as in one process."""

import json
import subprocess
from dataclasses import replace

import pytest

from deploy.loopback import Loopback
from heterophony import Secure
from heterophony.engines import local
from toys.deployed import CASES, NAMES
from toys.summed import InTheOpen

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


LOST = {"nobody": {}, "after-shares": {"west": {"egress": {"kinds": ["keys", "shares"]}}}, "killed": {}}


def survivors(rows):
    """Whose masked numbers are in the sum of each round, by the coordinator's own ledger."""
    late = {row["detail"].partition(": ")[0] for row in rows if "incident" in row}
    found = {}
    for row in rows:
        said = f"'masked' of round {row.get('round')} from {row.get('from')}"
        if row.get("kind") == "masked" and row["status"] == "sent" and said not in late:
            found.setdefault(row["round"], set()).add(row["from"])
    return found


# In `make test`, test_secure_node.py does the same without Flower.
@pytest.mark.slow
@pytest.mark.parametrize("lost", LOST)
def test_secure_sums_over_tls_are_those_of_whole_numbers_over_the_same_survivors(lost, tmp_path):
    """West sends no masked numbers, or its processes are killed when it has shared its secrets, and start again."""
    case = CASES["fedavg"]
    options = {**case.options, "deadline": 60.0}
    with Loopback(case, tmp_path, LOST[lost], secure={"wait": 30.0}, options=options) as ring:
        ring.start("serve", *NAMES)
        if lost == "killed":
            shared = lambda: any(row["kind"] == "shares" for row in ring.ledger("west"))  # noqa: E731
            ring.wait_for(shared, 240, "west shared nothing")
            ring.kill("west")
            ring.wait_for(lambda: ring.round() >= 1, 240, "the round did not go on")
            ring.start("west")
        result = ring.finish()
        rows = ring.rows()
    present = survivors(rows)
    assert set(present) == {0, 1}
    assert all(set(NAMES[:3]) <= names for names in present.values())
    if lost == "after-shares":
        assert not any("west" in names for names in present.values())
    if lost == "killed":
        opened = {(row["round"], row["from"]) for row in rows if row.get("kind") == "opening"}
        assert (0, "west") not in opened
    federation = case.federation()
    cohort = InTheOpen(how=Secure(), members={"server": 4}, present=present)
    alone = local(replace(federation, method=replace(federation.method, cohort=cohort))).run(case.rounds)
    assert result["digest"] == alone.digest
    assert not {row["kind"] for row in rows if "kind" in row} & {"update"}


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
