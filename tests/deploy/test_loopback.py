"""Four organisations over TLS with node keys, in real processes: the same digests as in one process."""

import pytest

from deploy.loopback import Loopback
from heterophony.engines import local
from toys.deployed import CASES, NAMES

pytest.importorskip("flwr", reason="needs heterophony[flower]")


def run(case, folder):
    with Loopback(case, folder) as ring:
        ring.start("serve", *NAMES)
        result = ring.finish()
    assert result["digest"] == local(case.federation()).run(case.rounds).digest
    assert result["rounds"] == case.rounds
    return ring


def test_a_federation_over_tls_ends_with_the_local_digests(tmp_path):
    run(CASES["fml"], tmp_path)
