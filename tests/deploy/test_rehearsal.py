"""`--engine flower`: a setting rehearsed as it would run between organisations."""

import pytest

pytest.importorskip("flwr", reason="needs heterophony[flower]")

from heterophony.deploy.named_function import DeployError
from heterophony.deploy.plan import REAL_TIME
from heterophony.deploy.rehearsal import Rehearsal as flower
from heterophony.engines import local
from heterophony.settings import assemble
from toys.deployed import CASES

SMALL = {"models.same": "mlp", "local.steps": 2}


def rotated(**changes):
    return assemble("fedavg", "rotated-mnist", changes={**SMALL, **changes})


@pytest.mark.slow
def test_a_rehearsal_ends_with_the_local_digest_and_all_figures():
    result, here = flower(rotated()).run(2), local(rotated()).run(2)
    assert result.digest == here.digest
    assert result.ledger.bytes() == here.ledger.bytes()
    told = [{**row, "time": 0.0} for row in result.table]
    known = [{**row, "time": 0.0} for row in here.table]
    assert sorted(map(str, told)) == sorted(map(str, known))


def test_everyone_builds_the_same_federation_in_real_time():
    made = flower(rotated())
    built = made.plan.coordinator()
    assert built.profile("server") == REAL_TIME
    assert set(made.plan.participants) == set(built.homes)
    assert built.topology == made.federation.topology


def test_what_cannot_be_rehearsed_is_said():
    with pytest.raises(DeployError, match="needs a federation from a setting"):
        flower(CASES["fedavg"].federation())
    with pytest.raises(DeployError, match="without --out"):
        flower(rotated(), record=object())
    crowd = assemble("fedavg", "rotated-mnist", changes={**SMALL, "data.clients": 5})
    with pytest.raises(DeployError, match="two processes for each of 20 participants; 16 at most"):
        flower(crowd)
