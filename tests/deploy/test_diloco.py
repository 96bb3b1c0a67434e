"""Training between organisations that meet seldom: AdamW inside, Nesterov outside, and a coordinator that is killed."""

from dataclasses import replace

import pytest

from deploy.loopback import Loopback
from heterophony.deploy.named_function import NamedFunction
from heterophony.engines import local
from toys import letters
from toys.deployed import CASES


def test_organisations_keep_the_moments_of_their_optimisers():
    """With moments that are kept the second round is another one, and the first the same."""
    kept = letters.federation()
    anew = replace(kept, method=replace(kept.method, local=replace(kept.method.local, keep=False)))
    assert local(kept).run(1).digest == local(anew).run(1).digest
    assert local(kept).run(2).digest != local(anew).run(2).digest


def call(function, **arguments):
    return NamedFunction(call=f"toys.letters:{function}", arguments=arguments).model_dump()


@pytest.mark.slow
def test_a_coordinator_that_is_killed_in_the_middle_changes_nothing(tmp_path):
    pytest.importorskip("flwr", reason="needs heterophony[flower]")
    case = replace(CASES["fedavg"], names=letters.NAMES, options={"local": letters.LOCAL, "server": letters.OUTER})
    own = {n: {"data": call("rows", name=n), "model": call("network"), "modules": ["toys.letters"]} for n in case.names}
    changes = {
        "rounds": letters.ROUNDS,
        "tests": "toys.letters:tests",
        "homes": {name: name for name in case.names},
        "networks": {"common": call("network")},
        "pace": {"poll": 0.2, "again": 10.0},
    }
    with Loopback(case, tmp_path, own, **changes) as ring:
        ring.start("serve", *letters.NAMES)
        ring.wait_for(lambda: ring.round() >= 1, 240, "the first round did not end")
        ring.kill("serve")
        ring.start("serve")
        result = ring.finish()
    alone = local(letters.federation()).run(letters.ROUNDS)
    assert result["digest"] == alone.digest
    assert result["rounds"] == letters.ROUNDS
