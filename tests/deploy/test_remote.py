"""The engine between organisations, without a network: the same digests, each reaction once, nothing lost."""

import pytest

from deploy.direct import Direct, engine, sites
from heterophony.engines import local
from toys.deployed import CASES


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_digests_are_those_of_the_local_engine(case, tmp_path):
    result = engine(case, Direct(sites(case, tmp_path))).run(case.rounds)
    here = local(case.federation()).run(case.rounds)
    assert result.digest == here.digest
    assert result.rounds == case.rounds
    assert result.ledger.bytes() == here.ledger.bytes()
    assert not result.ledger.incidents
